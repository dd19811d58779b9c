"""The gated delta rule: trees, prompts and what is kept of them, against its definition."""

from copy import deepcopy
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from specx.ops.ancestors import AncestorMask
from specx.ops.contract import HAS_TRITON
from specx.ops.delta_state import DeltaState
from specx.ops.spec import AttentionSpec, DeltaSpec, NormSpec
from specx.ops.torch.delta import DeltaRows, history_of, keep_delta, read_prompt, read_tree
from specx.ops.torch.layer import through_gate, torch_norm
from tests.ops.examples import random_parents
from tests.pairwise import every_other

CPU = torch.device("cpu")
INTERPRETED = HAS_TRITON and not torch.cuda.is_available()
ATTENTION = AttentionSpec(
    query_heads=6, kv_heads=2, head_dim=24, scaling=0.25, rope=None, gated=True,
    delta=DeltaSpec(key_dim=16, kernel=4, norm=NormSpec(eps=1e-6)),
)  # fmt: skip
TILED = replace(
    ATTENTION, delta=DeltaSpec(key_dim=16, kernel=4, norm=NormSpec(eps=1e-6), tiled=True)
)
EPS = 1e-6


def unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS)


WAYS = pytest.mark.parametrize("attention", [ATTENTION, TILED], ids=["neighbours", "tiled"])


def drawn_rows(count: int, seed: int) -> tuple[DeltaRows, Tensor]:
    """Rows, and a state that they are read behind."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    rows = DeltaRows(
        q=unit(draw(count, 2, 16)) * 0.25, k=unit(draw(count, 2, 16)), v=draw(count, 6, 24),
        beta=2 * draw(count, 6).sigmoid(), g=-draw(count, 6).exp(),
    )  # fmt: skip
    return rows, draw(6, 16, 24)


def one_by_one(
    rows: DeltaRows, state: Tensor, parents: list[int], attention: AttentionSpec
) -> tuple[Tensor, list[Tensor]]:
    """What comes out of each row [T, H, D], and the state behind it, as ``DeltaSpec`` says."""
    out, states = [], []
    for row, parent in enumerate(parents):
        before = state if row == 0 else states[parent]
        after = torch.empty_like(state)
        heads = []
        for head in range(6):
            shared = head % 2 if attention.delta.tiled else head // 3
            q, k = rows.q[row, shared], rows.k[row, shared]
            decayed = rows.g[row, head].exp() * before[head]
            update = rows.beta[row, head] * (rows.v[row, head] - k @ decayed)
            after[head] = decayed + torch.outer(k, update)
            heads.append(q @ after[head])
        out.append(torch.stack(heads))
        states.append(after)
    return torch.stack(out), states


def mask_of(parents: list[int]) -> AncestorMask:
    sets = [1]
    for row, parent in enumerate(parents[1:], 1):
        bit = 1 << row if row < 63 else -1 << 63
        sets.append(sets[parent] | bit)
    return AncestorMask(torch.tensor(sets)[:, None], len(parents))


def stored(rows: DeltaRows, state: Tensor, attention: AttentionSpec) -> DeltaState:
    """The state of one layer, with rows behind the text that are not read yet."""
    whole = DeltaState.empty(1, attention, len(rows.g), torch.float64, CPU)
    whole.state[0], whole.inputs[0] = state, torch.arange(3)[:, None] - 3
    whole.keys[0], whole.decays[0] = rows.k, rows.g
    whole.row_inputs[0] = torch.arange(len(rows.g))[:, None]
    return whole


def some(rows: DeltaRows, which: slice) -> DeltaRows:
    return DeltaRows(**{each.name: getattr(rows, each.name)[which] for each in fields(rows)})


@WAYS
@pytest.mark.parametrize("first", [0, 1, 7])
@pytest.mark.parametrize("count", [1, 2, 16, 64])
def test_a_tree_and_what_is_kept_of_it(attention, count, first):
    """Read at once, or as levels of which the first ones were read before."""
    parents, (rows, state) = random_parents(count, count), drawn_rows(count, count)
    expected, states = one_by_one(rows, state, parents, attention)
    whole, mask = stored(rows, state, attention), mask_of(parents)
    first = min(first, count - 1)
    parts = [slice(first), slice(first, count)] if first else [slice(count)]
    out = [
        read_tree(some(rows, part), whole.layer(0), AncestorMask(mask.sets[part], part.stop),
                  attention)
        for part in parts
    ]  # fmt: skip
    torch.testing.assert_close(torch.cat(out), expected)

    path = [count - 1]
    while path[0]:
        path.insert(0, parents[path[0]])
    for kept in {1, len(path)}:
        after = deepcopy(whole)
        keep_delta(
            after, torch.tensor([*path, path[-1]]), torch.tensor(kept),
            tiled=attention.delta.tiled,
        )  # fmt: skip
        torch.testing.assert_close(after.state[0], states[path[kept - 1]])
        assert after.inputs[0, :, 0].tolist() == [-3, -2, -1, *path[:kept]][-3:]


def test_the_inputs_before_a_row_are_those_of_its_path():
    parents = [0, 0, 1, 0, 2, 4]
    places = history_of(4, 6)(mask_of(parents).sets)  # behind three of the text: 0, 1 and 2
    assert places.tolist() == [
        [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [1, 2, 3, 6], [3, 4, 5, 7], [4, 5, 7, 8],
    ]  # fmt: skip
    assert history_of(2, 6)(mask_of(parents).sets[3:]).tolist() == [[1, 4], [3, 5], [5, 6]]


@WAYS
@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
def test_a_prompt(attention, count):
    rows, state = drawn_rows(count, count)
    parents = [max(0, row - 1) for row in range(count)]
    expected, states = one_by_one(rows, state, parents, attention)
    out, last = read_prompt(rows, state, attention)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(last, states[-1])


def test_decays_that_forget_everything_are_finite():
    rows, state = drawn_rows(70, 3)
    rows = replace(rows, g=rows.g * 1000)
    out, last = read_prompt(rows, state, ATTENTION)
    assert bool(out.isfinite().all())
    assert bool(last.isfinite().all())


@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")
@pytest.mark.parametrize(
    ("attention", "rows_read"), every_other([ATTENTION, TILED], [(9, 0), (1, 0), (16, 7)], odd=True)
)
def test_kernels(attention, rows_read):
    """As torch, in float32; and a row is to the bit what it is behind a text with its path."""
    from specx.ops.triton import delta as kernels

    count, first = rows_read
    parents, (rows, state) = random_parents(count, count), drawn_rows(count, count)
    narrow = DeltaRows(**{each.name: getattr(rows, each.name).float() for each in fields(rows)})
    expected, _ = one_by_one(rows, state, parents, attention)
    whole, mask = stored(rows, state, attention), mask_of(parents)
    whole = DeltaState(**{each.name: getattr(whole, each.name).float() for each in fields(whole)})
    parts = [slice(first), slice(first, count)] if first else [slice(count)]
    out = torch.cat([
        kernels.read_tree(some(narrow, part), whole.layer(0),
                          AncestorMask(mask.sets[part], part.stop), attention)
        for part in parts
    ])  # fmt: skip
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)

    path, alone = [count - 1], deepcopy(whole)
    while path[0]:
        path.insert(0, parents[path[0]])
    kept = torch.tensor(len(path))
    for row in path:  # one by one
        one, part = mask_of([0]), slice(row, row + 1)
        alone.keys[0, 0], alone.decays[0, 0] = narrow.k[row], narrow.g[row]
        found = kernels.read_tree(some(narrow, part), alone.layer(0), one, attention)
        kernels.keep_delta(alone, torch.tensor([0]), torch.tensor(1), tiled=attention.delta.tiled)
    assert torch.equal(found[0], out[count - 1])
    kernels.keep_delta(whole, torch.tensor([*path, 0]), kept, tiled=attention.delta.tiled)
    assert torch.equal(whole.state, alone.state)


@pytest.fixture
def nan_in_new_memory():
    """Fill what torch allocates with NaN, as memory of a device may be."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")
