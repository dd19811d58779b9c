"""The Triton kernels against float64: on a CUDA device, or in Triton's interpreter without one.

The interpreter (``tests/conftest.py`` chooses it) computes with numpy, which has no bfloat16: that
type is tested on the device only.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from specx.kernels.hopper import tree_attention as cuda_tree
from specx.kernels.torch.scores import attention_row
from specx.kernels.triton import tree_attention as triton_tree
from specx.kernels.triton.tree_attention import Device, Launch, chunk_scores, plan, tree_attention
from tests.kernels.examples import (
    TREES,
    Inputs,
    make_inputs,
    oracle,
    random_parents,
    tree_call,
    visible_of,
)

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
needs_cuda = pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
HALF = [torch.float16, torch.bfloat16] if CUDA else [torch.float16]
DTYPES = [torch.float32, *HALF]

# ‖out − reference‖ / ‖reference‖, and the largest error of a log-sum-exp.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}
LSE_TOLERANCE = 1e-4

H200 = Device(multiprocessors=132, shared_memory=232_448)
L4 = Device(multiprocessors=58, shared_memory=101_376)

SMALL = Launch(splits=3, block_rows=16, block_columns=16, warps=4, stages=2)
WIDE = Launch(splits=2, block_rows=64, block_columns=64, warps=4, stages=2)
FEW_ROWS = Launch(3, block_rows=16, block_columns=128, warps=4, stages=3, masked_cost=2)
LAUNCHES = [
    SMALL,
    replace(SMALL, splits=1),
    replace(SMALL, splits=2, block_columns=32),
    replace(SMALL, splits=11),  # more than there are blocks
    WIDE,
    replace(SMALL, splits=2, block_rows=128, block_columns=128, warps=8),
    replace(SMALL, splits=4, masked_cost=2),
    FEW_ROWS,
]


def one(number: int) -> Tensor:
    return torch.tensor([number], device=DEVICE)


def bit_sets(visible: Tensor, words: int) -> Tensor:
    """bool [T, S] -> int64 [T, words]."""
    bits = torch.zeros(len(visible), words * 64, dtype=torch.int64)
    bits[:, : visible.shape[1]] = visible.long()
    # Bit 63 is the sign, and the sum wraps around to it.
    return (bits.view(len(visible), words, 64) << torch.arange(64)).sum(-1)


def stored(rows: Tensor, capacity: int) -> Tensor:
    """[1, Hkv, S, D] -> the storage [Hkv, capacity, D] of one layer, NaN where nothing is."""
    storage = torch.full(
        (2, rows.shape[1], capacity, rows.shape[3]), torch.nan, dtype=rows.dtype, device=DEVICE
    )
    storage[1, :, : rows.shape[2]] = rows[0]
    return storage[1]


def run(
    inputs: Inputs,
    prefix: int,
    visible: Tensor,
    launch: Launch | None = None,
    *,
    words: int | None = None,
    spare: int = 37,
) -> tuple[Tensor, Tensor]:
    q = inputs.q[0].transpose(0, 1).contiguous().to(DEVICE).transpose(0, 1)  # as models have it
    keys, values = (stored(x, x.shape[2] + spare) for x in (inputs.k, inputs.v))
    words = words or -(-visible.shape[1] // 64)
    bits = bit_sets(visible, words).to(DEVICE)
    heads, nodes, dim = q.shape
    out = torch.full((nodes, heads, dim), torch.nan, dtype=q.dtype, device=DEVICE)
    lse = torch.full((heads, nodes), torch.nan, device=DEVICE)
    result = tree_attention(
        q, keys, values, one(prefix), bits, inputs.scaling, out=out, lse=lse, launch=launch
    )
    assert result[0] is out
    assert result[1] is lse
    return out.cpu(), lse.cpu()


def check(
    inputs: Inputs,
    prefix: int,
    visible: Tensor,
    launch: Launch | None = None,
    *,
    lse_tolerance: float = LSE_TOLERANCE,
    tolerance: float | None = None,
    **how: int,
) -> None:
    out, lse = run(inputs, prefix, visible, launch, **how)
    expected, total = oracle(inputs, tree_call(prefix, visible))
    expected = expected[0].transpose(0, 1)
    error = (out.double() - expected).norm() / expected.norm()
    assert error < (tolerance or TOLERANCE[inputs.q.dtype])  # NaN fails
    assert (lse.double() - total[0]).abs().max() < lse_tolerance


@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
@pytest.mark.parametrize("prefix", [0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 130])
def test_every_prefix_in_every_launch(prefix, launch):
    """Around the borders of blocks and of splits."""
    parents = TREES["comb"]
    rows = len(parents)
    inputs = make_inputs(rows, prefix + rows, kv_heads=1, dtype=torch.float32, seed=prefix)
    check(inputs, prefix, visible_of(parents), launch)


@pytest.mark.parametrize("splits", [1, 3, 16])
@pytest.mark.parametrize("prefix", [0, 1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 385])
def test_one_row_around_the_borders_of_long_blocks(prefix, splits):
    """As in plain decoding: the tree is one row, and each head has one query."""
    inputs = make_inputs(1, prefix + 1, ratio=4, dtype=torch.float16, seed=prefix)
    check(inputs, prefix, visible_of([0]), replace(FEW_ROWS, splits=splits))


@pytest.mark.parametrize("launch", [WIDE, FEW_ROWS, replace(FEW_ROWS, splits=16)], ids=str)
@pytest.mark.parametrize("prefix", [63, 130])
@pytest.mark.parametrize("parents", [[0] * 64, [max(0, i - 1) for i in range(64)]])
def test_the_widest_and_the_deepest_tree(parents, prefix, launch):
    inputs = make_inputs(64, prefix + 64, kv_heads=1, dtype=torch.float16, seed=prefix)
    check(inputs, prefix, visible_of(parents), launch)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("prefix", [0, 70])
@pytest.mark.parametrize("tree", TREES)
def test_every_tree(tree, prefix, dtype):
    parents = TREES[tree]
    rows = len(parents)
    inputs = make_inputs(rows, prefix + rows, dtype=dtype, seed=rows + prefix)
    check(inputs, prefix, visible_of(parents), WIDE)


@pytest.mark.parametrize("seed", range(len(LAUNCHES)))
def test_random_trees_of_random_sizes(seed):
    generator = torch.Generator().manual_seed(seed)
    rows, prefix, capacity = (
        int(torch.randint(low, high, (1,), generator=generator))
        for low, high in ((1, 40), (0, 120), (0, 90))
    )
    inputs = make_inputs(rows, prefix + rows, dtype=torch.float32, seed=seed)
    visible = visible_of(random_parents(rows, seed))
    check(inputs, prefix, visible, LAUNCHES[seed], spare=capacity)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ratio", [1, 3, 4, 7, 8])
@pytest.mark.parametrize("rows", [1, 5])
def test_every_ratio_of_heads(rows, ratio, dtype):
    inputs = make_inputs(rows, 50 + rows, ratio=ratio, dtype=dtype, seed=ratio)
    check(inputs, 50, visible_of(random_parents(rows)), SMALL)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [32, 48, 64, 80, 96, 112, 128, 192, 256])
def test_every_head_dimension(dim, dtype):
    inputs = make_inputs(5, 45, dim=dim, dtype=dtype, seed=dim)
    check(inputs, 40, visible_of([0, 0, 1, 1, 0]), SMALL)
    check(inputs, 40, visible_of([0, 0, 1, 1, 0]))


@pytest.mark.parametrize("block_columns", [16, 64, 128])
@pytest.mark.parametrize("prefix", [0, 37])
@pytest.mark.parametrize("columns", [64, 65, 127, 150])
def test_sparse_bits_in_several_words(columns, prefix, block_columns):
    """A draft's level: 9 new rows among the rows of all levels before."""
    generator = torch.Generator().manual_seed(columns)
    visible = torch.rand(9, columns, generator=generator) < 0.04
    visible[:, columns - 9 :] = torch.eye(9, dtype=torch.bool)
    inputs = make_inputs(9, prefix + columns, kv_heads=1, dtype=torch.float32, seed=columns)
    launch = replace(SMALL, block_columns=block_columns)
    check(inputs, prefix, visible, launch)
    check(inputs, prefix, visible, replace(launch, splits=1), words=4)  # more than are used


