"""The bundled model's tokenizer: a small byte-level BPE, trained on demonstrations of random schemas.

Byte-level, so that any text round-trips; names always follow a space in prompts and SQL, so that a name has one
spelling in tokens; SQL's frequent phrases may become single tokens, which keeps responses short.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from datamodules.pocketsql.demonstrations import PocketDemonstrations

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
VOCABULARY_SIZE = 1024
CORPUS_SIZE = 4000  # demonstrations

_PHRASES = (
    " GROUP BY", " ORDER BY", " PARTITION BY", " NOT IN ( SELECT", " IN ( SELECT", " NOT EXISTS ( SELECT 1 FROM",
    " EXISTS ( SELECT 1 FROM", " LEFT JOIN", " IS NULL", " IS NOT NULL", "SELECT DISTINCT", " LIMIT 1", " COUNT ( * )",
    " RANK ( ) OVER ( ", " ( SELECT * ,", " ( SELECT", "WITH c AS ( SELECT", "\ntable", "\nquestion :", "\napproach :",
    "\nparent :", "\nsql :", "table",
)  # fmt: skip


def train_tokenizer(seed: int, vocabulary_size: int = VOCABULARY_SIZE) -> PreTrainedTokenizerFast:
    """Train the tokenizer.

    Args:
        seed: Of the demonstrations that it is trained on.
        vocabulary_size: Entries, the 256 bytes and three special tokens included.

    Returns:
        A tokenizer that `AutoTokenizer.from_pretrained` loads after `save_pretrained`.
    """
    pieces = "|".join(re.escape(phrase) for phrase in _PHRASES)
    words = r" ?[tc]\d?\.|_\p{L}+| ?\p{L}+| ?\p{N}+| ?'| ?[^\s\p{L}\p{N}_']+|_|\s+"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(f"{pieces}|{words}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(seed), trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token=PAD, bos_token=BOS, eos_token=EOS, clean_up_tokenization_spaces=False
    )


def _corpus(seed: int) -> Iterator[str]:
    stream = PocketDemonstrations()
    order = list(range(CORPUS_SIZE))
    random.Random(seed).shuffle(order)
    for index in order:
        demonstration = stream.demonstration(index, seed)
        yield demonstration.prompt
        yield demonstration.response
