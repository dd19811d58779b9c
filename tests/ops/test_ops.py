"""Every implementation of every operation of ``Ops`` against its definition in float64.

Torch computes on the CPU; Triton on a CUDA device, Hopper's kernels among its own there, or in
Triton's interpreter (``tests/conftest.py`` chooses it). That computes with numpy, which has no
bfloat16: Triton is tested in that type on a device only.
"""

import math
import random
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from specx.ops.chunks import PASSAGE, Grid
from specx.ops.contract import HAS_TRITON, Ops
from specx.ops.layers import HeadNorms, LayerWeights, LinearMap
from specx.ops.penalties import Penalties, TextSoFar
from specx.ops.spec import AttentionSpec, HeadNormSpec, LayerSpec, MlpSpec, NormSpec
from specx.ops.torch.backend import CpuOps, TorchOps
from specx.ops.torch.layer import TorchLayer
from specx.ops.trees import Level, Path, TokenTree, root_only
from tests.ops import reference
from tests.ops.examples import (
    ERROR,
    LSE_TOLERANCE,
    TOLERANCE,
    TREES,
    assert_close,
    assert_level,
    attend_to_tree,
    draw_logits,
    error,
    in_ring,
    make_inputs,
    make_tree,
    random_levels,
    random_parents,
    random_tree,
    stored,
)
from tests.ops.reference import visible_of

# numpy warns where a device does not: of logarithms of 0, and of NaN on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")

CPU = torch.device("cpu")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16


@dataclass(frozen=True)
class Backend:
    """Operations, the type they compute in, and where."""

    ops: Ops
    dtype: torch.dtype
    device: torch.device

    def __str__(self) -> str:
        return f"{self.ops.name}-{self.dtype}".replace("torch.", "")


def backends_of(
    operation: str, torch_types: list[torch.dtype], triton_types: list[torch.dtype]
) -> list[Backend]:
    """Return torch in some types, with what a CPU has of its own, and Triton in others."""
    own = [CpuOps()] if operation in vars(CpuOps) else []
    found = [Backend(ops, dtype, CPU) for ops in (TorchOps(), *own) for dtype in torch_types]
    if HAS_TRITON:
        from specx.ops.triton.backend import TritonOps

        missing = {BF16} if DEVICE.type == "cpu" else set()
        types = [dtype for dtype in triton_types if dtype not in missing]
        found += [Backend(TritonOps(), dtype, DEVICE) for dtype in types]
    return found


def backends(operation: str, types: tuple[list[torch.dtype], list[torch.dtype]]) -> Any:
    return pytest.mark.parametrize("backend", backends_of(operation, *types), ids=str)


EVERY_TYPE = [F64, F32, F16, BF16], [F32, F16, BF16]
# In the interpreter float32 is computed as half precision is, and float64 has a way of its own.
ROWS_OF_CACHES = EVERY_TYPE[0], [F64, F16] if DEVICE.type == "cpu" else EVERY_TYPE[1]
LOGITS = [F32, F16, BF16], [F32, F16, BF16]
WHOLE_NUMBERS = [F32], [F32]


def cases(table: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("case", table.values(), ids=table)


def crossed(
    operation: str,
    types: tuple[list[torch.dtype], list[torch.dtype]],
    *tables: dict[str, Any],
    interpreted: int = 4,
) -> list[Any]:
    """Return the parameters of each backend with the product of some tables.

    Of float32 all are for every run, of another type each backend takes a third; the rest is for
    the slow tests. In the interpreter, which is slow, one in ``interpreted`` is for every run, and
    of half precision, which is computed as float32, a third of these.
    """
    found = []
    for place, backend in enumerate(backends_of(operation, *types)):
        every, first = (1 if backend.dtype == F32 else 3), place
        if backend.ops.name == "triton" and DEVICE.type == "cpu":
            every, first = interpreted * (3 if backend.dtype == F16 else 1), 0
        for number, cell in enumerate(product(*(table.items() for table in tables))):
            (names, values), slow = zip(*cell, strict=True), (number - first) % every > 0
            found.append(
                pytest.param(
                    backend, *values, id="-".join((str(backend), *names)),
                    marks=pytest.mark.slow if slow else (),
                )
            )  # fmt: skip
    return found


def one(number: int, backend: Backend) -> Tensor:
    return torch.tensor([number], device=backend.device)


def normal(backend: Backend, *sizes: int, seed: int = 0) -> Tensor:
    """Random numbers, rounded to the type of a backend."""
    generator = torch.Generator().manual_seed(seed + sum(sizes))
    drawn = torch.randn(*sizes, generator=generator, dtype=F64)
    return drawn.to(backend.device, backend.dtype)


# KV caches


@backends("store_rows", ROWS_OF_CACHES)
@pytest.mark.parametrize(("rows", "dim"), [(1, 16), (3, 48), (65, 16)])
def test_store_rows(backend: Backend, rows: int, dim: int) -> None:
    storage = torch.full((2, 2, 2, 70, dim), torch.nan, dtype=backend.dtype, device=backend.device)
    # As models have them: heads behind rows, and the two apart.
    key, value = normal(backend, rows, 4, dim).transpose(0, 1).split(2)
    slots = torch.randperm(70, generator=torch.Generator().manual_seed(1))[:rows]
    slots = slots.to(backend.device)
    backend.ops.store_rows(*storage[1], slots, key, value)
    assert torch.equal(storage[1, 0][:, slots], key)
    assert torch.equal(storage[1, 1][:, slots], value)
    storage[1][:, :, slots] = torch.nan
    assert storage.isnan().all()  # nothing was written anywhere else


PATHS = {
    "one": [0],
    "all": list(range(7)),
    "some": [0, 2, 3, 9],
    "far": [0, 5, 11],
    "repeated at the end": [0, 3, 7, 7, 7],
    "of most rows": list(range(0, 192, 3)),
}


@backends("keep_rows", ROWS_OF_CACHES)
@cases(PATHS)
@pytest.mark.parametrize("length", [4, 797], ids=["", "in a ring"])
def test_keep_rows(backend: Backend, case: list[int], length: int) -> None:
    storage = normal(backend, 2, 2, 3, 200, 24)
    expected = storage.clone()
    for to, row in enumerate(case):
        expected[:, :, :, (length + to) % 200] = storage[:, :, :, (length + row) % 200]
    path = torch.tensor(case, device=backend.device)
    backend.ops.keep_rows(storage, one(length, backend), path)
    assert torch.equal(storage, expected)


@backends("append_rows", ROWS_OF_CACHES)
@pytest.mark.parametrize("count", [1, 5, 64, 70])
def test_append_rows(backend: Backend, count: int) -> None:
    source, target = normal(backend, 2, 2, 2, 90, 24), normal(backend, 2, 2, 2, 110, 24, seed=1)
    positions = torch.arange(110, device=backend.device) + 1000
    expected, noted = target.clone(), positions.clone()
    expected[:, :, :, 30 : 30 + count] = source[:, :, :, 11 : 11 + count]
    noted[30 : 30 + count] = torch.arange(11, 11 + count)
    lengths = one(11, backend), one(30, backend)
    backend.ops.append_rows(source, target, lengths, positions, count)
    assert torch.equal(target, expected)
    assert torch.equal(positions, noted)


@dataclass(frozen=True)
class ChunkCase:
    """Chunks of a text of ``tokens``; ``turned`` of 16 frequencies turn a head of 48."""

    chunks: list[int]
    tokens: int
    short: int = 0
    turned: int = 24
    far: int = 0

    @property
    def grid(self) -> Grid:
        return Grid(4, self.short)


CHOSEN = {
    "the newest": ChunkCase([7], 30),
    "some": ChunkCase([0, 3, 7], 30),
    "whole": ChunkCase([1, 2, 7], 32),
    "less than one": ChunkCase([0], 3),
    "all": ChunkCase([0, 1, 2, 3, 4, 5], 21),
    "padding": ChunkCase([0, 7, 8, 9], 30),
    **{f"{short} short": ChunkCase([0, 1, 7, 8], 30, short) for short in (1, 2, 3)},
    "without the short one": ChunkCase([2, 7], 30, 3),
    "padding behind a short one": ChunkCase([0, 7, 8, 9], 29, 1),
    "part of a head turns": ChunkCase([1, 7], 30, turned=5),
    "computed far away": ChunkCase([0, 3, 7], 30, turned=20, far=100_000),
}


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("backend", "case"), crossed("gather_chunks", ROWS_OF_CACHES, CHOSEN, interpreted=2)
)
def test_gather_chunks(backend: Backend, case: ChunkCase) -> None:
    """Half precision rounds once, whatever lies between."""
    inv_freq = 10_000.0 ** -(torch.arange(case.turned, dtype=F64) / 24)
    positions = torch.randperm(40, generator=torch.Generator().manual_seed(2)) + case.far
    store, working = normal(backend, 2, 2, 3, 40, 48), normal(backend, 2, 2, 3, 28, 48)
    behind, filled = working[:, :, :, 4 * len(case.chunks) :].clone(), one(9, backend)
    backend.ops.gather_chunks(
        store, working, torch.tensor(case.chunks, device=backend.device),
        positions.to(backend.device), inv_freq.to(backend.device),
        (one(case.tokens, backend), filled), case.grid,
    )  # fmt: skip
    rows = reference.text_rows(case.chunks, case.tokens, case.grid)
    assert filled.tolist() == [len(rows)]
    keys, values = working[:, :, :, : len(rows)].cpu().unbind(1)
    shift = torch.arange(len(rows)) - positions[rows]
    expected = reference.rope(store.cpu()[:, 0][:, :, rows], shift, inv_freq)
    # The larger of two values that are turned together says how the result is rounded.
    limit = 2 * torch.finfo(backend.dtype).eps + 1e-11
    torch.testing.assert_close(keys.double(), expected, atol=4 * limit, rtol=limit)
    assert torch.equal(values, store.cpu()[:, 1][:, :, rows])
    assert torch.equal(working[:, :, :, 4 * len(case.chunks) :], behind)