@pytest.mark.usefixtures("nan_in_new_memory")
@pytest.mark.parametrize(("attention", "count"), every_other([ATTENTION, TILED], [1, 64, 130]))
def test_kernels_of_a_prompt(attention, count):
    """As the reference, gated; and whole as in parts of whole chunks, to the bit."""
    from specx.ops.triton.delta_prompt import read_prompt as read_by_kernels

    rows, state = drawn_rows(count, count)
    parents = [max(0, row - 1) for row in range(count)]
    expected, states = one_by_one(rows, state, parents, attention)
    gate, weight = torch.randn(count, 144).double(), torch.rand(24).double()
    norm = torch_norm(attention.delta.norm, weight)
    expected = through_gate(expected.flatten(1), gate, attention, norm)
    narrow = DeltaRows(**{each.name: getattr(rows, each.name).float() for each in fields(rows)})

    def read(*parts: slice) -> tuple[Tensor, Tensor]:
        whole = DeltaState.empty(1, attention, 1, torch.float32, CPU).layer(0)
        whole.state.copy_(state)
        found = []
        for part in parts:
            out = read_by_kernels(some(narrow, part), whole, attention, gate[part].float(),
                                  weight.float())  # fmt: skip
            whole.state.copy_(whole.next_state)
            found.append(out)
        return torch.cat(found).flatten(1), whole.state

    out, last = read(slice(count))
    torch.testing.assert_close(out.double(), expected, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(last.double(), states[-1], atol=1e-5, rtol=1e-5)
    for found, wanted in zip(read(slice(64), slice(64, count)), (out, last), strict=True):
        assert torch.equal(found, wanted)
