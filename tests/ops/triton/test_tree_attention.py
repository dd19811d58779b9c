"""The Triton kernels' launches against float64: on a CUDA device, or in Triton's interpreter.

``test_ops.py`` has them as they are planned; here are other launches, long texts on a device, and
storage of every kind.
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from specx.ops.chunks import Grid
from specx.ops.hopper import tree_attention as hopper_attention
from specx.ops.torch.scores import attention_row
from specx.ops.triton import tree_attention as triton_attention
from specx.ops.triton.backend import TritonOps
from specx.ops.triton.tree_attention import Launch, chunk_scores, plan
from specx.ops.triton.tree_inputs import TreeInputs
from tests.ops import reference
from tests.ops.examples import (
    ERROR,
    TREES,
    Inputs,
    attend_to_tree,
    error,
    make_inputs,
    random_parents,
    sets_of,
    stored,
)
from tests.ops.reference import tree_mask, visible_of
from tests.pairwise import every_other

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
needs_cuda = pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
LSE_TOLERANCE = 1e-4

# Multiprocessors, and bytes of shared memory of a program.
H200 = 132, 232_448
L4 = 58, 101_376

SMALL = Launch(splits=3, block_rows=16, block_columns=16, warps=4, stages=2)
WIDE = Launch(splits=2, block_rows=64, block_columns=64, warps=4, stages=2)
FEW_ROWS = Launch(3, block_rows=16, block_columns=128, warps=4, stages=3)
LAUNCHES = [
    SMALL,
    replace(SMALL, splits=1),
    replace(SMALL, splits=2, block_columns=32),
    replace(SMALL, splits=11),  # more than there are blocks
    WIDE,
    replace(SMALL, splits=2, block_rows=128, block_columns=128, warps=8),
    FEW_ROWS,
]


def one(number: int) -> Tensor:
    return torch.tensor([number], device=DEVICE)


def tree_attention(
    q: Tensor, keys: Tensor, values: Tensor, prefix: Tensor, bits: Tensor, scaling: float,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    recent = triton_attention.recent_rows(bits)
    inputs = TreeInputs(q, keys, values, prefix, bits, recent, scaling * triton_attention.LOG2_E)
    launch = launch or triton_attention.plan_for(inputs)
    return triton_attention.attend(inputs, launch, triton_attention.attend_to_prefix)


def launched(
    inputs: Inputs, prefix: int, visible: Tensor, launch: Launch, words: int | None, spare: int
) -> tuple[Tensor, Tensor]:
    """Attend with a launch that is given."""
    q = inputs.q.transpose(0, 1).contiguous().to(DEVICE).transpose(0, 1)  # as models have it
    keys, values = (stored(x, x.shape[1] + spare, DEVICE) for x in (inputs.k, inputs.v))
    bits = sets_of(visible, words).to(DEVICE)
    out, lse = tree_attention(q, keys, values, one(prefix), bits, inputs.scaling, launch)
    return out.cpu(), lse.cpu()


def check(
    inputs: Inputs,
    prefix: int,
    visible: Tensor,
    launch: Launch | None = None,
    *,
    lse_tolerance: float = LSE_TOLERANCE,
    words: int | None = None,
    spare: int = 37,
) -> None:
    """Attend with a launch, or as the backend chooses."""
    if launch is not None:
        out, lse = launched(inputs, prefix, visible, launch, words, spare)
    else:
        out, lse = attend_to_tree(
            TritonOps(), inputs, prefix, visible, spare=spare, words=words, device=DEVICE
        )
    seen = tree_mask(prefix, visible)
    expected, total = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert error(out, expected) < ERROR[inputs.q.dtype]  # NaN fails
    assert (lse.double() - total).abs().max() < lse_tolerance


def borders(launch: Launch) -> list[int]:
    size = launch.block_columns
    return [0, 1, *(63 + n for n in (0, 1, size - 1, size, size + 1, 3 * size + 1))]


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("launch", "prefix"),
    [
        pytest.param(launch, borders(launch)[number], marks=pytest.mark.slow if place % 2 else ())
        for place, (launch, number) in enumerate(every_other(LAUNCHES, range(8)))
    ],
    ids=str,
)
def test_every_launch_around_its_borders(launch, prefix):
    """Of blocks and of splits; heads, their size and the trees vary with it."""
    place = borders(launch).index(prefix) + LAUNCHES.index(launch)
    parents = TREES["comb"][: 5 + place % 7]
    dim = (32, 32, 48, 32, 80)[place % 5]
    rows, ratio = len(parents), 1 + place % 3
    dtype = torch.float16 if dim == 80 else torch.float32  # so long blocks of both have no room
    inputs = make_inputs(
        rows, prefix + rows, kv_heads=1, ratio=ratio, dim=dim, dtype=dtype, seed=prefix
    )
    check(inputs, prefix, visible_of(parents), launch, spare=place % 2 * 37)


@pytest.mark.parametrize("splits", [1, 2, 5, 16, 17, 33, 64])
def test_any_number_of_parts_is_merged(splits):
    inputs = make_inputs(5, 1205, kv_heads=1, ratio=2, dim=32, dtype=torch.float32, seed=splits)
    launch = Launch(splits, block_rows=16, block_columns=32, warps=4, stages=2)
    check(inputs, 1200, visible_of(TREES["comb"][:5]), launch)


LONG = [0, 1, 62, 63, 64, 127, 128, 190, 191, 192, 193, 255, 256, 449]


@pytest.mark.parametrize(
    ("prefix", "splits"), [(p, (1, 3, 16)[i % 3]) for i, p in enumerate(LONG)] + [(1, 1), (449, 3)]
)
def test_one_row_around_the_borders_of_long_blocks(prefix, splits):
    """As in plain decoding: the tree is one row, and each head has one query."""
    inputs = make_inputs(1, prefix + 1, kv_heads=1, ratio=4, dtype=torch.float16, seed=prefix)
    check(inputs, prefix, visible_of([0]), replace(FEW_ROWS, splits=splits))


@pytest.mark.parametrize(
    ("tree", "prefix", "launch"),
    [
        *[("star", 63, WIDE), ("chain", 130, FEW_ROWS)],
        pytest.param("star", 63, replace(FEW_ROWS, splits=16), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_widest_and_the_deepest_tree(tree, prefix, launch):
    inputs = make_inputs(64, prefix + 64, kv_heads=1, ratio=1, dtype=torch.float16, seed=prefix)
    check(inputs, prefix, visible_of(TREES[tree]), launch)


@pytest.mark.parametrize("tree", ["chain", "random", "comb"])
def test_trees_in_wide_blocks(tree):
    visible = visible_of(TREES[tree])
    inputs = make_inputs(len(visible), 70 + len(visible), kv_heads=1, ratio=1, dtype=torch.float32)
    check(inputs, 70, visible, WIDE)


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", range(len(LAUNCHES)))
def test_random_trees_of_random_sizes(seed):
    generator = torch.Generator().manual_seed(seed)
    rows, prefix, capacity = (
        int(torch.randint(low, high, (1,), generator=generator))
        for low, high in ((1, 40), (0, 120), (0, 90))
    )
    inputs = make_inputs(rows, prefix + rows, kv_heads=1, ratio=1, dtype=torch.float32, seed=seed)
    visible = visible_of(random_parents(rows, seed))
    check(inputs, prefix, visible, LAUNCHES[seed], spare=capacity)


def rows_do_not_matter_to_numpy() -> bool:
    """Return True if a row of a product has the same bits wherever it stands in a tile."""
    x, y = (np.random.default_rng(n).normal(size=size).astype(np.float32)
            for n, size in enumerate([(16, 32), (32, 64)]))  # fmt: skip
    return all((np.roll(x, place, 0) @ y == np.roll(x @ y, place, 0)).all() for place in range(16))


@pytest.mark.every(2)
@pytest.mark.parametrize(("window", "prefix"), every_other([None, 40, 90], [1, 60, 79, 95, 200]))
def test_a_row_of_a_tree_is_what_it_is_alone(prefix, window):
    """To the bit, when its ancestors are committed; with every tile on a GPU (``tests/gpu``).

    In the interpreter a product is numpy's, whose sums depend on a row's place on some processors.
    """
    least = 0.0 if DEVICE.type == "cuda" or rows_do_not_matter_to_numpy() else 1e-6
    rows, scale = 9, 32**-0.5 * triton_attention.LOG2_E
    inputs = make_inputs(rows, prefix + rows, kv_heads=1, ratio=2, dtype=torch.float32, seed=prefix)
    visible = visible_of(random_parents(rows, prefix))

    def attend(queries: Tensor, order: list[int], length: int, seen: Tensor) -> tuple[Tensor, ...]:
        keys, values = (stored(x[:, order], len(order) + 5, DEVICE) for x in (inputs.k, inputs.v))
        sets = sets_of(seen).to(DEVICE)
        recent = triton_attention.recent_rows(sets)
        given = TreeInputs(
            queries.to(DEVICE), keys, values, one(length), sets, recent, scale, window
        )
        return triton_attention.attend(given, SMALL, triton_attention.attend_to_prefix)

    everything = list(range(prefix + rows))
    out, lse = attend(inputs.q, everything, prefix, visible)
    for row in (0, 1, 4, 8):
        ancestors = [prefix + int(place) for place in visible[row].nonzero()]
        order, itself = [*range(prefix), *ancestors], torch.ones(1, 1, dtype=torch.bool)
        alone, own_lse = attend(inputs.q[:, row : row + 1], order, len(order) - 1, itself)
        for one_row, among_others in ((alone[0], out[row]), (own_lse[:, 0], lse[:, row])):
            torch.testing.assert_close(one_row, among_others, rtol=0, atol=least)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("shape", "block_columns"),
    every_other([(64, 0), (65, 37), (127, 0), (150, 37)], [16, 64, 128]),
    ids=str,
)
def test_sparse_bits_in_several_words(shape, block_columns):
    """A draft's level: 9 new rows among the rows of all levels before."""
    columns, prefix = shape
    generator = torch.Generator().manual_seed(columns)
    visible = torch.rand(9, columns, generator=generator) < 0.04
    visible[:, columns - 9 :] = torch.eye(9, dtype=torch.bool)
    inputs = make_inputs(
        9, prefix + columns, kv_heads=1, ratio=1, dtype=torch.float32, seed=columns
    )
    launch = replace(SMALL, block_columns=block_columns)
    check(inputs, prefix, visible, launch)
    check(inputs, prefix, visible, replace(launch, splits=1), words=4)  # more than are used