# Attention


@dataclass(frozen=True)
class TreeCase:
    """``visible`` [T, R] behind a prefix; ``lse``: largest error of a log-sum-exp, if not usual."""

    prefix: int
    visible: Tensor
    options: dict[str, Any] = field(default_factory=dict)
    spare: int = 37
    words: int | None = None
    only: int | None = None  # the key that takes all the weight
    lse: float = 0.0

    @classmethod
    def of(cls, parents: list[int], prefix: int, **options: Any) -> "TreeCase":
        return cls(prefix, visible_of(parents), {"kv_heads": 1, **options})


FIVE = [0, 0, 1, 1, 0]


def scattered(rows: int, columns: int, share: float, prefix: int, **case: Any) -> TreeCase:
    """A draft's level: new rows among those of all levels before, of which they see some."""
    visible = torch.rand(rows, columns, generator=torch.Generator().manual_seed(columns)) < share
    visible[:, columns - rows :] = torch.eye(rows, dtype=torch.bool)
    return TreeCase(prefix, visible, **case)


ATTENDED = {
    **{f"{n} behind {p}": TreeCase.of(TREES[n], p, ratio=1) for n, p in product(TREES, (0, 33))},
    **{f"random behind {p}": TreeCase.of(TREES["random"][:9], p) for p in (1, 32, 1000)},
    **{f"comb behind {p}": TreeCase.of(TREES["comb"], p) for p in (1, 31, 32, 63, 64, 65, 1000)},
    **{f"one row, {r} heads a key head": TreeCase.of([0], 50, ratio=r) for r in (1, 3, 4, 7, 8)},
    **{
        f"{r} heads a key head, of {dim}": TreeCase.of(FIVE, 40, kv_heads=2, ratio=r, dim=dim)
        for r, dim in zip(
            (1, 2, 3, 4, 7, 8, 1, 2, 4), (32, 48, 64, 80, 96, 112, 128, 192, 256), strict=True
        )
    },
    **{
        f"{columns} rows, {words} words": scattered(9, columns, 0.04, 37, words=words)
        for columns, words in ((64, 1), (65, 2), (127, 4), (150, 3))
    },
    "half of earlier rows": scattered(4, 12, 0.5, 37),
    "half of earlier rows, no prefix": scattered(4, 12, 0.5, 0),
    "every bit in turn": TreeCase(0, torch.eye(64, dtype=torch.bool).flip(0), {"ratio": 1}),
    "full storage": TreeCase(33, visible_of(FIVE), spare=0),
    "full storage, no prefix": TreeCase(0, visible_of(FIVE), spare=0),
    **{
        f"scores of {largest}, {seed}": TreeCase(
            100,
            visible_of(random_parents(9, seed)),
            {"dim": 64, "largest": largest, "seed": seed},
            lse=3e-4,
        )
        for largest, seed in ((50, 0), (80, 1), (80, 2))
    },
    # In each split and in the tree; the last query sees row 103, the others do without.
    **{
        f"all the weight on {at}": TreeCase(
            100, torch.ones(4, 4, dtype=torch.bool).tril(), {"seed": at}, only=at, lse=1e-3
        )
        for at in (0, 15, 16, 99, 100, 103)
    },
    "equal scores": TreeCase(100, torch.ones(3, 3, dtype=torch.bool), {"largest": 0}),
}


