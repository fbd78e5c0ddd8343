"""Tokens per second of the in-process engine beside `transformers` generate: same model, same prompts, one run.

    python benchmarks/rollout.py --prompts 16 --samples 8 --prompt-length 100 --new-tokens 64 --threads 1

    python benchmarks/rollout.py --continuous          # transformers' continuous batching too

All sides sample at temperature 1 without truncation and stop at the same end-of-sequence token. Only tokens of
responses are counted, not what `generate` pads behind them. Each figure is the median of `--repeats` runs after one
to warm up, and the sides take turns, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from transformers import GenerationConfig

from elite_lightning.copy_heads import new_tiny_llama
from elite_lightning.policy import TokenCodec, load_model, load_tokenizer
from elite_lightning.rollout.in_process import InProcessEngine
from elite_lightning.types import Codec, Sampling

VOCABULARY, EOS = 1024, 2


class Ids:
    """A codec without text, for a model without a tokenizer."""

    fingerprint = "ids"

    def encode_prompt(self, text: str) -> list[int]:
        """There is no text here."""
        raise NotImplementedError

    def encode_response(self, _text: str) -> list[int]:
        """The end of sequence, which is all that the engine asks for."""
        return [EOS]

    def decode(self, _token_ids: Sequence[int]) -> str:
        """No text."""
        return ""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or hub name; a random Llama of a million parameters if left out")
    parser.add_argument("--prompts", type=int, default=16, help="distinct prompts")
    parser.add_argument("--samples", type=int, default=8, help="samples per prompt")
    parser.add_argument("--prompt-length", type=int, default=100, help="mean prompt length; they vary by 10 %%")
    parser.add_argument("--new-tokens", type=int, default=64, help="longest response")
    parser.add_argument("--max-rows", type=int, default=256, help="most rows at once in the engine")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--repeats", type=int, default=3, help="runs per side")
    parser.add_argument(
        "--continuous", action="store_true", help="also transformers' continuous batching; slow to set up"
    )
    return parser.parse_args()


def load(path: str | None) -> tuple[Any, Codec]:
    if path is None:
        return new_tiny_llama(VOCABULARY, bos_id=1, eos_id=EOS, pad_id=0), Ids()
    return load_model(path), TokenCodec(load_tokenizer(path))


def random_prompts(count: int, length: int, vocabulary: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    spread = max(1, length // 10)
    lengths = torch.randint(max(1, length - spread), length + spread + 1, (count,), generator=generator).tolist()
    return [torch.randint(5, vocabulary, (size,), generator=generator).tolist() for size in lengths]


def hugging_face(
    model: Any, prompts: list[list[int]], samples: int, new_tokens: int, eos: int, **options: Any
) -> Callable[[], int]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    options |= {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "eos_token_id": eos, "pad_token_id": 0}

    def run() -> int:
        output = model.generate(
            ids, attention_mask=mask, num_return_sequences=samples, max_new_tokens=new_tokens, **options
        )
        ended = (output[:, longest:] == eos).int()
        return int((ended.cumsum(1) - ended == 0).sum())

    return run


def continuous(model: Any, prompts: list[list[int]], samples: int, new_tokens: int, eos: int) -> Callable[[], int]:
    """What TRL calls with `use_transformers_paged`, its manager kept between calls so that only sampling is timed."""
    options = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "eos_token_id": eos, "pad_token_id": 0}
    config = GenerationConfig(max_new_tokens=new_tokens, **options)
    requests = [prompt for prompt in prompts for _ in range(samples)]

    def run() -> int:
        done = model.generate_batch(requests, generation_config=config, progress_bar=False, persistent_manager=True)
        return sum(len(output.generated_tokens) for output in done.values())

    return run


def measure(sides: dict[str, Callable[[], int]], repeats: int) -> dict[str, float]:
    """Median tokens per second of each side."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):
        for name, run in sides.items():
            start = time.perf_counter()
            tokens = run()
            if repeat:
                rates[name].append(tokens / (time.perf_counter() - start))
    return {name: median(values) for name, values in rates.items()}


def show(rates: dict[str, float]) -> None:
    own = next(iter(rates.values()))
    print(f"{'':24}{'tokens/s':>10}{'engine is x times':>20}")
    for name, rate in rates.items():
        print(f"{name:24}{rate:10.0f}{own / rate:20.2f}", flush=True)


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    model, codec = load(args.model)
    model.eval()
    engine = InProcessEngine(model, codec, max_rows=args.max_rows)
    prompts = random_prompts(args.prompts, args.prompt_length, model.config.vocab_size)
    sampling = Sampling(1.0, args.new_tokens)

    def own() -> int:
        groups = engine.generate(prompts, args.samples, sampling, seed=0)
        return sum(len(completion.token_ids) for group in groups for completion in group)

    common = (model, prompts, args.samples, args.new_tokens, engine.eos_id)
    print(
        f"{args.prompts} prompts x {args.samples} samples, {args.prompt_length} + {args.new_tokens} tokens, "
        f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {args.threads} threads"
    )
    sides = {
        "engine": own,
        "generate, dynamic cache": hugging_face(*common),
        "generate, static cache": hugging_face(*common, cache_implementation="static"),
    }
    rates = measure(sides, args.repeats)
    if args.continuous:
        # Apart, because its manager goes on in a thread; of a copy, because it changes the model's attention.
        rates |= measure({"continuous batching": continuous(copy.deepcopy(model), *common[1:])}, args.repeats)
    show(rates)


if __name__ == "__main__":
    main()
