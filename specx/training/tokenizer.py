"""The embedded pair's tokenizer: byte-level BPE with single digits and the digest's markers."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 8192
NUM_MARKERS = 1024
MAX_SENTENCES = 64

PAD, END, SUMMARY, CONTROL = "<pad>", "<end>", "<sum>", "<sub>"
MARKERS = [f"<p{i}>" for i in range(NUM_MARKERS)]
LENGTHS = [f"<n{i}>" for i in range(1, MAX_SENTENCES + 1)]
# The order fixes the ids: text below, then the structure of a digest.
SPECIAL_TOKENS = [PAD, END, SUMMARY, CONTROL, *LENGTHS, *MARKERS]


def train_tokenizer(texts: Iterable[str], folder: Path) -> PreTrainedTokenizerFast:
    """Learn the merges from ``texts`` and save the tokenizer in the hub's layout in ``folder``.

    Digits stand alone, so that a number is copied digit by digit, whatever its length.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
    fast.save_pretrained(folder)
    return fast