def test_a_row_that_sees_one_column_only():
    """Every bit in turn, the sign bit included: the output is that row of the values."""
    inputs = make_inputs(64, 64, kv_heads=1, ratio=1, dtype=torch.float32)
    check(inputs, 0, torch.eye(64, dtype=torch.bool).flip(0), WIDE)


@pytest.mark.parametrize("launch", LAUNCHES[:3], ids=str)
def test_storage_that_is_full_to_the_last_row(launch):
    visible = visible_of(random_parents(5))
    check(make_inputs(5, 38, dtype=torch.float32), 33, visible, launch, spare=0)
    check(make_inputs(5, 5, dtype=torch.float32), 0, visible, launch, spare=0)


@dataclass(frozen=True)
class Special:
    """Scores with a window, a cap or sinks. ``spare``: rows of a ring beyond those that it needs;
    None: storage of the whole text."""

    prefix: int
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    spare: int | None = None
    parents: tuple[int, ...] = (0, 0, 0, 1, 1, 2, 3, 6, 7, 8)
    ratio: int = 2
    dim: int = 32
    launch: Launch | None = SMALL


SPECIAL = {
    "a ring": Special(200, 40, spare=0),
    "a ring with more": Special(203, 70, spare=9, ratio=3, dim=48),
    "less than the tree": Special(90, 3, spare=1),
    "itself alone": Special(37, 1, spare=0),
    "more than the text": Special(20, 1000),
    "nothing before": Special(0, 4),
    "a deep tree in a window": Special(150, 20, parents=(0, *range(40)), spare=0),
    "caps": Special(100, softcap=2.0),
    "sinks": Special(100, sinks=True, launch=None),
    "sinks in one part": Special(100, sinks=True, launch=replace(SMALL, splits=1)),
    "all": Special(160, 50, 1.5, True, 2, ratio=4),
    "all, in long blocks": Special(700, 333, 1.5, True, 2, launch=FEW_ROWS, parents=(0, 0, 0)),
    "all, in wide blocks": Special(500, 333, 1.5, True, 2, launch=WIDE, ratio=4),
    "large heads": Special(70, 40, spare=0, dim=512, launch=None, ratio=3, sinks=True),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("case", SPECIAL.values(), ids=SPECIAL)
def test_windows_caps_and_sinks(case):
    check_special(case, torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
@pytest.mark.parametrize("spare", [None, 0, 5])
@pytest.mark.parametrize("window", [1, 2, 9, 10, 11, 15, 16, 17, 64, 130])
def test_windows_around_the_borders_of_blocks(window, spare, launch):
    for prefix in (0, 1, window - 1, window, 127, 128, 129, 300):
        check_special(Special(prefix, window, spare=spare, launch=launch), torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_levels_in_windows(seed):
    """Rows of several words, which see some of those before them."""
    generator = torch.Generator().manual_seed(seed)
    prefix, columns, window, spare, ratio = (
        int(torch.randint(low, high, (1,), generator=generator))
        for low, high in ((0, 300), (9, 200), (1, 200), (0, 40), (1, 5))
    )
    visible = torch.rand(9, columns, generator=generator) < min(0.3, 40 / columns)
    visible[:, columns - 9 :] = torch.eye(9, dtype=torch.bool)
    launch = LAUNCHES[seed % len(LAUNCHES)]
    case = Special(prefix, window, spare=spare, ratio=ratio, launch=launch, sinks=seed % 2 == 0)
    check_special(case, torch.float32, visible)


def check_special(case: Special, dtype: torch.dtype, visible: Tensor | None = None) -> None:
    visible = visible_of(list(case.parents))[2:] if visible is None else visible
    rows, columns = visible.shape
    inputs = make_inputs(
        rows, case.prefix + columns, dtype=dtype, ratio=case.ratio, dim=case.dim, kv_heads=1,
        seed=case.prefix,
    )  # fmt: skip
    how = {"window": case.window, "softcap": case.softcap}
    if case.sinks:
        how["sinks"] = torch.linspace(-2, 3, case.ratio)
    with pytest.MonkeyPatch.context() as patch:
        if case.launch is not None:
            patch.setattr(triton_attention, "plan", lambda *_, **_in: case.launch)
        out, lse = attend_to_tree(
            TritonOps(), inputs, case.prefix, visible, device=DEVICE,
            ring=None if case.spare is None else case.window + columns + case.spare,
            **{name: x.to(DEVICE) if isinstance(x, Tensor) else x for name, x in how.items()},
        )  # fmt: skip
    seen = tree_mask(case.prefix, visible)
    if case.window is not None:
        seen = reference.windowed(case.prefix, visible, case.window)
    expected, total = reference.attention(
        inputs.q, inputs.k, inputs.v, seen, inputs.scaling, case.softcap, how.get("sinks")
    )
    assert error(out, expected) < ERROR[dtype]
    assert (lse.double() - total).abs().max() < LSE_TOLERANCE


def test_rows_before_a_window_are_never_read():
    """Nor is what an earlier row has left in a ring behind the text."""
    case = Special(300, 40, launch=replace(SMALL, splits=1))
    visible = visible_of([0, 0])
    inputs = make_inputs(2, 302, dtype=torch.float32)
    expected, _ = attend_to_tree(TritonOps(), inputs, 300, visible, device=DEVICE, window=40)
    inputs.k[:, : 300 - case.window], inputs.v[:, : 300 - case.window] = torch.nan, torch.nan
    out, _ = attend_to_tree(TritonOps(), inputs, 300, visible, device=DEVICE, window=40)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("strides", [(2**31, 32), (32, 2**24)], ids=str)
@pytest.mark.parametrize("launch", [SMALL, FEW_ROWS], ids=str)
def test_storage_beyond_the_range_of_int32(launch, strides):
    """Strides of heads, and of rows. On the host, what is never touched takes no memory."""
    inputs = make_inputs(5, 135, dtype=torch.float16)
    storage = torch.empty(2**31 + 2**28, dtype=torch.float16, device=DEVICE)
    keys, values = (
        storage.as_strided((2, 135, 32), (*strides, 1), offset) for offset in (0, 2**23)
    )
    keys.copy_(inputs.k)
    values.copy_(inputs.v)
    visible = visible_of(random_parents(5))
    q, bits = inputs.q.to(DEVICE), sets_of(visible).to(DEVICE)
    out, _ = tree_attention(q, keys, values, one(130), bits, inputs.scaling, launch)
    seen = tree_mask(130, visible)
    expected, _ = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert error(out.cpu(), expected) < ERROR[torch.float16]


def test_parts_of_another_kernel_are_merged(monkeypatch):
    """As of Hopper's on a Hopper GPU: here the Triton kernel takes its place."""
    calls = []

    def attend_to_prefix(*arguments):
        calls.append(len(arguments[1]))
        triton_attention.attend_to_prefix(*arguments)

    monkeypatch.setattr(hopper_attention, "suits", lambda *_: True)
    monkeypatch.setattr(hopper_attention, "attend_to_prefix", attend_to_prefix)
    monkeypatch.setattr(triton_attention, "plan", lambda *_, **_in: SMALL)
    inputs = make_inputs(9, 109, dtype=torch.float32)
    check(inputs, 100, visible_of(random_parents(9)))
    check(inputs, 100, visible_of(random_parents(9)), WIDE)  # a launch that is given is Triton's
    assert calls == [3]


def test_the_plan_can_be_run_as_it_is():
    for rows, prefix in ((1, 300), (8, 130), (64, 200)):
        inputs = make_inputs(rows, prefix + rows, kv_heads=1, dtype=torch.float16, seed=rows)
        check(inputs, prefix, visible_of(random_parents(rows)), spare=500)


@pytest.mark.parametrize("device", [H200, L4], ids=["H200", "L4"])
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("head_dim", [32, 80, 128, 256])
@pytest.mark.parametrize("kv_heads", [1, 2, 8, 32, 200])
def test_a_plan_is_valid_for_every_shape(kv_heads, head_dim, itemsize, device):
    for group, few in product((1, 4, 7), (False, True)):
        launches = [
            plan(nodes, group, kv_heads, head_dim, itemsize, *device, few=few)
            for nodes in range(1, 65)
        ]
        for launch in launches:
            assert 1 <= launch.splits <= triton_attention.MOST_SPLITS
            assert launch.block_rows in {16, 32, 64}
            assert launch.block_columns in {16, 32, 64, 128}
        # What a row's result depends on.
        assert len({(each.splits, each.block_columns) for each in launches}) == 1


def test_a_plan_leaves_a_program_to_each_multiprocessor():
    few = Launch(8, block_rows=16, block_columns=128, warps=4, stages=3)
    assert plan(1, 4, 8, 128, 2, *H200) == few
    assert plan(64, 4, 8, 128, 2, *H200) == replace(few, block_rows=64)
    assert plan(1, 6, 2, 128, 2, *H200) == replace(few, splits=22)
    assert plan(1, 1, 32, 128, 2, *H200) == replace(few, splits=4)
    assert plan(1, 4, 4, 256, 2, *H200) == replace(few, splits=33, block_columns=64)
    wide = replace(few, splits=33, block_rows=64, block_columns=64)
    assert plan(64, 4, 4, 256, 2, *H200) == wide
    assert plan(64, 4, 4, 256, 2, *H200, words=2) == replace(wide, stages=2)  # 3 need too much


def test_a_plan_takes_no_more_memory_than_there_is():
    assert plan(1, 4, 8, 128, 2, *L4).block_columns == 64
    assert plan(1, 4, 8, 256, 2, *L4).block_columns == 32


def test_chunk_scores_of_an_empty_text():
    inputs = make_inputs(2, 3, dtype=torch.float32)
    keys = stored(inputs.k, 40, DEVICE)
    lse = torch.zeros(4, device=DEVICE)
    scores = chunk_scores(inputs.q[:, 0].to(DEVICE), lse, keys, one(0), 0.1, Grid(16))
    assert scores.tolist() == [-torch.inf] * 3


def big(
    rows: int, prefix: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, keys, values and visible, with a few keys that matter and NaN behind the text."""
    generator = torch.Generator("cuda").manual_seed(rows + prefix)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device="cuda").to(dtype)

    q = draw(rows, heads, dim).transpose(0, 1)
    keys, values = draw(kv_heads, prefix + 200, dim), draw(kv_heads, prefix + 200, dim)
    keys[:, 5 : prefix : max(1, prefix // 9)] *= 4
    keys[:, prefix + rows :], values[:, prefix + rows :] = torch.nan, torch.nan
    return q, keys, values, visible_of(random_parents(rows)).cuda()


def check_big(
    q: Tensor, keys: Tensor, values: Tensor, visible: Tensor, prefix: int, out: Tensor, lse: Tensor
) -> None:
    """A key head at a time: scores in float64 take memory."""
    rows = q.shape[1]
    group = q.shape[0] // keys.shape[0]
    sees = torch.ones(rows, prefix + rows, dtype=torch.bool, device="cuda")
    sees[:, prefix:] = visible
    scaling = q.shape[2] ** -0.5
    for head in range(keys.shape[0]):
        mine = slice(head * group, (head + 1) * group)
        k, v = keys[head, : prefix + rows].double(), values[head, : prefix + rows].double()
        scores = (q[mine].double() @ k.T * scaling).masked_fill(~sees, -torch.inf)
        expected = (scores.softmax(-1) @ v).transpose(0, 1)
        # In float32 each weight is added alone: beside a key with nearly all of the weight, much of
        # what many others share is lost.
        lost = 1e-3 if q.dtype == torch.float32 and prefix > 10_000 else 0.0
        wrong = error(out[:, mine], expected)
        assert wrong < max(ERROR[q.dtype], lost)
        assert (lse[mine].double() - scores.logsumexp(-1)).abs().max() < 1e-3


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(32, 8, 128), (32, 32, 128), (12, 12, 64), (28, 4, 80)])
@pytest.mark.parametrize("prefix", [0, 1000, 16384, 65536, 131072])
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_long_text_on_the_device(rows, prefix, shape, dtype):
    q, keys, values, visible = big(rows, prefix, *shape, dtype)
    bits = sets_of(visible.cpu()).cuda()
    scaling = q.shape[2] ** -0.5
    out, lse = tree_attention(q, keys, values, one(prefix), bits, scaling)
    check_big(q, keys, values, visible, prefix, out, lse)
    again, _ = tree_attention(q, keys, values, one(prefix), bits, scaling)
    assert torch.equal(out, again)


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("launch", [None, Launch(1, 64, 64, 4, 2), Launch(8, 128, 64, 8, 3)])
def test_one_graph_serves_every_length(launch, rows):
    q, keys, values, visible = big(rows, 4096, 32, 8, 128, torch.bfloat16)
    bits, prefix = sets_of(visible.cpu()).cuda(), one(0)
    scaling = q.shape[2] ** -0.5
    tree_attention(q, keys, values, prefix, bits, scaling, launch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = tree_attention(q, keys, values, prefix, bits, scaling, launch)
    for length in (0, 1, 63, 64, 65, 511, 512, 513, 2000, 4096):
        prefix.fill_(length)
        out.fill_(torch.nan)
        graph.replay()
        check_big(q, keys, values, visible, length, out, lse)


@needs_cuda
@pytest.mark.gpu
def test_lengths_and_sizes_compile_nothing_anew():
    def compiled() -> int:
        kernels = triton_attention._attend, triton_attention._merge
        return sum(len(k.device_caches[torch.cuda.current_device()][0]) for k in kernels)

    launch = Launch(4, 64, 64, 4, 2)
    counts = []
    for rows, prefix in ((64, 500), (33, 500), (16, 1111), (2, 4099), (64, 31)):
        q, keys, values, visible = big(rows, prefix, 32, 8, 128, torch.bfloat16)
        for words in (1, 3):
            bits = sets_of(visible.cpu(), words).cuda()
            tree_attention(q, keys, values, one(prefix), bits, 0.1, launch)
        counts.append(compiled())
    assert len(set(counts)) == 1


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("chunk", [16, 32, 50])
def test_chunk_scores_of_a_long_text_on_the_device(chunk, dtype):
    q, keys, _, _ = big(2, 16384, 32, 8, 128, dtype)
    text, scaling = keys[:, :16001], 128**-0.5
    packed = q[:, 0].double().view(8, 4, 128)
    lse = (packed @ text.double().transpose(1, 2) * scaling).logsumexp(-1).flatten().float()
    scores = chunk_scores(q[:, 0], lse, keys, one(16001), scaling, Grid(chunk))
    row = attention_row(q[:, 0].double(), text.double(), scaling, lse.double())
    expected = torch.tensor(reference.chunk_means(row.mean(0), Grid(chunk)), dtype=torch.float64)
    assert error(scores[: len(expected)].cpu(), expected) < 1e-4
    assert scores[len(expected) :].isneginf().all()