@pytest.mark.every(4)
@pytest.mark.parametrize(("backend", "case"), crossed("tree_attention", EVERY_TYPE, ATTENDED))
def test_tree_attention(backend: Backend, case: TreeCase) -> None:
    dtype, (rows, columns) = backend.dtype, case.visible.shape
    options = {"seed": case.prefix, **case.options}
    inputs = make_inputs(rows, case.prefix + columns, dtype=dtype, **options)
    if case.only is not None:
        inputs.q, inputs.k = inputs.q.abs(), -inputs.k.abs()
        inputs.k[:, case.only] *= -60
    out, lse = attend_to_tree(
        backend.ops, inputs, case.prefix, case.visible,
        spare=case.spare, words=case.words, device=backend.device,
    )  # fmt: skip
    seen = reference.tree_mask(case.prefix, case.visible)
    expected, total = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    # Float32 scores of size 80 are good to 1e-5, and so are weights.
    allowed = max(ERROR[dtype], 2e-5 if dtype == F32 and "largest" in case.options else 0)
    assert (out.dtype, lse.dtype) == (dtype, torch.promote_types(dtype, F32))
    assert error(out, expected) < allowed
    assert_close(out, expected, TOLERANCE[dtype])
    assert (lse.double() - total).abs().max() < max(case.lse, LSE_TOLERANCE[dtype])


@dataclass(frozen=True)
class PrefillCase:
    rows: int
    past: int
    window: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


READ = {
    **{
        f"{rows} behind {past}": PrefillCase(rows, past)
        for rows, past in product((1, 2, 33, 130), (0, 1, 31, 32, 33, 1000))
    },
    **{
        f"{ratio} heads a key head, of {dim}, {window}": PrefillCase(
            70, 65, window, {"ratio": ratio, "dim": dim, "largest": largest}
        )
        for window in (None, 30)
        for ratio, dim, largest in ((1, 32, None), (2, 64, 50), (4, 80, None), (8, 128, 50))
    },
    **{
        f"window of {window} behind {past}": PrefillCase(50, past, window)
        for window, past in product((1, 2, 49, 50, 51, 1000), (0, 1, 40))
    },
    "several blocks of a window": PrefillCase(600, 20, 30),
    "blocks as large as the window": PrefillCase(300, 150, 128),
}


@pytest.mark.every(3)
@pytest.mark.parametrize(("backend", "case"), crossed("prefill_attention", EVERY_TYPE, READ))
def test_prefill_attention(backend: Backend, case: PrefillCase) -> None:
    dtype, device = backend.dtype, backend.device
    inputs = make_inputs(case.rows, case.past + case.rows, dtype=dtype, **case.options)
    keys, values = (stored(x, x.shape[1] + 9, device) for x in (inputs.k, inputs.v))
    out = backend.ops.prefill_attention(
        inputs.q.to(device), keys, values, case.past, case.window, inputs.scaling
    )
    seen = reference.causal_mask(case.rows, case.past, case.window)
    expected, _ = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert out.dtype == dtype
    assert_close(out.cpu(), expected, TOLERANCE[dtype])


@dataclass(frozen=True)
class OptionCase:
    """Attention with a window, a cap of scores, or sinks. ``spare``: rows of a ring beyond those
    that it needs; None: no ring."""

    past: int
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    spare: int | None = None
    ratio: int = 2

    def options(self, heads: int) -> dict[str, Any]:
        sinks = torch.linspace(-2, 3, heads) if self.sinks else None
        return {"softcap": self.softcap, "sinks": sinks}

    def ring(self, rows: int) -> int | None:
        """The rows of a ring for so many new ones, if there is one."""
        if self.spare is None:
            return None
        assert self.window is not None
        return self.window + rows + self.spare


OPTIONS = {
    "a cap": OptionCase(40, softcap=2.0),
    "sinks": OptionCase(40, sinks=True),
    "sinks and nothing before": OptionCase(0, sinks=True),
    "all, with more heads": OptionCase(40, 9, softcap=1.5, sinks=True, ratio=3),
    **{
        f"window of {window} behind {past}, ring {spare}": OptionCase(past, window, spare=spare)
        for window, past, spare in (
            (1, 5, None), (3, 40, 0), (20, 9, None), (20, 40, 0), (20, 40, 5), (100, 40, None)
        )
    },
    "a ring with all": OptionCase(50, 12, softcap=1.5, sinks=True, spare=3),
}  # fmt: skip
TRITON_OPTIONS = [F16] if DEVICE.type == "cpu" else [F32, F16, BF16]
OPTION_TYPES = EVERY_TYPE[0], TRITON_OPTIONS


def on(device: torch.device, options: dict[str, Any]) -> dict[str, Any]:
    return {key: x.to(device) if isinstance(x, Tensor) else x for key, x in options.items()}


@pytest.mark.every(3)
@backends("tree_attention", OPTION_TYPES)
@cases(OPTIONS)
def test_tree_attention_with_windows_caps_and_sinks(backend: Backend, case: OptionCase) -> None:
    """Of a tree that branches, and whose first rows came with a pass before."""
    parents = [0, 0, 0, 1, 1, 2, 3, 6, 7, 8]
    visible = visible_of(parents)[2:]
    rows, columns = visible.shape
    inputs = make_inputs(rows, case.past + columns, dtype=backend.dtype, ratio=case.ratio)
    options = case.options(len(inputs.q))
    out, lse = attend_to_tree(
        backend.ops, inputs, case.past, visible, device=backend.device, ring=case.ring(columns),
        window=case.window, **on(backend.device, options),
    )  # fmt: skip
    window = case.window or case.past + columns
    seen = reference.windowed(case.past, visible, window)
    expected, total = reference.attention(
        inputs.q, inputs.k, inputs.v, seen, inputs.scaling, **options
    )
    assert out.dtype == backend.dtype
    assert_close(out, expected, TOLERANCE[backend.dtype])
    assert (lse.double() - total).abs().max() < LSE_TOLERANCE[backend.dtype]


@backends("prefill_attention", (EVERY_TYPE[0], []))
@pytest.mark.parametrize("rows", [1, 30, 140])
@cases(OPTIONS)
def test_prefill_with_windows_caps_and_sinks(backend: Backend, case: OptionCase, rows: int) -> None:
    check_prefill(backend, case, rows)