def test_a_row_that_sees_one_column_only():
    """Every bit in turn, the sign bit included: the output is that row of the values."""
    inputs = make_inputs(64, 64, dtype=torch.float32)
    check(inputs, 0, torch.eye(64, dtype=torch.bool).flip(0), WIDE)


@pytest.mark.parametrize("launch", LAUNCHES[:3], ids=str)
def test_storage_that_is_full_to_the_last_row(launch):
    visible = visible_of(random_parents(5))
    check(make_inputs(5, 38, dtype=torch.float32), 33, visible, launch, spare=0)
    check(make_inputs(5, 5, dtype=torch.float32), 0, visible, launch, spare=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(3))
def test_large_scores(seed, dtype):
    """Float32 scores of size 80 are good to 1e-5, and so are weights: hence the tolerance."""
    inputs = make_inputs(9, 109, dim=64, largest=80, dtype=dtype, seed=seed)
    visible = visible_of(random_parents(9, seed))
    check(inputs, 100, visible, SMALL, tolerance=max(2e-5, TOLERANCE[dtype]), lse_tolerance=3e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("at", [0, 15, 16, 99, 100, 103])
def test_one_key_takes_all_the_weight(at, dtype):
    """In each split and in the tree; the last query sees row 103, the others do without."""
    inputs = make_inputs(4, 104, dtype=dtype, seed=at)
    inputs.q = inputs.q.abs()
    inputs.k = -inputs.k.abs()
    inputs.k[:, :, at] *= -60
    visible = torch.ones(4, 4, dtype=torch.bool).tril()
    check(inputs, 100, visible, SMALL, lse_tolerance=1e-3)


def test_equal_scores_average_the_values():
    inputs = make_inputs(3, 103, dtype=torch.float32)
    inputs.q = torch.zeros_like(inputs.q)
    check(inputs, 100, torch.ones(3, 3, dtype=torch.bool), SMALL)


@pytest.mark.parametrize("strides", [(2**31, 32), (32, 2**24)], ids=str)
@pytest.mark.parametrize("launch", [SMALL, FEW_ROWS], ids=str)
def test_storage_beyond_the_range_of_int32(launch, strides):
    """Strides of heads, and of rows. On the host, what is never touched takes no memory."""
    inputs = make_inputs(5, 135, dtype=torch.float16)
    storage = torch.empty(2**31 + 2**28, dtype=torch.float16, device=DEVICE)
    keys, values = (
        storage.as_strided((2, 135, 32), (*strides, 1), offset) for offset in (0, 2**23)
    )
    keys.copy_(inputs.k[0])
    values.copy_(inputs.v[0])
    visible = visible_of(random_parents(5))
    q, bits = inputs.q[0].to(DEVICE), bit_sets(visible, 1).to(DEVICE)
    out, _ = tree_attention(q, keys, values, one(130), bits, inputs.scaling, launch=launch)
    expected = oracle(inputs, tree_call(130, visible))[0][0].transpose(0, 1)
    assert (out.cpu().double() - expected).norm() / expected.norm() < TOLERANCE[torch.float16]


def test_parts_of_another_kernel_are_merged(monkeypatch):
    """As of ``cuda_tree`` on a Hopper GPU: here the Triton kernel takes its place."""
    calls = []

    def attend_in_parts(*arguments):
        calls.append(len(arguments[-1]))
        triton_tree._attend_in_parts(*arguments, replace(SMALL, splits=3))

    monkeypatch.setattr(cuda_tree, "suits", lambda *_: True)
    monkeypatch.setattr(cuda_tree, "splits", lambda *_: 3)
    monkeypatch.setattr(cuda_tree, "attend_in_parts", attend_in_parts)
    inputs = make_inputs(9, 109, dtype=torch.float32)
    check(inputs, 100, visible_of(random_parents(9)))
    check(inputs, 100, visible_of(random_parents(9)), WIDE)  # a launch that is given is Triton's
    assert calls == [3]


def test_the_plan_can_be_run_as_it_is():
    for rows, prefix in ((1, 300), (8, 130), (64, 200)):
        inputs = make_inputs(rows, prefix + rows, dtype=torch.float16, seed=rows)
        check(inputs, prefix, visible_of(random_parents(rows)), spare=500)


@pytest.mark.parametrize("device", [H200, L4], ids=["H200", "L4"])
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("head_dim", [32, 80, 128, 256])
@pytest.mark.parametrize("kv_heads", [1, 2, 8, 32, 200])
def test_a_plan_is_valid_for_every_shape(kv_heads, head_dim, itemsize, device):
    for rows in (1, 4, 16, 17, 64, 65, 192, 256, 512):
        for capacity in (1, 64, 1000, 2**16):
            launch = plan(rows, kv_heads, capacity, head_dim, itemsize, device)
            assert 1 <= launch.splits <= triton_tree.MOST_SPLITS
            assert launch.block_rows in {16, 32, 64, 128}
            assert launch.block_columns in {16, 32, 64, 128}


def test_few_rows_leave_one_program_to_each_multiprocessor():
    few = Launch(16, block_rows=16, block_columns=128, warps=4, stages=3, masked_cost=2)
    assert plan(4, 8, 2**14, 128, 2, H200) == few
    assert plan(1, 32, 2**14, 128, 2, H200) == replace(few, splits=4)
    assert plan(4, 8, 200, 128, 2, H200) == replace(few, splits=4)
    assert plan(4, 8, 2**14, 64, 2, L4) == replace(few, splits=7)


def test_few_rows_take_no_more_memory_than_there_is():
    assert plan(4, 8, 2**14, 128, 2, L4).block_columns == 64
    assert plan(4, 8, 2**14, 256, 2, H200).block_columns == 32


def scores_by_definition(inputs: Inputs, row: int, length: int, chunk: int, short: int) -> Tensor:
    """What ``attention_row`` makes of it in float64."""
    query, keys = inputs.q[0, :, row].double(), inputs.k[0, :, :length].double()
    attention = attention_row(query, keys, inputs.scaling, _lse_of(inputs, row).double())
    return means_of(attention.mean(0), chunk, short)


def means_of(row: Tensor, chunk: int, short: int = 0) -> Tensor:
    first, rest = row[: chunk - short], row[chunk - short :]
    return torch.stack([piece.mean() for piece in (first, *rest.split(chunk)) if len(piece)])


def _lse_of(inputs: Inputs, row: int) -> Tensor:
    query, keys = inputs.q[0, :, row].double(), inputs.k[0].double()
    packed = query.view(len(keys), -1, query.shape[1])
    return (packed @ keys.transpose(1, 2) * inputs.scaling).logsumexp(-1).flatten().float()


def check_chunks(inputs: Inputs, length: int, chunk: int, spare: int = 70, short: int = 0) -> None:
    """The query is one of the rows of [Hq, T, D], and its lse one column, both strided."""
    keys = stored(inputs.k[:, :, :length], length + spare)
    lse = torch.stack([torch.zeros(inputs.q.shape[1]), _lse_of(inputs, 1)], dim=1).to(DEVICE)
    query = inputs.q[0].to(DEVICE)[:, 1]
    scores = chunk_scores(query, lse[:, 1], keys, one(length), inputs.scaling, chunk, short).cpu()
    expected = scores_by_definition(inputs, 1, length, chunk, short)
    assert len(scores) == -(-(length + spare + short) // chunk)
    found = scores[: len(expected)].double()
    assert (found - expected).norm() / expected.norm() < 1e-4
    assert scores[len(expected) :].tolist() == [-torch.inf] * (len(scores) - len(expected))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [1, 7, 16, 32, 50, 64, 100, 500])
@pytest.mark.parametrize("length", [1, 31, 64, 129])
def test_chunk_scores_of_every_length(length, chunk, dtype):
    check_chunks(make_inputs(2, length + 3, dtype=dtype, seed=length), length, chunk)


@pytest.mark.parametrize("chunk", [7, 16, 64, 100])
@pytest.mark.parametrize("length", [1, 64, 129])
@pytest.mark.parametrize("short", [1, 6])
def test_chunk_scores_of_a_short_first_chunk(length, chunk, short):
    inputs = make_inputs(2, length + 3, dtype=torch.float32, seed=length)
    check_chunks(inputs, length, chunk, short=short)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("ratio", "dim"), [(1, 32), (3, 80), (7, 64), (8, 128), (20, 32)])
