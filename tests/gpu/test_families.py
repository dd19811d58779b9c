"""Decoders of every family on a CUDA device against transformers' classes: the oracle's cells."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

pytest.importorskip("triton")

from specx.models.call import SlotMapping, TreeCall
from specx.models.decoder import Decoder
from specx.ops.ancestors import AncestorMask, chain_sets
from specx.ops.contract import built_in_ops
from specx.ops.delta_state import DeltaState
from specx.ops.spec import AttentionSpec, DeltaSpec, NormSpec
from specx.ops.torch.delta import DeltaRows, read_prompt
from specx.ops.torch.layer import through_gate, torch_norm
from specx.ops.triton import delta_prompt
from tests.models.families import CELLS, WINDOW, Cell, Pair, Text, ancestors_of, make_pair

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")
TREE = (0, 0, 0, 1, 1, 2, 3, 6)  # parents; the root is its own
DTYPES = (torch.float32, torch.bfloat16)
EXACT, ROUNDED = 1e-4, 0.06  # largest difference of logits; norm of it, relative to theirs


def decoder_of(pair: Pair, cell: Cell, dtype: torch.dtype) -> Decoder:
    pair.oracle.to(torch.float32)
    return pair.decoder(cell.length, built_in_ops(CUDA), CUDA, dtype)


def assert_alike(found: list[Tensor], expected: list[Tensor], limit: float | None) -> None:
    """Compare rows with float32; ``limit``: of the relative norm, where logits are rounded.

    It holds for half of the rows at least: rounding may choose another expert for a row.
    """
    rows, wanted = torch.cat(found).float(), torch.cat(expected)
    if limit is None:
        assert float((rows - wanted).abs().max()) < EXACT
    else:
        by_row = (rows - wanted).norm(dim=1) / wanted.norm(dim=1)
        assert float(by_row.median()) < limit


def distance(logits: Tensor, expected: Tensor) -> float:
    return float((logits.float() - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_prompts_and_trees(cell: Cell, dtype: torch.dtype, tmp_path: Path) -> None:
    """A prompt in chunks and in rings; a tree on both sides of a window's end; and token by token
    behind it."""
    pair = make_pair(cell, tmp_path)
    prompt, paths = pair.prompt, ancestors_of(TREE)
    drawn = torch.randint(3, 131, (8,), generator=torch.Generator().manual_seed(8))
    whole = [prompt.tolist()]
    expected = pair.expected(whole)[0]
    trees = []
    for prefix in (3, WINDOW - 2, cell.length - 8):
        before = prompt[:prefix].tolist()
        texts = [before + drawn[path].tolist() for path in paths]
        after = [*texts[6], *prompt[:3].tolist()]
        trees.append((prefix, texts, pair.expected([*texts, after])))
    limit = None
    if dtype != torch.float32:  # as near as transformers' classes are in this format
        pair.oracle.to(dtype)
        limit = max(ROUNDED, 2 * distance(pair.expected(whole)[0], expected))
    decoder = decoder_of(pair, cell, dtype)
    for ahead in (None, 9):
        text = Text(decoder, ahead=ahead)
        assert_alike([text.read(part) for part in prompt.split(9)], [expected], limit)
    rows, all_wanted = [], []
    for prefix, texts, found in trees:
        wanted = torch.stack([found[row, len(text) - 1] for row, text in enumerate(texts)])
        text = Text(decoder, ahead=8)
        for part in prompt[:prefix].split(8):
            text.read(part, 1)
        rows.append(text.verify(drawn, list(TREE)))
        all_wanted.append(wanted)
        text.keep(paths[6])
        for place, token in enumerate(prompt[:3]):
            rows.append(text.verify(token[None], [0], 1))
            text.keep([0])
            all_wanted.append(found[-1, len(texts[6]) + place][None])
    assert_alike(rows, all_wanted, limit)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_recorded_pass_is_that_pass(cell: Cell, tmp_path: Path) -> None:
    """In a CUDA graph, replayed at another length: nothing waits for the host, or is kept of it."""
    pair = make_pair(cell, tmp_path)
    decoder = decoder_of(pair, cell, torch.bfloat16)
    text, rows = Text(decoder, ahead=16), 4
    ids, length = pair.prompt[:rows].to(CUDA), torch.zeros(1, dtype=torch.int64, device=CUDA)
    mask = AncestorMask(chain_sets(rows, CUDA), rows)
    places = torch.arange(rows, device=CUDA)

    @torch.inference_mode()
    def run() -> Tensor:
        call = TreeCall(
            ops=decoder.ops,
            mapping=SlotMapping(text.storage, length + places),
            prefix=length,
            mask=AncestorMask(mask.sets, rows),
        )
        return decoder.run(ids, length + places, call)

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = run()
    for count in (5, 20):
        while text.length < count:
            text.read(pair.prompt[text.length : text.length + 5], 1)
        length.fill_(text.length)
        graph.replay()
        found = recorded.clone()
        for storage in text.storage:
            kept = storage.inputs if isinstance(storage, DeltaState) else storage
            assert kept.isfinite().any()
        assert torch.equal(found, run())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("count", [1, 60, 187])
@pytest.mark.parametrize(("heads", "key_dim", "dim"), [(6, 32, 24), (4, 128, 128)])
def test_kernels_of_a_prompt(
    heads: int, key_dim: int, dim: int, count: int, dtype: torch.dtype
) -> None:
    """Beside float64, where a prompt ends within a chunk and memory is NaN before it is written."""
    generator = torch.Generator(CUDA).manual_seed(count)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=CUDA, dtype=torch.float64)

    spec = NormSpec(eps=1e-6)
    attention = AttentionSpec(
        query_heads=heads, kv_heads=2, head_dim=dim, scaling=1.0, rope=None, gated=True,
        delta=DeltaSpec(key_dim=key_dim, kernel=4, norm=spec),
    )  # fmt: skip
    assert delta_prompt.suits(attention, dtype)
    q, k = (normalize(drawn(count, 2, key_dim), dim=-1).to(dtype) for _ in range(2))
    decays = torch.tensor([0.1, 8.0], device=CUDA).repeat(heads // 2)  # slow and fast
    rows = DeltaRows(
        q=q, k=k, v=drawn(count, heads, dim).to(dtype), beta=drawn(count, heads).sigmoid().float(),
        g=-drawn(count, heads).exp().float() * decays,
    )  # fmt: skip
    state = DeltaState.empty(1, attention, 1, dtype, CUDA).layer(0)
    state.state.copy_(0.1 * drawn(heads, key_dim, dim))
    gate, weight = drawn(count, heads * dim).to(dtype), drawn(dim).to(dtype)
    wide = DeltaRows(**{each.name: getattr(rows, each.name).double() for each in fields(rows)})
    out, last = read_prompt(wide, state.state.double(), attention)
    norm = torch_norm(spec, weight.double())
    out = through_gate(out.flatten(1), gate.double(), attention, norm)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        found = delta_prompt.read_prompt(rows, state, attention, gate, weight).flatten(1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert distance(found, out) < 0.03
    assert distance(state.next_state, last) < 0.03