@pytest.mark.slow
@backends("prefill_attention", ([], TRITON_OPTIONS))
@pytest.mark.parametrize("rows", [1, 30, 140])
@cases(OPTIONS)
def test_prefill_by_triton(backend: Backend, case: OptionCase, rows: int) -> None:
    check_prefill(backend, case, rows)


def check_prefill(backend: Backend, case: OptionCase, rows: int) -> None:
    inputs = make_inputs(rows, case.past + rows, dtype=backend.dtype, ratio=case.ratio)
    capacity = case.ring(rows) or case.past + rows + 7
    keys, values = (in_ring(x, capacity, backend.device) for x in (inputs.k, inputs.v))
    options = case.options(len(inputs.q))
    out = backend.ops.prefill_attention(
        inputs.q.to(backend.device), keys, values, case.past, case.window, inputs.scaling,
        **on(backend.device, options),
    )  # fmt: skip
    seen = reference.causal_mask(rows, case.past, case.window)
    expected, _ = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling, **options)
    assert_close(out.cpu(), expected, TOLERANCE[backend.dtype])


@backends("merge_attention", EVERY_TYPE)
@pytest.mark.parametrize(("rows", "dim"), [(1, 64), (16, 80), (37, 64)])
def test_merge_attention(backend: Backend, rows: int, dim: int) -> None:
    """One output lies in memory as layers write it; lses far apart leave one side only."""
    outs = normal(backend, 2, 1, rows, 3, dim).transpose(2, 3)
    wide = torch.promote_types(backend.dtype, F32)
    lses = 40 * normal(backend, 2, 1, 3, rows).to(wide)
    lses[:, 0, 0, 0] = torch.tensor([300.0, -300.0])
    parts = outs[0], lses[0], outs[1].contiguous(), lses[1]
    out, lse = backend.ops.merge_attention(*parts)
    expected, total = reference.merged(*(part.cpu() for part in parts))
    assert (out.dtype, lse.dtype) == (backend.dtype, wide)
    tolerance = {F64: 1e-12, F32: 2e-6}.get(backend.dtype, 1.01 * torch.finfo(backend.dtype).eps)
    torch.testing.assert_close(out.cpu().double(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.cpu(), total.to(wide))


@dataclass(frozen=True)
class ScoreCase:
    length: int
    grid: Grid
    options: dict[str, Any] = field(default_factory=dict)
    spare: int = 70
    softcap: float | None = None
    sinks: bool = False


SCORED = {
    **{
        f"{length} tokens, chunks of {chunk}, {short} short": ScoreCase(length, Grid(chunk, short))
        for length, chunk, short in product(
            (1, 31, 64, 129), (1, 7, 16, 32, 50, 64, 100, 500), (0, 1, 6)
        )
        if short < chunk
        and (short != 1 or chunk in (7, 64))
        and (length != 64 or chunk in (16, 64))
        and (length != 1 or chunk in (1, 7, 50, 500))
    },
    **{
        f"{ratio} heads a key head, of {dim}": ScoreCase(85, Grid(16), {"ratio": ratio, "dim": dim})
        for ratio, dim in ((1, 32), (3, 80), (7, 64), (8, 128), (20, 32))
    },
    **{f"{length} tokens, a first of 1": ScoreCase(length, Grid(32, 31)) for length in (1, 32, 33)},
    "large scores": ScoreCase(90, Grid(16), {"dim": 64, "largest": 60}, spare=0),
    "a cap": ScoreCase(90, Grid(16), {"largest": 60}, softcap=7.0),
    "sinks": ScoreCase(50, Grid(16), sinks=True),
}


@pytest.mark.every(3)
@pytest.mark.parametrize(("backend", "case"), crossed("chunk_scores", EVERY_TYPE, SCORED))
def test_chunk_scores(backend: Backend, case: ScoreCase) -> None:
    """The query is one of the rows of [Hq, T, D], and its lse one column, both strided."""
    options = {"kv_heads": 1, "seed": case.length, **case.options}
    inputs = make_inputs(2, case.length, dtype=backend.dtype, **options).on(backend.device)
    keys = stored(inputs.k, case.length + case.spare, backend.device)  # NaN beyond the text
    everything = torch.ones(2, case.length, dtype=torch.bool)
    sinks = torch.linspace(-2, 3, len(inputs.q)).to(backend.device) if case.sinks else None
    how = case.softcap, sinks
    _, lse = reference.attention(inputs.q, inputs.k, inputs.v, everything, inputs.scaling, *how)
    lse = lse.to(torch.promote_types(backend.dtype, F32))
    length, query = one(case.length, backend), inputs.q[:, 1]
    scores = backend.ops.chunk_scores(
        query, lse[:, 1], keys, length, inputs.scaling, case.grid, case.softcap
    ).cpu()
    row = reference.softmax_row(query, inputs.k, inputs.scaling, *how).mean(0)
    expected = torch.tensor(reference.chunk_means(row, case.grid), dtype=F64)
    count = len(expected)
    assert len(scores) == -(-(case.length + case.spare + case.grid.short) // case.grid.chunk)
    assert error(scores[:count], expected) < (1e-10 if backend.dtype == F64 else 1e-4)
    assert scores[:count].tolist() == pytest.approx(expected.tolist(), rel=1e-3)
    assert scores[count:].tolist() == [-torch.inf] * (len(scores) - count)


PASSAGE_CASES = {
    "one token": (1, 90, range(3, 67), {}),
    "the last passage is short": (5, 200, range(7, 137), {}),
    "fewer than four tokens": (3, 70, range(66), {"ratio": 3, "dim": 80}),
    "large scores": (4, 140, range(1, 129), {"dim": 64, "largest": 60}),
}


@backends("passage_attention", EVERY_TYPE)
@cases(PASSAGE_CASES)
def test_passage_attention(backend: Backend, case: tuple[int, int, range, Any]) -> None:
    """Query t sees the text up to its own place, of whose keys some lie behind the document."""
    count, seen, rows, options = case
    text = seen + count - 1
    given = {"kv_heads": 2, "seed": seen, **options}
    inputs = make_inputs(count, text, dtype=backend.dtype, **given).on(backend.device)
    queries, keys = inputs.q, stored(inputs.k, text + 9, backend.device)  # NaN beyond the text
    found = backend.ops.passage_attention(queries, keys, seen, rows, inputs.scaling)
    expected = torch.zeros(count, -(-len(rows) // PASSAGE), dtype=F64)
    for token in range(count):
        row = reference.softmax_row(
            queries[:, token].cpu(), inputs.k[:, : seen + token].cpu(), inputs.scaling
        )
        document = row[:, rows.start : rows.stop]
        for number, part in enumerate(document.split(PASSAGE, dim=1)):
            best = part.sort(dim=1, descending=True).values[:, :4]
            expected[token, number] = best.sum(1).mean()
    assert found.dtype == torch.promote_types(backend.dtype, F32)
    assert error(found.cpu(), expected) < (1e-10 if backend.dtype == F64 else 1e-4)


@backends("best_chunks", WHOLE_NUMBERS)
@pytest.mark.parametrize("chunks", [1, 2, 63, 64, 65, 264, 2049])
def test_best_chunks(backend: Backend, chunks: int) -> None:
    """Where nothing ties, however much of the cache is text, and whichever chunk is kept."""
    drawn = torch.rand(chunks, generator=torch.Generator().manual_seed(chunks)) ** 8
    for k, share in ((1, 0.6), (8, 0.01), (8, 1.0), (64, 0.6)):
        real = max(1, int(share * chunks))
        scores = drawn.clone()
        scores[real:] = -torch.inf
        tokens = 32 * real - 5 - min(3, real - 1)
        for kept in {None, 0, real // 2, real - 1}:
            grid, given = Grid(32, 5, kept), scores.to(backend.device)
            ids = backend.ops.best_chunks(given, one(tokens, backend), grid, k)
            assert ids.dtype == torch.int64
            assert ids.tolist() == reference.best_chunks(scores.tolist(), tokens, grid, k)
            assert torch.equal(given.cpu(), scores)  # as they were


# Token trees


@dataclass(frozen=True)
class LevelCase:
    """``steep``: what is added to the logits of some ids; ``real``: parents that are no padding."""

    parents: int
    vocabulary: int
    nodes: int
    allowed: float = 1.0
    real: int | None = None
    best: range = range(0)
    best_of: int | None = None


LEVELS = {
    **{f"{p} parents, {n} nodes": LevelCase(p, 1000, n) for p, n in ((1, 1), (2, 50), (7, 63))},
    **{f"{p} parents, few nodes": LevelCase(p, 1000, 2) for p in (2, 7)},
    "a full level": LevelCase(63, 100, 63),
    **{
        f"vocabulary of {v}": LevelCase(1 + v % 3, v, 63)
        for v in (1, 2, 31, 32, 33, 63, 64, 65, 300, 2047, 2048, 2049, 32_001)
    },
    **{f"{a} of the ids allowed": LevelCase(2, 4500, 63, allowed=a) for a in (0.0002, 0.01, 0.5)},
    **{f"{real} of 5 parents are real": LevelCase(5, 700, 63, real=real) for real in (0, 1, 3)},
    "the best at the end": LevelCase(1, 16_417, 40, best=range(16_397, 16_417)),
    "all in one group": LevelCase(4, 700, 30, best=range(320, 352), best_of=2),
}


@pytest.mark.every(3)
@pytest.mark.parametrize(("backend", "case"), crossed("best_continuations", LOGITS, LEVELS))
def test_best_continuations(backend: Backend, case: LevelCase) -> None:
    logits, forbidden, weights = draw_logits(
        case.parents, case.vocabulary, backend.dtype, backend.device
    )
    chance = torch.rand(case.vocabulary, generator=torch.Generator().manual_seed(1))
    forbidden |= (chance >= case.allowed).to(backend.device)
    logits[:, forbidden] += 100.0  # they take no probability
    if case.real is not None:
        weights[case.real :] = -torch.inf
        logits[case.real :] += 50
    logits[slice(None) if case.best_of is None else case.best_of, list(case.best)] += 40
    if case.best_of is not None:
        weights[:] = -60
        weights[case.best_of] = -1
    level = assert_level(backend.ops, logits, forbidden, weights, case.nodes)
    is_node = level.weights > -torch.inf
    possible = int((~forbidden).sum()) * (case.parents if case.real is None else case.real)
    assert is_node.sum() == min(case.nodes, possible)
    if case.best:
        best = set(level.tokens[: len(case.best)].tolist())
        assert best == set(case.best) or best < set(case.best)
    if case.best_of is not None:
        assert level.parents.tolist() == [case.best_of] * case.nodes


@backends("level_inputs", WHOLE_NUMBERS)
@pytest.mark.parametrize("more", [0, 7])
@pytest.mark.parametrize(("nodes", "above", "words"), [(1, None, 1), (9, 4, 1), (33, 64, 3)])
def test_level_inputs(
    backend: Backend, nodes: int, above: int | None, words: int, more: int
) -> None:
    """Also of ``more`` rows than nodes, which see only themselves."""
    generator = torch.Generator().manual_seed(nodes)
    own = torch.randint(-(2**63), 2**63 - 1, (nodes + more, words), generator=generator)
    parents = torch.randint(0, above or 1, (nodes,), generator=generator)
    sets = None
    if above is not None:
        sets = torch.randint(-(2**63), 2**63 - 1, (above, words), generator=generator)
    visible, positions, slots = backend.ops.level_inputs(
        parents.to(backend.device), None if sets is None else sets.to(backend.device),
        own.to(backend.device), length=one(120, backend), after=7,
        position=one(5000, backend), ahead=3,
    )  # fmt: skip
    expected = [
        [
            bits | (0 if sets is None or i >= nodes else int(sets[parents[i], w]))
            for w, bits in enumerate(row)
        ]
        for i, row in enumerate(own.tolist())
    ]
    assert visible.tolist() == expected
    assert positions.tolist() == [5003] * (nodes + more)
    assert slots.tolist() == list(range(127, 127 + nodes + more))
    assert visible.data_ptr() != own.data_ptr()


GROWN = {
    **{
        f"{nodes} nodes, {depth} levels, {seed}": (nodes, depth, [0.0, -0.1, -0.5, -3.0], seed)
        for seed, (nodes, depth) in enumerate(
            ((1, 1), (1, 5), (7, 1), (8, 3), (50, 10), (63, 1), (63, 6), (63, 32), (20, 20))
        )
    },
    "nothing ties": (63, 10, [-(i / 50) for i in range(50)], 3),
    "all tie": (40, 5, [0.0], 1),
    "padding": (20, 4, [-0.5, -torch.inf, -torch.inf], 2),
    "nothing but padding": (9, 2, [-torch.inf], 2),
}


@backends("best_tree", WHOLE_NUMBERS)
@cases(GROWN)
def test_best_tree(backend: Backend, case: tuple[int, int, list[float], int]) -> None:
    levels = random_levels(*case, device=backend.device)
    assert_best_tree(backend, levels)


@backends("best_tree", WHOLE_NUMBERS)
def test_best_tree_of_a_chain_of_63(backend: Backend) -> None:
    numbers = torch.arange(63, device=backend.device)
    alone = torch.full((63,), -torch.inf, device=backend.device).index_fill(0, numbers[:1], 0.0)
    level = Level(numbers, torch.zeros_like(numbers), alone)
    assert assert_best_tree(backend, [level] * 63).depths.tolist() == [*range(64)]


# A tree's nodes, levels, the rows behind it, tokens of the text, and how many different ones.
COPIED = {
    "words that repeat": (7, 3, 5, 90, 3),
    "all words are one": (4, 2, 12, 30, 1),
    "nothing repeats": (5, 2, 4, 40, 10_000),
    "the text is a token": (3, 2, 4, 1, 1),
    "no room is left": (40, 3, 23, 200, 4),
    "a text of more than a block": (6, 4, 9, 20_000, 40),
}


@backends("with_copied", WHOLE_NUMBERS)
@cases(COPIED)
def test_with_copied(backend: Backend, case: tuple[int, int, int, int, int]) -> None:
    nodes, depth, count, size, kinds = case
    levels = random_levels(nodes, depth, [0.0, -0.4, -1.1], 1, device=backend.device)
    levels = [replace(level, tokens=level.tokens % kinds) for level in levels]
    random = torch.Generator().manual_seed(size)
    words = torch.randint(kinds, (size,), generator=random).tolist()
    tree = backend.ops.best_tree(one(words[-1], backend), levels)
    text = torch.tensor([-1] * 8 + words + [3] * 70, device=backend.device)
    found = backend.ops.with_copied(tree, text, one(size, backend), count)
    tokens, parents, valid = (each.tolist() for each in (tree.tokens, tree.parents, tree.valid))
    depths = tree.depths.tolist()
    leaf = max(range(len(tokens)), key=lambda row: (depths[row] * valid[row], -row))
    path, row = [], leaf
    while row:
        path, row = [tokens[row], *path], parents[row]
    end, best = words + path, (1, False, 0)
    for place in range(1, size):
        agreed = 0
        while agreed < min(8, place) and words[place - 1 - agreed] == end[-1 - agreed]:
            agreed += 1
        if agreed > 1:
            best = max(best, (agreed, place + count <= size, place))
    copied = words[best[2] : best[2] + count] if best[0] > 1 else []
    padding = count - len(copied)
    rows = [*range(len(tokens), len(tokens) + count)]
    assert found.levels == depth + count
    assert found.tokens.tolist() == [*tokens, *copied, *[0] * padding]
    assert found.parents.tolist() == [*parents, *[leaf, *rows][: len(copied)], *[0] * padding]
    below = [len(path) + 1 + step for step in range(len(copied))]
    assert found.depths.tolist() == [*depths, *below, *[1] * padding]
    assert found.valid.tolist() == [*valid, *[True] * len(copied), *[False] * padding]
    seen = visible_of(found.parents.tolist()).tolist()
    sets = [sum(1 << j for j, sees in enumerate(row) if sees) for row in seen]
    assert [value % 2**64 for value in found.ancestors().tolist()] == sets


def assert_best_tree(backend: Backend, levels: list[Level]) -> TokenTree:
    tree = backend.ops.best_tree(one(7, backend), levels)
    expected = reference.best_tree(7, levels)
    for name, values in expected.items():
        assert getattr(tree, name).tolist() == values, name
    assert tree.levels == len(levels)
    sets = [value % 2**64 for value in tree.ancestors().tolist()]
    seen = visible_of(expected["parents"]).tolist()
    assert sets == [sum(1 << j for j, sees in enumerate(row) if sees) for row in seen]
    return tree


@backends("most_probable", LOGITS)
@pytest.mark.parametrize(
    ("rows", "vocabulary"),
    [(1, 5000), (2, 2047), (3, 2048), (11, 2049), (64, 300), (3, 1), (1, 2), (2, 33), (2, 32_000)],
)
def test_most_probable(backend: Backend, rows: int, vocabulary: int) -> None:
    logits, _, _ = draw_logits(rows, vocabulary, backend.dtype, backend.device, seed=rows)
    chance = torch.rand(vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    forbidden, before = (chance < 0.2).to(backend.device), logits.clone()
    best = backend.ops.most_probable(logits, forbidden)
    assert best.dtype == torch.int64
    assert torch.equal(best, reference.most_probable(logits, forbidden))
    assert torch.equal(logits, before)


PENALTIES = {
    "repetition": Penalties(repetition=1.3),
    "a repetition that is wanted": Penalties(repetition=0.8),
    "presence": Penalties(presence=0.7),
    "frequency": Penalties(frequency=-0.3),
    "pairs": Penalties(ngram=2),
    "single tokens": Penalties(ngram=1),
    "sequences of 9": Penalties(ngram=9),
    "all": Penalties(repetition=1.1, presence=0.2, frequency=0.1, ngram=3),
}
# Sizes of the vocabulary, the prompt and the output.
TEXTS = {
    f"{each}": each
    for each in (
        (2, 1, 1), (3, 7, 0), (6, 40, 1), (6, 0, 25), (300, 2500, 30), (2049, 60, 40), (4100, 3, 2)
    )
}  # fmt: skip


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("backend", "case", "text"), crossed("penalize", LOGITS, PENALTIES, TEXTS, interpreted=9)
)
def test_penalize(backend: Backend, case: Penalties, text: tuple[int, int, int]) -> None:
    vocabulary, prompt, output = text
    source = random.Random(vocabulary)
    words = source.sample(range(vocabulary), min(vocabulary, 5))  # which come again and again
    written = [source.choice(words) for _ in range(prompt + output)]
    read, written = written[:prompt], written[prompt:]
    for tree in (root_only(torch.tensor([0])), *(random_tree(source, len(words)) for _ in "12")):
        tokens = torch.tensor(words)[tree.tokens]
        tokens[0] = (read + written)[-1]
        tree = on_device(replace(tree, tokens=tokens), backend)
        logits, _, _ = draw_logits(len(tokens), vocabulary, backend.dtype, backend.device)
        before = text_so_far(backend, vocabulary, read, written)
        expected = reference.penalized(logits, tree, read, written, case)
        found = backend.ops.penalize(logits, tree, before, case)
        assert found.dtype == F32
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)


def text_so_far(
    backend: Backend, vocabulary: int, prompt: list[int], output: list[int]
) -> TextSoFar:
    """A text that is written as steps write it, behind what another text has left."""
    text = TextSoFar.on(backend.device, vocabulary, len(prompt) + len(output) + 70)
    for tensor in vars(text).values():
        tensor.fill_(1)
    text.begin(torch.tensor(prompt, dtype=torch.int64, device=backend.device))
    while output:
        count = 1 + len(output) % 4
        tokens = (output[:count] + 3 * output[count - 1 : count])[:4]
        padded = torch.tensor(tokens, device=backend.device)
        given = min(count, len(output))
        text.append(Path(torch.zeros_like(padded), padded, one(given, backend)[0]))
        output = output[count:]
    return text


def on_device(tree: TokenTree, backend: Backend) -> TokenTree:
    """The tree on the device of a backend."""
    moved = {
        name: value.to(backend.device) for name, value in vars(tree).items()
        if isinstance(value, Tensor)
    }  # fmt: skip
    return replace(tree, **moved)


@backends("most_probable", LOGITS)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("vocabulary", [300, 5000])
def test_no_choice_from_logits_that_are_not_finite(
    backend: Backend, vocabulary: int, wrong: float
) -> None:
    logits, _, _ = draw_logits(5, vocabulary, backend.dtype, backend.device, seed=1)
    forbidden = torch.zeros(vocabulary, dtype=torch.bool, device=backend.device)
    forbidden[7] = True
    sound = backend.ops.most_probable(logits, forbidden).tolist()
    logits[1, vocabulary - 3] = wrong
    logits[2, 7] = wrong  # it is forbidden, so it says nothing
    logits[3] = wrong
    expected = [*sound[:3], -1, sound[4]]
    if wrong != -math.inf:  # which one id may have
        expected[1] = -1
    assert backend.ops.most_probable(logits, forbidden).tolist() == expected


def chain(nodes: int, accepted: int, spare: int) -> tuple[TokenTree, list[int]]:
    rows = list(range(nodes + 1))
    tree = make_tree(rows, [max(row - 1, 0) for row in rows], None, spare)
    return tree, [row + 1 if row < accepted else 99 for row in rows]


def drawn(seed: int) -> tuple[TokenTree, list[int]]:
    source, vocabulary = random.Random(seed), 1 + seed % 5
    tree = random_tree(source, vocabulary)
    return tree, [source.randrange(vocabulary) for _ in range(tree.nodes + 1)]


FOLLOWED = {
    **{
        f"chain of {nodes}, {part} accepted": chain(nodes, until, nodes % 2)
        for nodes in (1, 2, 10, 62, 63)
        for part, until in (("none", 0), ("half", nodes // 2), ("all", nodes))
    },
    **{
        f"star, {wanted} chosen": (make_tree(list(range(64)), [0] * 64), [wanted] + [7] * 63)
        for wanted in (0, 1, 40, 63, 99)
    },
    "padding": (make_tree([5, 3, 0, 0], [0] * 4, [True, True, False, False]), [0] * 4),
    "below a wrong parent": (make_tree([9, 1, 2, 3, 3], [0, 0, 0, 1, 2]), [2, 3, 4, 8, 8]),
    "bare root": (root_only(torch.tensor([9])), [4]),
    **{f"random {seed}": drawn(seed) for seed in range(20)},
}


@backends("accept", WHOLE_NUMBERS)
@cases(FOLLOWED)
def test_accept(backend: Backend, case: tuple[TokenTree, list[int]]) -> None:
    tree, choices = case
    columns = (tree.tokens, tree.parents, tree.depths, tree.valid)
    there = TokenTree(*(column.to(backend.device) for column in columns), tree.levels)
    path = backend.ops.accept(there, torch.tensor(choices, device=backend.device))
    rows = reference.walk(tree, choices)
    padded = rows + [rows[-1]] * (tree.levels + 1 - len(rows))
    assert path.count == len(rows)
    assert path.rows.tolist() == padded
    assert path.tokens.tolist() == [choices[row] for row in padded]
    assert (path.last.tolist(), path.last_row.tolist()) == ([choices[rows[-1]]], rows[-1:])


# Decoder layers

HIDDEN, INNER, CAPACITY = 48, 80, 70
LAYER_ERROR = {F64: 1e-12, F32: 1e-5, F16: 4e-3, BF16: 3e-2}


@dataclass(frozen=True)
class LayerCase:
    heads: int = 4
    kv_heads: int = 2
    dim: int = 32
    biased: bool = False
    normed: bool = False
    inputs: int | None = None  # of a layer that does not norm them


FAMILIES = {
    "llama": LayerCase(heads=2, kv_heads=1),
    "qwen2": LayerCase(heads=3, kv_heads=3, dim=16, biased=True),
    "qwen3": LayerCase(heads=4, kv_heads=1, dim=48, normed=True),
    "large heads": LayerCase(heads=3, kv_heads=2, dim=128),
    "eagle": LayerCase(inputs=HIDDEN),
    "eagle3": LayerCase(kv_heads=1, biased=True, inputs=2 * HIDDEN),
}
LAYERS = {
    f"{family}, {rows} rows": (family, rows)
    for family, rows in (
        *(("llama", rows) for rows in (1, 3, 64, 65)),
        *(("qwen2", 1), ("qwen2", 5), ("qwen3", 1), ("qwen3", 5), ("large heads", 5)),
        *(("eagle", 5), ("eagle3", 1), ("eagle3", 10), ("eagle3", 65)),
    )
}


def layer_weights(backend: Backend, case: LayerCase) -> LayerWeights:
    def weight(*sizes: int, seed: int = 0) -> Tensor:
        return 1 + 0.3 * normal(backend, *sizes, seed=seed)

    def linear_map(rows: int, columns: int) -> LinearMap:
        bias = normal(backend, rows) if case.biased else None
        return LinearMap(normal(backend, rows, columns) / columns**0.5, bias)

    columns = case.heads * case.dim
    norm = NormSpec(eps=1e-3)
    spec = LayerSpec(
        attention=AttentionSpec(
            query_heads=case.heads, kv_heads=case.kv_heads, head_dim=case.dim, scaling=1.0,
            rope=None, head_norm=HeadNormSpec(eps=1e-3) if case.normed else None,
        ),
        mlp=MlpSpec(inner=INNER),
        input_norm=None if case.inputs else norm,
        output_norm=norm,
    )  # fmt: skip
    return LayerWeights(
        spec=spec,
        input_norm=None if case.inputs else weight(HIDDEN),
        qkv=linear_map(columns + 2 * case.kv_heads * case.dim, case.inputs or HIDDEN),
        query_norm=weight(case.dim) if case.normed else None,
        key_norm=weight(case.dim, seed=1) if case.normed else None,
        out=linear_map(HIDDEN, columns),
        output_norm=weight(HIDDEN, seed=1),
        gate_up=linear_map(2 * INNER, HIDDEN),
        down=linear_map(HIDDEN, INNER),
    )


def in_float64(weights: Any) -> Any:
    """The same weights, wherever they stand in tuples and records."""
    if isinstance(weights, Tensor):
        return weights.double().cpu()
    if isinstance(weights, tuple):
        return tuple(map(in_float64, weights))
    if isinstance(weights, LinearMap | LayerWeights | HeadNorms):
        return type(weights)(**{name: in_float64(each) for name, each in vars(weights).items()})
    return weights


@pytest.mark.every(3)
@pytest.mark.parametrize(("backend", "layer"), crossed("layer_kernels", EVERY_TYPE, LAYERS))
def test_layer_kernels(backend: Backend, layer: tuple[str, int]) -> None:
    """Torch in float64 is held against transformers' layers in ``torch/test_layer.py``."""
    family, rows = layer
    case = FAMILIES[family]
    weights = layer_weights(backend, case)
    kernels, exact = backend.ops.layer_kernels(weights), TorchLayer(in_float64(weights))
    x = normal(backend, rows, case.inputs or HIDDEN)
    angles = torch.arange(rows)[:, None] * 31 * 1e4 ** -torch.linspace(0, 1, case.dim // 2)
    cos, sin = (part.repeat(1, 2).to(x) for part in (angles.cos(), angles.sin()))
    slots = torch.randperm(CAPACITY, generator=torch.Generator().manual_seed(1))[:rows]
    storage = torch.full((2, case.kv_heads, CAPACITY, case.dim), torch.nan).to(x)
    slots, expected = slots.to(x.device), in_float64(storage)
    q = kernels.before_attention(x, cos, sin, slots, *storage)
    given = (part.double().cpu() for part in (x, cos, sin))
    exact_q = exact.before_attention(*given, slots.cpu(), *expected)
    limit = LAYER_ERROR[backend.dtype]
    assert q.shape == (case.heads, rows, case.dim)
    assert error(q.cpu(), exact_q) < limit
    assert error(storage[:, :, slots].cpu(), expected[:, :, slots.cpu()]) < limit
    storage[:, :, slots] = torch.nan
    assert storage.isnan().all()  # nothing was written anywhere else

    attended = normal(backend, rows, case.heads * case.dim)
    residual = normal(backend, rows, HIDDEN, seed=2)
    exact_out = exact.after_attention(in_float64(attended), in_float64(residual))
    out = kernels.after_attention(attended, residual)
    assert (out.dtype, out.shape) == (backend.dtype, (rows, HIDDEN))
    assert error(out.cpu(), exact_out) < limit


@backends("product", EVERY_TYPE)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "columns", "inputs"), [(1, 17, 200), (2, 48, 64), (65, 80, 96)])
def test_product(backend: Backend, rows: int, columns: int, inputs: int, biased: bool) -> None:
    x, weight = normal(backend, rows, inputs), normal(backend, columns, inputs)
    weights = LinearMap(weight, normal(backend, columns) if biased else None)
    out = backend.ops.product(weights)(x)
    exact = linear(in_float64(x), *vars(in_float64(weights)).values())
    assert out.dtype == backend.dtype
    assert error(out.cpu(), exact) < {F64: 1e-14, F32: 1e-6}.get(backend.dtype, 4e-3)


@pytest.mark.every(3)
@backends("head_input", EVERY_TYPE)
@pytest.mark.parametrize("norms", ["none", "both", "residual"])
@pytest.mark.parametrize(("rows", "states"), [(1, None), (5, None), (1, 7), (10, 4), (64, 64)])
def test_head_input(backend: Backend, rows: int, states: int | None, norms: str) -> None:
    """Rows of other states than their own, or of their own."""
    generator = torch.Generator().manual_seed(rows)
    table, given = normal(backend, 30, 96), normal(backend, states or rows, 96, seed=1)
    # Ids may lie anywhere in memory, and repeat.
    tokens = torch.randint(0, 30, (rows + 1,), generator=generator).to(backend.device)[1:]
    parents = None
    if states is not None:
        parents = torch.randint(0, states, (rows,), generator=generator).to(backend.device)
    weights = [1 + normal(backend, 96, seed=seed) / 3 for seed in (2, 3)]
    record = None
    if norms != "none":
        record = HeadNorms(
            embedding=weights[0], state=weights[1], eps=1e-3, residual=norms == "residual"
        )
    x, residual = backend.ops.head_input(table, record)(tokens, given, parents)
    wide = [in_float64(table)[tokens.cpu()], in_float64(given)]
    wide[1] = wide[1] if parents is None else wide[1][parents.cpu()]
    normed = [
        each * torch.rsqrt(each.pow(2).mean(-1, keepdim=True) + 1e-3) * in_float64(weight)
        for each, weight in zip(wide, weights, strict=True)
    ]
    exact = torch.cat(wide if record is None else normed, -1)
    limit = LAYER_ERROR[backend.dtype]
    assert x.dtype == residual.dtype == backend.dtype
    assert x.is_contiguous()
    assert residual.is_contiguous()
    assert error(x.cpu(), exact) < limit
    assert error(residual.cpu(), normed[1] if norms == "residual" else wide[1]) < limit


@backends("norm", EVERY_TYPE)
@pytest.mark.parametrize("rows", [1, 3, 64])
def test_rms_norm(backend: Backend, rows: int) -> None:
    x, weight = normal(backend, rows, 192), 1 + normal(backend, 192) / 3
    out = backend.ops.norm(NormSpec(eps=1e-3), weight, None, backend.dtype)(x)
    wide = in_float64(x)
    exact = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-3) * in_float64(weight)
    assert out.dtype == backend.dtype
    assert error(out.cpu(), exact) < LAYER_ERROR[backend.dtype]


@backends("rotary_angles", EVERY_TYPE)
def test_rotary_angles(backend: Backend) -> None:
    """The angles themselves are float32, as in models."""
    positions = torch.tensor([0, 1, 999, 123_456], device=backend.device)
    inv_freq = torch.tensor([1.0, 0.3, 0.01], device=backend.device)
    exact = (positions[:, None].float() * inv_freq).double().repeat(1, 2).cpu()
    found = backend.ops.rotary_angles(positions, inv_freq, 1.5, backend.dtype)
    for part, expected in zip(found, (1.5 * exact.cos(), 1.5 * exact.sin()), strict=True):
        assert part.dtype == backend.dtype
        assert error(part.cpu(), expected) < max(1e-6, torch.finfo(backend.dtype).eps)
