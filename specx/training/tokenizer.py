"""The embedded pair's tokenizer: byte-level BPE with single digits and the digest's markers."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from specx.training.corpus import count_characters, draw, package

VOCABULARY = 8192
SAMPLE_CHARACTERS = 2_000_000  # of one package: merges are learned from many kinds of text
NUM_MARKERS = 1024
MAX_SENTENCES = 64

PAD, END, SUMMARY, CONTROL = "<pad>", "<end>", "<sum>", "<sub>"
MARKERS = [f"<p{i}>" for i in range(NUM_MARKERS)]
LENGTHS = [f"<n{i}>" for i in range(1, MAX_SENTENCES + 1)]
# The order fixes the ids: text below, then the structure of a digest.
SPECIAL_TOKENS = [PAD, END, SUMMARY, CONTROL, *LENGTHS, *MARKERS]


def balanced_sample(
    records: Iterable[dict[str, Any]], characters: int = SAMPLE_CHARACTERS
) -> Iterator[str]:
    """Yield paragraphs of about ``characters`` characters from each package, spread over it.

    Without this bound, words of one large manual would take up tokens that names and everyday words
    need. Held-out records are left out.
    """
    training = [record for record in records if not record["held_out"]]
    totals: Counter[str] = Counter()
    for record in training:
        totals[package(record)] += count_characters(record)
    for record in training:
        if draw("sample", record["source"], totals[package(record)]) < characters:
            yield from record["paragraphs"]


def train_tokenizer(
    texts: Iterable[str], folder: Path, vocabulary: int = VOCABULARY
) -> PreTrainedTokenizerFast:
    """Learn the merges from ``texts`` and save the tokenizer in the hub's layout in ``folder``.

    Each digit is a token, so numbers of any length are copied digit by digit. The numbers of
    special tokens and of all tokens are even, so that text tokens 2i and 2i + 1 form pairs.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
    fast.save_pretrained(folder)
    return fast
