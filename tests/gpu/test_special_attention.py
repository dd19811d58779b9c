"""Windows, caps of scores and sinks on a CUDA device: shapes of real models, against float64."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from specx.ops.ancestors import AncestorMask, chain_sets
from specx.ops.contract import built_in_ops
from tests.ops import reference
from tests.ops.examples import error, random_parents, sets_of
from tests.ops.reference import visible_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")
ERROR = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}
LSE = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 2e-3}


@dataclass(frozen=True)
class Shape:
    """The attention of a layer of some model."""

    heads: int
    kv_heads: int
    dim: int
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False

    def options(self, device: torch.device = CUDA) -> dict[str, Any]:
        sinks = torch.linspace(-2, 3, self.heads, device=device) if self.sinks else None
        given = {"window": self.window, "softcap": self.softcap, "sinks": sinks}
        return {key: value for key, value in given.items() if value is not None}


SHAPES = {
    "Gemma 3 12B": Shape(16, 8, 256, 1024),
    "Gemma 2 9B": Shape(16, 8, 256, 4096, 50.0),
    "Gemma 2 9B, whole": Shape(16, 8, 256, None, 50.0),
    "gpt-oss": Shape(64, 8, 64, 128, None, True),
    "gpt-oss, whole": Shape(64, 8, 64, None, None, True),
    "a short window": Shape(14, 2, 128, 99),
    "Mistral 7B v0.1": Shape(32, 8, 128, 4096),
    "Phi-3 mini": Shape(32, 32, 96, 2047),
    "Gemma 4 31B, whole": Shape(32, 4, 512),
    "Qwen3.5 27B": Shape(24, 4, 256),
    "Qwen3.5 35B-A3B": Shape(16, 2, 256),
    "all of them": Shape(12, 4, 80, 333, 20.0, True),
}
EACH = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
DTYPES = pytest.mark.parametrize("dtype", list(ERROR), ids=str)


def draw(*sizes: int, device: torch.device = CUDA, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(sizes, generator=generator, device=device).to(dtype)


def in_ring(rows: Tensor, capacity: int) -> Tensor:
    """The last of rows [Hkv, S, D], each at its number mod capacity."""
    storage = torch.full((len(rows), capacity, rows.shape[2]), torch.nan).to(rows)
    kept = torch.arange(max(0, rows.shape[1] - capacity), rows.shape[1], device=rows.device)
    storage[:, kept % capacity] = rows[:, kept]
    return storage


def check(
    shape: Shape, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, out: Tensor, lse: Tensor | None
) -> None:
    """Compare a key head at a time: scores in float64 take memory."""
    group, sinks = shape.heads // shape.kv_heads, shape.options(q.device).get("sinks")
    for head in range(shape.kv_heads):
        mine = slice(head * group, (head + 1) * group)
        expected, total = reference.attention(
            q[mine], k[head : head + 1], v[head : head + 1], seen, shape.dim**-0.5,
            shape.softcap, None if sinks is None else sinks[mine],
        )  # fmt: skip
        assert error(out[:, mine], expected) < ERROR[q.dtype]
        assert lse is None or (lse[mine].double() - total).abs().max() < LSE[q.dtype]


def check_tree(
    shape: Shape, rows: int, prefix: int, dtype: torch.dtype, device: torch.device = CUDA
) -> None:
    """In a ring as small as it may be, where there is a window."""
    total = prefix + rows
    q = draw(rows, shape.heads, shape.dim, device=device, dtype=dtype).transpose(0, 1)
    k, v = (draw(shape.kv_heads, total, shape.dim, device=device, dtype=dtype, seed=s)
            for s in (1, 2))  # fmt: skip
    capacity = total + 70 if shape.window is None else shape.window + rows
    keys, values = (in_ring(x, capacity) for x in (k, v))
    visible = visible_of(random_parents(rows))
    mask = AncestorMask(sets_of(visible).to(device), rows)
    length = torch.tensor([prefix], device=device)
    out, lse = built_in_ops(device).tree_attention(
        q, keys, values, length, mask, shape.dim**-0.5, **shape.options(device)
    )
    seen = reference.tree_mask(prefix, visible)
    if shape.window is not None:
        seen = reference.windowed(prefix, visible, shape.window)
    check(shape, q, k, v, seen.to(device), out, lse)


@EACH
@DTYPES
@pytest.mark.parametrize("prefix", [0, 127, 5000, 16_384])
@pytest.mark.parametrize("rows", [1, 16, 64])
def test_trees(shape: Shape, dtype: torch.dtype, prefix: int, rows: int) -> None:
    check_tree(shape, rows, prefix, dtype)


@EACH
@DTYPES
@pytest.mark.parametrize(("rows", "past"), [(1, 3000), (700, 0), (4096, 0), (1500, 4096)])
def test_prefill(shape: Shape, dtype: torch.dtype, rows: int, past: int) -> None:
    if dtype == torch.float32 and rows > 1500:
        rows = 1500  # scores are written out
    check_prefill(shape, rows, past, dtype)


def check_prefill(
    shape: Shape, rows: int, past: int, dtype: torch.dtype, device: torch.device = CUDA
) -> None:
    q = draw(rows, shape.heads, shape.dim, device=device, dtype=dtype).transpose(0, 1)
    k, v = (draw(shape.kv_heads, past + rows, shape.dim, device=device, dtype=dtype, seed=s)
            for s in (1, 2))  # fmt: skip
    capacity = past + rows + 9 if shape.window is None else shape.window + rows
    keys, values = (in_ring(x, capacity) for x in (k, v))
    options = shape.options(device)
    window = options.pop("window", None)
    out = built_in_ops(device).prefill_attention(
        q, keys, values, past, window, shape.dim**-0.5, **options
    )
    seen = reference.causal_mask(rows, past, window).to(device)
    check(shape, q, k, v, seen, out, None)


@EACH
@pytest.mark.parametrize("rows", [1, 16])
def test_one_graph_serves_every_length(shape: Shape, rows: int) -> None:
    """Around a ring as often as it takes; nothing is read back to the host."""
    dtype, ops = torch.bfloat16, built_in_ops(CUDA)
    most = 9000
    q = draw(rows, shape.heads, shape.dim, dtype=dtype).transpose(0, 1)
    k, v = (draw(shape.kv_heads, most + rows, shape.dim, dtype=dtype, seed=s) for s in (1, 2))
    capacity = most + rows if shape.window is None else shape.window + rows
    keys, values = (torch.empty(shape.kv_heads, capacity, shape.dim).to(k) for _ in range(2))
    mask, length = AncestorMask(chain_sets(rows, CUDA), rows), torch.zeros(1).long().to(CUDA)
    options = shape.options()

    def attend() -> Any:
        return ops.tree_attention(q, keys, values, length, mask, shape.dim**-0.5, **options)

    attend()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = attend()
    visible = torch.ones(rows, rows, dtype=torch.bool).tril()
    for prefix in (0, 1, 63, 128, 1000, 1023, 1024, 4096, most):
        for storage, given in ((keys, k), (values, v)):
            storage.copy_(in_ring(given[:, : prefix + rows], capacity))
        length.fill_(prefix)
        out.fill_(torch.nan)
        graph.replay()
        seen = reference.tree_mask(prefix, visible)
        if shape.window is not None:
            seen = reference.windowed(prefix, visible, shape.window)
        part = slice(0, prefix + rows)
        check(shape, q, k[:, part], v[:, part], seen.to(CUDA), out, lse)


def test_another_length_or_window_compiles_nothing() -> None:
    from specx.ops.triton import tree_attention

    def compiled() -> int:
        return len(tree_attention._attend.device_caches[torch.cuda.current_device()][0])

    for window in (300, 512, 777):
        check_tree(Shape(8, 2, 128, window), 16, 1000, torch.bfloat16)
    before = compiled()
    for window in (301, 1024, 2000):
        for prefix in (10, 5000):
            check_tree(Shape(8, 2, 128, window), 16, prefix, torch.bfloat16)
    assert compiled() == before
