"""A small head and its large form draft the same for a small target and its large form."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from specx.bench.floors import read_bytes
from specx.bench.methods import METHODS
from specx.bench.runs import Setting
from specx.bench.scaled import scale_head, scaled_pair, scaled_profile
from specx.bench.shapes import LLAMA_8B, VICUNA_7B, HeadShape, Shape, draft_shape
from specx.decoding.methods import Pair
from specx.errors import OutOfMemoryError
from specx.models.compat import head_facts
from specx.models.head_files import LoadedHead, open_head
from specx.models.loaded import ModelSpec
from specx.profile import Profile, load_profile
from specx.runs.pair import load_pair
from tests.bench.forcing import force
from tests.bench.test_scaled import (
    ROWS,
    large,
    name_modest_shapes,
    prompt,
    scaled_decoder,
    small_of,
)
from tests.decoding.pairs import make_profile, make_prompt, run
from tests.heads import LAYERS, SMALL, head_target, load, make_head_file
from tests.tiny import make_model

CPU = torch.device("cpu")
SEES_ALL = {"chunk": 16, "top_k": 16, "sink": 1, "every": 3, "layer": 0, "window": None}
TOLERANCE = 3e-6  # of log probabilities in float32, relative to their size; 7e-7 was measured
HEAD_ROWS = 300


@cache
def small_parts(layout: str = "specforge", **flags: Any) -> tuple[Pair, dict[str, Tensor]]:
    """A pair with a head, and the tensors of that."""
    target = head_target()
    with TemporaryDirectory() as name:
        folder = make_head_file(layout, **flags).write(Path(name) / "head")
        head, files = load(folder, target), open_head(ModelSpec(str(folder)), CPU)
    assert files is not None
    target_allowed, draft_allowed = head_facts(target, head)
    return Pair(target, target_allowed, head, draft_allowed), files[1]


def small_pair(layout: str = "specforge", **flags: Any) -> Pair:
    return small_parts(layout, **flags)[0]


def head_shape(**changes: Any) -> HeadShape:
    shape = draft_shape("eagle3", replace(large(), **changes))
    assert isinstance(shape, HeadShape)
    return replace(shape, vocab_size=HEAD_ROWS)


def large_pair(
    small: tuple[Pair, dict[str, Tensor]], target_shape: Shape, shape: HeadShape
) -> Pair:
    pair, tensors = small
    model = small_of(make_model("llama", 0, num_hidden_layers=LAYERS))  # the target's weights
    target = scaled_decoder(model, target_shape)
    head = scale_head(pair.draft, tensors, pair.target.num_layers, target, shape)
    target_allowed, draft_allowed = head_facts(target, head)
    return Pair(target, target_allowed, head, draft_allowed)


def expected(pair: Pair, method: str = "specextend") -> Tensor:
    """Log probabilities [T, V] of the draft along a text."""
    setting = Setting(pair, make_profile(cache=SEES_ALL))
    return torch.stack(
        list(force(METHODS[method], setting, make_prompt(70), make_prompt(12, seed=1)))
    )


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"hidden_size": 128, "num_kv_heads": 2},  # each norm rounds once more
        {"num_kv_heads": 8},
        {"num_heads": 16, "head_dim": 64},
    ],
    ids=["wider", "2-times", "a-kv-head-each", "larger-heads"],
)
@pytest.mark.parametrize("vocabulary", [SMALL, 250])
def test_the_large_head_expects_what_the_small_one_expects(
    shape: dict[str, Any], vocabulary: int
) -> None:
    small = small_parts(vocabulary=vocabulary)
    target_shape = large(num_layers=LAYERS + 3, **shape)
    ours, theirs = (
        expected(small[0]),
        expected(large_pair(small, target_shape, head_shape(**shape))),
    )
    known = ours.isfinite()
    assert 0 < known.sum(1).max() <= vocabulary
    assert difference(ours[known], normalized(theirs, known)) < TOLERANCE


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Relative to the size of ``ours``."""
    return float((ours - theirs).norm() / ours.norm())


def normalized(logprobs: Tensor, known: Tensor) -> Tensor:
    """The log probabilities of the small model's ids, without those that only the large one has."""
    rows = logprobs[:, : known.shape[1]].masked_fill(~known, -torch.inf)
    return rows.log_softmax(-1)[known]


def test_facts_of_a_scaled_head() -> None:
    small, shape = small_pair(), head_shape()
    pair = large_pair(small_parts(), large(num_layers=LAYERS + 3), shape)
    head, target = pair.draft, pair.target
    assert isinstance(head, LoadedHead)
    assert isinstance(small.draft, LoadedHead)
    assert head.spec.features == tuple(layer + 3 for layer in small.draft.spec.features)
    assert head.source == "scaled mini eagle3"
    every = head.weight_bytes - 16 * 4  # frequencies, float32
    assert every == 4 * shape.parameters()
    assert head.vocab_size == HEAD_ROWS
    # A level of a tree reads all but the map of the features.
    assert read_bytes(head) == 4 * (shape.parameters() - 3 * shape.hidden_size**2)
    assert head.model.weights.embedding is target.model.weights.embedding
    ids = head.model.target_ids.tolist()
    assert ids[:SMALL] == small.draft.model.target_ids.tolist()
    assert len(set(ids)) == HEAD_ROWS
    assert max(ids) < ROWS


def test_ids_that_the_small_head_lacks_never_win() -> None:
    pair = large_pair(small_parts(), large(num_layers=LAYERS + 3), head_shape())
    best = expected(pair).argmax(1)
    assert set(best.tolist()) <= set(small_pair().draft.model.target_ids.tolist())


def test_what_is_not_written_is_random() -> None:
    head = large_pair(small_parts(), large(num_layers=LAYERS + 3), head_shape()).draft.model
    layer, queries = head.weights.layers[0], 8 * 32
    for weight in (layer.qkv.weight[queries:], layer.gate_up.weight):
        assert weight.ne(0).float().mean() > 0.99
    assert head.weights.input_norms.state.ne(0).all()


# The embedded head, in a size that a test can afford, and the sizes of public ones.


def profile() -> Profile:
    given = load_profile("mini-eagle3").on("cpu")
    return given.changed(fallback={"below": None}, generation={"max_new_tokens": 20})


def test_a_scaled_head_writes_what_the_embedded_one_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    name_modest_shapes(monkeypatch)
    pair = scaled_pair("modest", "eagle3", CPU, torch.float32)
    ours = run(load_pair(profile(), "specextend", CPU), profile(), "specextend", prompt())
    theirs = run(pair, scaled_profile(profile(), "modest"), "specextend", prompt())
    assert theirs.tokens == ours.tokens
    assert theirs.accepted == ours.accepted
    assert sum(ours.accepted) > 10


def test_the_sizes_of_published_heads() -> None:
    head = draft_shape("eagle3", LLAMA_8B)
    fc = 3 * 4096**2
    assert head.parameters() - fc == pytest.approx(374e6, rel=0.002)  # a level reads all but fc
    assert draft_shape("eagle3", VICUNA_7B).vocab_size == 32_000


def test_memory_is_that_of_target_and_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specx.models.memory.free_bytes", lambda _: 10_000_000_000)
    monkeypatch.setattr("specx.bench.scaled.scale", lambda *_, **__: pytest.fail("was built"))
    with pytest.raises(OutOfMemoryError, match=r"llama-3.1-8b and eagle3 in bfloat16 needs 16\.9"):
        scaled_pair("llama-3.1-8b", "eagle3", CPU)
