"""Make the tokenizer and the tokenized paragraphs of a corpus.

``python -m specx.training.prepare corpus.jsonl.gz --out DIR`` writes ``DIR/tokenizer/`` and
``DIR/pool.npz``.
"""

import argparse
from pathlib import Path

from specx.training.corpus import count_characters, read_corpus
from specx.training.pool import encode_records
from specx.training.tokenizer import balanced_sample, train_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    texts = balanced_sample(read_corpus(arguments.corpus))
    tokenizer = train_tokenizer(texts, arguments.out / "tokenizer")
    pool = encode_records(read_corpus(arguments.corpus), tokenizer)
    pool.save(arguments.out / "pool.npz")
    characters = sum(map(count_characters, read_corpus(arguments.corpus)))
    print(
        f"{len(pool)} paragraphs ({pool.held_out} held out), {len(pool.tokens) / 1e6:.1f} million "
        f"tokens, {characters / len(pool.tokens):.2f} characters a token"
    )


if __name__ == "__main__":
    main()
