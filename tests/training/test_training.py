"""The whole way from documentation on disk to a trained model, in miniature."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specx.documents.generated import generate_report
from specx.training.corpus import collect, is_prose, read_corpus
from specx.training.task import (
    MAX_LEAD,
    WEIGHT_COPY,
    DigestTask,
    Pool,
    central_paragraphs,
    encode_pool,
)
from specx.training.tokenizer import VOCABULARY, train_tokenizer
from specx.training.train import Phase, Recipe, Trainer, draft_recipe, target_recipe


@pytest.fixture(scope="module")
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
    tokenizer = train_tokenizer(texts, base / "tokenizer")
    encode_pool(base / "corpus.jsonl.gz", tokenizer).save(base / "pool.npz")
    return base


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")


@pytest.fixture(scope="module")
def pool(folder: Path) -> Pool:
    return Pool.load(folder / "pool.npz")


def test_the_corpus_has_prose_once_and_no_code(folder: Path) -> None:
    records = list(read_corpus(folder / "corpus.jsonl.gz"))
    texts = " ".join(text for record in records for text in record["paragraphs"])
    sentences = [p.text for p in generate_report(120_000, seed=3).paragraphs]
    assert len(records) == 2
    assert "code 1" not in texts
    assert all(texts.count(text) == 1 for text in sentences if is_prose(text))


def test_the_tokenizer_keeps_text_and_splits_digits(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "In 2011 the “Postal Union” spent 17.6 million crowns — naïvely."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert len(tokenizer("2011", add_special_tokens=False)["input_ids"]) == 4
    assert len(tokenizer) <= VOCABULARY
    assert tokenizer.convert_ids_to_tokens(DigestTask.full_stop) == "."


def test_lead_sentences_are_prefixes_of_their_paragraphs(
    pool: Pool, tokenizer: PreTrainedTokenizerFast
) -> None:
    for index in range(0, len(pool), 7):
        lead = pool.paragraph(index)[: pool.leads[index]]
        text = tokenizer.decode(lead)
        assert text.endswith((".", "?", "!")) or len(lead) == MAX_LEAD
        assert tokenizer.decode(pool.paragraph(index)).startswith(text)


def test_central_paragraphs_are_those_nearest_to_the_centroid() -> None:
    idf = np.ones(10, dtype=np.float32)
    common, rare = np.array([1, 2, 3]), np.array([7, 8, 9])
    chosen = central_paragraphs([rare, common, common, np.array([1, 2, 9])], idf, 2)
    assert chosen.tolist() == [1, 2]


@pytest.mark.parametrize("sort", range(4))
def test_digests_copy_their_paragraphs(
    pool: Pool, tokenizer: PreTrainedTokenizerFast, sort: int
) -> None:
    task = DigestTask(pool, (512, 1024), tokens=4096, steps=4, seed=5)
    task.mixture = tuple(float(i == sort) for i in range(4))
    marker = tokenizer.convert_tokens_to_ids("<p0>")
    copied = 0
    for tokens, weights in (task[i] for i in range(4)):
        assert tokens.shape == weights.shape
        for row, weight in zip(tokens, weights, strict=True):
            text = row[row != tokenizer.pad_token_id].tolist()
            digest = text.index(tokenizer.convert_tokens_to_ids("<sum>"))
            body = ",".join(map(str, text[:digest]))
            starts = [i for i in range(digest, len(text)) if 0 <= text[i] - marker < 1024]
            assert starts
            assert [text[i] for i in starts] == sorted({text[i] for i in starts})
            for at, start in enumerate(starts[:-1]):
                sentence = ",".join(map(str, text[start : starts[at + 1]]))
                assert sentence in body, "a quoted sentence stands behind its marker"
            copied += int((weight == WEIGHT_COPY).sum())
    assert copied > 200


def test_a_batch_depends_on_seed_and_index_alone(pool: Pool) -> None:
    def batch(seed: int, index: int) -> torch.Tensor:
        return DigestTask(pool, (256, 512), tokens=2048, steps=9, seed=seed)[index][0]

    assert torch.equal(batch(1, 3), batch(1, 3))
    assert not torch.equal(batch(1, 3)[:, :200], batch(2, 3)[:, :200])
    assert not torch.equal(batch(1, 3)[:, :200], batch(1, 4)[:, :200])


def _recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    recipe = draft_recipe(tokenizer)
    phases = (Phase((128,), 2, tokens=1024), Phase((128, 256), 2, tokens=1024))
    return replace(recipe, phases=phases, warmup=1)


def test_training_learns_saves_and_resumes(
    pool: Pool, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    cpu = torch.device("cpu")
    whole = Trainer(_recipe(tokenizer), pool, tmp_path / "whole", cpu, seed=1)
    whole.run()
    # The same run, interrupted after its first phase.
    first = Trainer(_recipe(tokenizer), pool, tmp_path / "halves", cpu, seed=1)
    phases = first.recipe.phases
    first._run_phase(phases[0], begin=0, total=sum(p.steps for p in phases))
    second = Trainer(_recipe(tokenizer), pool, tmp_path / "halves", cpu, seed=99)
    second.seed = 1
    second.resume()
    second.run()
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[name], value)
    curve = [json.loads(line) for line in (tmp_path / "whole" / "curve.jsonl").open()]
    losses = [line["loss"] for line in curve if "loss" in line]
    assert losses[-1] < losses[0]
    saved = LlamaForCausalLM.from_pretrained(tmp_path / "whole" / "model")
    assert saved.config.vocab_size == len(tokenizer)


def test_recipes_are_the_shipped_shapes(tokenizer: PreTrainedTokenizerFast) -> None:
    target, draft = target_recipe(tokenizer), draft_recipe(tokenizer)
    assert max(max(p.lengths) for p in target.phases) == target.config.max_position_embeddings
    assert max(max(p.lengths) for p in draft.phases) == 1024
    assert target.shortened(0.001).phases[0].steps == 1