def test_chunk_scores_of_every_head_shape(ratio, dim, dtype):
    check_chunks(make_inputs(2, 90, ratio=ratio, dim=dim, dtype=dtype, seed=dim), 85, 16)


def test_chunk_scores_with_large_scores():
    check_chunks(make_inputs(2, 90, dim=64, largest=60, dtype=torch.float32), 90, 16, spare=0)


def test_chunk_scores_of_an_empty_text():
    inputs = make_inputs(2, 3, dtype=torch.float32)
    keys = stored(inputs.k, 40)
    lse = torch.zeros(4, device=DEVICE)
    scores = chunk_scores(inputs.q[0, :, 0].to(DEVICE), lse, keys, one(0), 0.1, 16)
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
        error = (out[:, mine].double() - expected).norm() / expected.norm()
        assert error < TOLERANCE[q.dtype]
        assert (lse[mine].double() - scores.logsumexp(-1)).abs().max() < 1e-3


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(32, 8, 128), (32, 32, 128), (12, 12, 64), (28, 4, 80)])
@pytest.mark.parametrize("prefix", [0, 1000, 16384, 65536, 131072])
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_long_text_on_the_device(rows, prefix, shape, dtype):
    q, keys, values, visible = big(rows, prefix, *shape, dtype)
    bits = bit_sets(visible.cpu(), 1).cuda()
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
    bits, prefix = bit_sets(visible.cpu(), 1).cuda(), one(0)
    scaling = q.shape[2] ** -0.5
    tree_attention(q, keys, values, prefix, bits, scaling, launch=launch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = tree_attention(q, keys, values, prefix, bits, scaling, launch=launch)
    for length in (0, 1, 63, 64, 65, 511, 512, 513, 2000, 4096):
        prefix.fill_(length)
        out.fill_(torch.nan)
        graph.replay()
        check_big(q, keys, values, visible, length, out, lse)


@needs_cuda
@pytest.mark.gpu
def test_lengths_and_sizes_compile_nothing_anew():
    def compiled() -> int:
        kernels = triton_tree._attend, triton_tree._merge
        return sum(len(k.device_caches[torch.cuda.current_device()][0]) for k in kernels)

    launch = Launch(4, 64, 64, 4, 2)
    counts = []
    for rows, prefix in ((64, 500), (33, 500), (16, 1111), (2, 4099), (64, 31)):
        q, keys, values, visible = big(rows, prefix, 32, 8, 128, torch.bfloat16)
        for words in (1, 3):
            bits = bit_sets(visible.cpu(), words).cuda()
            tree_attention(q, keys, values, one(prefix), bits, 0.1, launch=launch)
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
    scores = chunk_scores(q[:, 0], lse, keys, one(16001), scaling, chunk)
    row = attention_row(q[:, 0].double(), text.double(), scaling, lse.double())
    expected = means_of(row.mean(0), chunk)
    found = scores[: len(expected)].double()
    assert (found - expected).norm() / expected.norm() < 1e-4
    assert scores[len(expected) :].isneginf().all()
