"""Peak memory of log-probabilities and their backward pass at a large vocabulary, beside whole logits.

    python benchmarks/update_memory.py --tokens 16384 --hidden 256 --vocabulary 151936

One layer of a Llama scores the tokens of 64 responses, in micro-batches as a training step cuts them. Our side is
`response_logprobs`, as a training step calls it. The other side is what is usually written, `log_softmax` of the whole
logits, for `--plain-tokens` tokens, because all of them would not fit into most machines; its memory grows in
proportion. Loss and gradients of both sides are compared at `--plain-tokens`. `head` is our side without the model:
log-probabilities from given hidden states, all tokens at once.

Each side runs in a process of its own. Memory is the highest resident memory above what is resident with the weights
and their gradients in place (Linux).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from memory import PeakMemory
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from elite_lightning.batching import TokenBatch, TokenRow, collate, micro_batches
from elite_lightning.linear_logprobs import linear_logprobs
from elite_lightning.logprobs import CHUNK_BYTES_ON_CPU, response_logprobs

RESPONSES = 64


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=16384, help="of responses, in one micro-batch")
    parser.add_argument("--plain-tokens", type=int, default=1024, help="of the other side")
    parser.add_argument("--micro-batch-tokens", type=int, default=8192, help="most tokens of one pass")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", choices=("ours", "head", "plain"), help=argparse.SUPPRESS)
    return parser.parse_args()


def policy(hidden: int, vocabulary: int) -> Any:
    torch.manual_seed(0)
    size = {"hidden_size": hidden, "intermediate_size": 3 * hidden, "num_attention_heads": 4, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, tie_word_embeddings=True, **size))


def responses(tokens: int, vocabulary: int) -> list[TokenRow]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, (RESPONSES, tokens // RESPONSES), generator=generator).tolist()
    return [TokenRow([1], row) for row in ids]


def plain_logprobs(model: Any, batch: TokenBatch) -> Tensor:
    logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits[:, :-1]
    return logits.log_softmax(-1).gather(-1, batch.response_ids[..., None]).squeeze(-1)


def run(given: argparse.Namespace) -> None:
    """One side's memory, seconds, loss and some gradients, as a line of JSON."""
    torch.set_num_threads(given.threads)
    model = policy(given.hidden, given.vocabulary)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    rows = responses(given.tokens, given.vocabulary)
    memory, started = PeakMemory(), time.perf_counter()
    loss = head_alone(model, given.tokens) if given.side == "head" else whole(model, rows, given)
    seconds, peak = time.perf_counter() - started, memory.bytes()
    gradients = [weight.grad.flatten()[:: max(1, weight.numel() // 1000)].tolist() for weight in model.parameters()]
    found = {"bytes": peak, "seconds": seconds, "loss": loss, "gradients": [*chain(*gradients)]}
    print(json.dumps(found), flush=True)


def whole(model: Any, rows: list[TokenRow], given: argparse.Namespace) -> float:
    score, loss = response_logprobs if given.side == "ours" else plain_logprobs, 0.0
    for cut in micro_batches(rows, given.micro_batch_tokens):
        share = -score(model, collate([rows[i] for i in cut])).sum() / given.tokens
        share.backward()
        loss += share.item()
    return loss


def head_alone(model: Any, tokens: int) -> float:
    head = model.get_output_embeddings()
    hidden = torch.randn(tokens, head.in_features, requires_grad=True)
    targets = torch.arange(tokens) % head.out_features
    loss = -linear_logprobs(hidden, head, targets, 1.0, CHUNK_BYTES_ON_CPU // (4 * head.out_features)).mean()
    loss.backward()
    return loss.item()


def measure(given: argparse.Namespace, side: str, tokens: int) -> dict[str, Any]:
    names = ("hidden", "vocabulary", "threads", "micro-batch-tokens")
    options = [word for name in names for word in (f"--{name}", str(getattr(given, name.replace("-", "_"))))]
    command = [sys.executable, __file__, "--side", side, "--tokens", str(tokens), *options]
    done = subprocess.run(command, cwd=Path(__file__).parent, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    given = arguments()
    if given.side:
        run(given)
        return
    whole_logits = 4 * given.tokens * given.vocabulary / 2**30
    print(f"hidden {given.hidden}, vocabulary {given.vocabulary:,}, float32, {given.threads} threads")
    print(f"the logits of all tokens are {whole_logits:.1f} GiB")
    print(f"{'':14}{'tokens':>8}{'peak MiB':>10}{'KiB a token':>13}{'ms a token':>12}")
    sides: dict[tuple[str, int], dict[str, Any]] = {}
    for side, tokens in product(("ours", "head", "plain"), (given.tokens, given.plain_tokens)):
        if (side, tokens) in {("plain", given.tokens), ("head", given.plain_tokens)}:
            continue
        found = sides[side, tokens] = measure(given, side, tokens)
        kib, milliseconds = found["bytes"] / 2**10, found["seconds"] * 1000
        print(f"{side:14}{tokens:8}{kib / 2**10:10.0f}{kib / tokens:13.0f}{milliseconds / tokens:12.2f}", flush=True)
    ours, plain = sides["ours", given.plain_tokens], sides["plain", given.plain_tokens]
    gradients = zip(ours["gradients"], plain["gradients"], strict=True)
    furthest = max(abs(a - b) for a, b in gradients) / max(map(abs, plain["gradients"]))
    needed = plain["bytes"] / given.plain_tokens * given.tokens / 2**30
    print(f"differences at {given.plain_tokens} tokens: loss {abs(ours['loss'] - plain['loss']):.1e}, ", end="")
    print(f"gradients {furthest:.1e} of the largest; plain would take {needed:.0f} GiB for {given.tokens}")


if __name__ == "__main__":
    main()
