"""A corpus in miniature, with its tokenizer and its pool."""

import copy
import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from specx.bench.generated import generate_report
from specx.training.corpus import collect, read_corpus
from specx.training.pool import Pool, encode_records
from specx.training.recipes import (
    Phase,
    Recipe,
    draft_recipe,
)
from specx.training.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus file, a tokenizer and a pool, made from two documentation folders."""
    base = tmp_path_factory.mktemp("training")
    paragraphs = [p.text for p in generate_report(120_000, seed=3).paragraphs]
    half = len(paragraphs) // 2
    (base / "a").mkdir()
    html = "".join(f"<p>{text}</p><pre>code {i}</pre>" for i, text in enumerate(paragraphs[:half]))
    (base / "a" / "manual.html").write_text(f"<html><body>{html}</body></html>")
    (base / "b").mkdir()
    (base / "b" / "guide.txt.gz").write_bytes(
        gzip.compress("\n\n".join(paragraphs[half:] + paragraphs[:5]).encode())
    )
    with gzip.open(base / "corpus.jsonl.gz", "wt") as out:
        for record in collect([base / "a", base / "b"]):
            out.write(json.dumps(record) + "\n")
    texts = (text for r in read_corpus(base / "corpus.jsonl.gz") for text in r["paragraphs"])
    tokenizer = train_tokenizer(texts, base / "tokenizer", vocabulary=1600)
    assert len(tokenizer) == 1600, "pairs of text tokens need an even vocabulary"
    encode_records(read_corpus(base / "corpus.jsonl.gz"), tokenizer).save(base / "pool.npz")
    return base


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")


@pytest.fixture(scope="session")
def pool(folder: Path) -> Pool:
    """The pool, with its last record held out."""
    whole = Pool.load(folder / "pool.npz")
    return replace(whole, held_out=len(whole) - int(np.flatnonzero(whole.first)[-1]))


@pytest.fixture(scope="session")
def draft(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    """The draft's recipe in miniature: four steps of a small model with a judge."""
    phases = (Phase((128,), 2, tokens=1024), Phase((128, 256), 2, tokens=1024))
    recipe = replace(draft_recipe(tokenizer), phases=phases, warmup=1, judged_layers=(1, 2))
    return miniature(recipe)


def miniature(recipe: Recipe) -> Recipe:
    """The recipe with a model of the same layers and heads, but narrow ones."""
    config = copy.deepcopy(recipe.config)
    config.update({"hidden_size": 48, "intermediate_size": 64, "head_dim": 8})
    return replace(recipe, config=config)
