"""The engine on a CUDA device: attention against float64, speculative against plain decoding."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specx.bench.generated import generate_report
from specx.decoding import decode as decode_module
from specx.decoding import runner as runner_module
from specx.decoding.cost import TreePlan
from specx.decoding.decode import decode
from specx.decoding.kv_cache import DraftCache
from specx.decoding.layer_state import CacheGroup
from specx.decoding.methods import Pair
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.runner import Runner
from specx.decoding.tuner import Decision, Tuner
from specx.ops.ancestors import AncestorMask
from specx.ops.chunks import Grid
from specx.ops.contract import Ops, built_in_ops
from specx.ops.torch.backend import TorchOps
from specx.profile import AutoTree, Profile, TreeSettings, load_profile, resolve
from specx.prompts.digest import Digest
from specx.records import Finished, Method, Step, Tally
from specx.runs.lossless import logit_gap
from specx.runs.pair import load_pair
from tests.decoding.cache_examples import of_one
from tests.ops import reference
from tests.ops.examples import sets_of
from tests.tiny import make_checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")
# Largest difference to float64 that a row of the output may have, for values of order 1.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


BACKENDS = pytest.mark.parametrize(
    "ops", [TorchOps(), built_in_ops(CUDA)], ids=lambda ops: ops.name
)


def qkv(dtype: torch.dtype, rows: int, keys: int, group: int = 4, dim: int = 64) -> tuple:
    generator = torch.Generator(CUDA).manual_seed(rows * keys)

    def draw(heads: int, length: int) -> torch.Tensor:
        shape = (heads, length, dim)
        return torch.randn(shape, generator=generator, device=CUDA, dtype=torch.float64).to(dtype)

    return draw(2 * group, rows), draw(2, keys), draw(2, keys)


def chain_and_star(rows: int) -> torch.Tensor:
    """A tree whose first half is a chain and whose second half hangs on the root."""
    visible = torch.eye(rows, dtype=torch.bool)
    visible[:, 0] = True
    half = rows // 2
    visible[:half, :half] = torch.ones(half, half, dtype=torch.bool).tril()
    return visible | torch.eye(rows, dtype=torch.bool)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("prefix", [0, 1, 63, 64, 65, 4097])
@pytest.mark.parametrize("rows", [1, 2, 51, 64])
@BACKENDS
def test_tree_attention_is_exact(ops: Ops, dtype: torch.dtype, prefix: int, rows: int) -> None:
    q, k, v = qkv(dtype, rows, prefix + rows)
    visible = chain_and_star(rows)
    mask = AncestorMask(sets_of(visible).to(CUDA), rows)
    length = torch.tensor([prefix], device=CUDA)
    out, lse = ops.tree_attention(q, k, v, length, mask, 0.125)
    seen = reference.tree_mask(prefix, visible)
    expected, expected_lse = reference.attention(q, k, v, seen, 0.125)
    torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[dtype], rtol=0)
    torch.testing.assert_close(lse.double(), expected_lse, atol=TOLERANCE[dtype], rtol=0)


def test_a_tree_of_another_number_of_rows_compiles_no_merge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    knobs = pytest.importorskip("triton.knobs")
    ops, compiled = built_in_ops(CUDA), list[str]()

    def attend(rows: int, prefix: int) -> None:
        # Of a size that no other test has compiled anything for.
        q, k, v = qkv(torch.bfloat16, rows, prefix + rows, dim=80)
        mask = AncestorMask(sets_of(chain_and_star(rows)).to(CUDA), rows)
        ops.tree_attention(q, k, v, torch.tensor([prefix], device=CUDA), mask, 0.1)

    def noted(*, src: Any, **_: Any) -> None:
        compiled.append(src.fn.__name__)

    attend(64, 4097)
    monkeypatch.setattr(knobs.compilation, "listener", noted)
    for rows in (1, 2, 11, 17, 33, 50):
        for prefix in (130, 1000, 9000):
            attend(rows, prefix)
    assert "_attend" in compiled  # the listener listens
    assert "_merge" not in compiled


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("window", [None, 1, 65, 512, 1024])
@pytest.mark.parametrize(("prefix", "rows"), [(0, 1500), (700, 1024), (1023, 129), (1500, 1)])
@BACKENDS
def test_prefill_attention_is_exact(
    ops: Ops, dtype: torch.dtype, window: int | None, prefix: int, rows: int
) -> None:
    q, k, v = qkv(dtype, rows, prefix + rows)
    out = ops.prefill_attention(q, k, v, prefix, window, 0.125)
    seen = reference.causal_mask(rows, prefix, window)
    expected, _ = reference.attention(q, k, v, seen, 0.125)
    torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize(("group", "dim"), [(1, 64), (4, 128), (2, 40), (2, 20), (1, 256)])
@BACKENDS
def test_a_prefill_reads_the_part_of_a_cache_that_is_written(
    ops: Ops, group: int, dim: int, window: int | None
) -> None:
    """Rows behind it are not numbers. Heads of 20 are none for flash kernels."""
    past, rows = 300, 200
    q, k, v = qkv(torch.bfloat16, rows, past + rows + 77, group, dim)
    for storage in (k, v):
        storage[:, past + rows :] = torch.nan
    out = ops.prefill_attention(q, k, v, past, window, dim**-0.5)
    written = (part[:, : past + rows] for part in (k, v))
    seen = reference.causal_mask(rows, past, window)
    expected, _ = reference.attention(q, *written, seen, dim**-0.5)
    torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[torch.bfloat16], rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_whole_chunks_behind_whole_chunks_are_exact(
    dtype: torch.dtype, chunks: int, dim: int
) -> None:
    """Where Hopper's kernel or cuDNN attends, and pieces are merged; a few rows stand for all."""
    prefill = pytest.importorskip("specx.ops.triton.prefill")
    past, rows = chunks * prefill.CHUNK, prefill.CHUNK
    q, k, v = qkv(dtype, rows, past + rows, 4, dim)
    out = built_in_ops(CUDA).prefill_attention(q, k, v, past, None, 0.125)
    for row in (0, 1, 1000, rows - 1):
        seen = (part[:, : past + row + 1] for part in (k, v))
        everything = reference.causal_mask(1, past + row)
        expected, _ = reference.attention(q[:, row : row + 1], *seen, everything, 0.125)
        torch.testing.assert_close(
            out[row : row + 1].double(), expected, atol=TOLERANCE[dtype], rtol=0
        )


def test_chosen_rows_are_those_of_torch_in_float64() -> None:
    """Half precision rounds once; one chunk is short, and the chunk behind it does not exist."""
    generator = torch.Generator().manual_seed(1)
    inv_freq = 10_000.0 ** -(torch.arange(24) / 24)  # 48 of 64 dimensions turn
    shape = (2, 2, 3, 500, 64)
    rows = torch.randn(shape, generator=generator, dtype=torch.float64).to(torch.bfloat16)
    chunks = torch.tensor([0, 3, 7, 8])
    filled = {}
    for device, dtype in ((torch.device("cpu"), torch.float64), (CUDA, torch.bfloat16)):
        group = CacheGroup(layers=2, kv_heads=3, head_dim=64)
        shape = of_one(group, dtype, device, built_in_ops(device))
        cache = DraftCache(shape, 500, [inv_freq.to(device)], 400)
        cache.store.storage.copy_(rows)
        cache.store.commit(470)
        cache.positions += 30_000
        cache.grid = Grid(60, short=7)
        cache.choose(chunks.to(device))
        filled[device.type] = cache.working
    assert filled["cuda"].committed == filled["cpu"].committed == 53 + 60 + 57
    ours, expected = (f.storage[..., :170, :].cpu().double() for f in filled.values())
    torch.testing.assert_close(ours, expected, atol=2**-7, rtol=2**-8)


def written(
    pair: Pair, profile: Profile, method: Method, prompt: tuple[int, ...]
) -> tuple[list[int], Tally]:
    tally = Tally()
    tokens: list[int] = []
    for event in decode(pair, resolve(profile, method, pair.facts), prompt):
        if isinstance(event, Step):
            tokens += event.tokens
            tally.add(event)
        elif isinstance(event, Finished):
            print(method, f"tau {tally.acceptance_length:.2f}", event.timings)
    return tokens, tally


def same_or_tied(pair: Pair, prompt: tuple[int, ...], plain: list[int], ours: list[int]) -> None:
    """Equal, or different from a token on whose logits tie."""
    if ours != plain:
        at = next(i for i, (a, b) in enumerate(zip(plain, ours, strict=False)) if a != b)
        gap = logit_gap(pair, (*prompt, *plain[:at]), plain[at], ours[at])
        print(f"differs at token {at}, logit gap {gap:.2e}")
        assert abs(gap) < 1e-4


def mini() -> Profile:
    profile = load_profile("mini").on("cuda")
    return profile.changed(fallback={"below": None}, generation={"max_new_tokens": 150})


@pytest.mark.parametrize("characters", [6_000, 60_000])
def test_the_embedded_pair_writes_what_plain_decoding_writes(characters: int) -> None:
    pair = load_pair(mini(), "specextend", CUDA)
    digest = Digest(pair.target.tokenizer, sentences=8, whole=True)
    prompt = digest.prompts(generate_report(characters, seed=2), 24_000)[0].token_ids
    plain, _ = written(pair, mini(), "plain", prompt)
    assert len(plain) > 20
    for method in ("tree", "streaming", "specextend"):
        ours, tally = written(pair, mini(), method, prompt)
        same_or_tied(pair, prompt, plain, ours)
        assert tally.steps <= len(plain)


def test_graphs_do_what_eager_steps_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy and sampled; the kernels are the same, so every step is."""
    pair = load_pair(mini(), "specextend", CUDA)
    digest = Digest(pair.target.tokenizer, sentences=8, whole=True)
    prompt = digest.prompts(generate_report(9_000, seed=5), 24_000)[0].token_ids
    for temperature in (0.0, 0.8):
        profile = mini().changed(generation={"temperature": temperature})
        for method in ("plain", "tree", "streaming", "specextend"):
            with monkeypatch.context() as eagerly:
                eagerly.setattr(decode_module, "runner_for", lambda *_, **__: Runner())
                expected, expected_tally = written(pair, profile, method, prompt)
            tokens, tally = written(pair, profile, method, prompt)
            assert tokens == expected
            assert tally.accepted == expected_tally.accepted


def test_trees_that_change_write_what_plain_decoding_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Costs are those of steps, measured or learned; graphs are recorded anew for each tree."""
    pair = load_pair(mini(), "specextend", CUDA)
    profile = mini().changed(tree=AutoTree(), generation={"max_new_tokens": 400})
    digest = Digest(pair.target.tokenizer, sentences=8, whole=True)
    prompt = digest.prompts(generate_report(30_000, seed=3), 24_000)[0].token_ids
    plain, _ = written(pair, profile, "plain", prompt)
    plans: list[TreePlan] = []
    reshape = ModelDrafter.reshape

    def noted(drafter: ModelDrafter, plan: TreePlan) -> None:
        plans.append(plan)
        reshape(drafter, plan)

    monkeypatch.setattr(ModelDrafter, "reshape", noted)
    for method in ("tree", "streaming", "specextend"):
        ours, tally = written(pair, profile, method, prompt)
        same_or_tied(pair, prompt, plain, ours)
        assert pair.known.costs, "no text drafted more than a few steps"
        costs = list(pair.known.costs.values())[-1]
        print(method, costs, plans)
        assert costs.verify(64) < 3 * costs.plain  # graphs were timed, not their recording
        assert costs.draft(17) < costs.plain
        assert tally.steps < len(plain)
    assert len(plans) > 3


@pytest.mark.parametrize("first", [0, 1, 2])
def test_any_tree_may_follow_any_other(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes change every few steps, while steps are under way; each is recorded once."""
    pair = load_pair(mini(), "specextend", CUDA)
    digest = Digest(pair.target.tokenizer, sentences=24, whole=True)
    pair = replace(pair, target=replace(pair.target, eos_token_ids=frozenset()))
    profile = mini().changed(tree=AutoTree(), generation={"max_new_tokens": 600})
    prompt = digest.prompts(generate_report(9_000, seed=5), 24_000)[0].token_ids
    plain, _ = written(pair, profile, "plain", prompt)
    shapes = [(63, 16, 32), (2, 1, 1), (16, 10, 4)]
    seen = [first]

    decide = Tuner.decide

    def often(tuner: Tuner) -> Decision:
        found = tuner._drafts and tuner._undecided
        verdict = decide(tuner)
        if not found:
            return verdict
        seen.append(seen[-1] + 1)
        nodes, depth, width = shapes[seen[-1] % 3]
        return TreePlan(TreeSettings(nodes=nodes, depth=depth, width=width), every=2)

    recorded: list[Any] = []
    record = runner_module._record

    def counted(recording: object, stage: Any, *inputs: object) -> None:
        recorded.append(stage)
        record(recording, stage, *inputs)

    monkeypatch.setattr(Tuner, "decide", often)
    monkeypatch.setattr(runner_module, "_record", counted)
    ours, _ = written(pair, profile, "specextend", prompt)
    same_or_tied(pair, prompt, plain, ours)
    assert len(seen) > 5
    drafts = [stage for stage in recorded if getattr(stage, "__name__", "") == "draft"]
    assert 3 <= len(drafts) == len(set(drafts)) <= 4  # the first plan, and three shapes


def test_cpu_and_gpu_write_the_same() -> None:
    on_gpu, on_cpu = (load_pair(mini(), "specextend", d) for d in (CUDA, torch.device("cpu")))
    digest = Digest(on_gpu.target.tokenizer, sentences=8, whole=True)
    prompt = digest.prompts(generate_report(6_000, seed=4), 24_000)[0].token_ids
    plain, _ = written(on_cpu, mini(), "plain", prompt)
    ours, _ = written(on_gpu, mini(), "specextend", prompt)
    same_or_tied(on_cpu, prompt, plain, ours)


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_decodes_on_real_checkpoints(
    family: str, dtype: str, tmp_path: Path
) -> None:
    profile = Profile.model_validate(
        {
            "name": "tiny",
            "target": {"model": str(make_checkpoint(tmp_path / "t", family)), "dtype": dtype},
            "draft": {
                "model": str(make_checkpoint(tmp_path / "d", family, seed=1)),
                "trained_context": 512,
            },
            "draft_cache": {"chunk": 8, "top_k": 8, "layer": 0, "window": 64},
            "tree": {"nodes": 50, "depth": 6, "threshold": 0.0},
            "generation": {"max_new_tokens": 60},
            "fallback": {"below": None},
        }
    )
    pair = load_pair(profile, "specextend", CUDA)
    prompt = tuple(range(5, 305))
    plain, _ = written(pair, profile, "plain", prompt)
    for method in ("tree", "streaming", "specextend"):
        ours, _ = written(pair, profile, method, prompt)
        shared = next(
            (i for i, (a, b) in enumerate(zip(plain, ours, strict=False)) if a != b), len(plain)
        )
        if shared < len(plain):  # half precision rounds one row and 51 rows differently
            gap = logit_gap(pair, (*prompt, *plain[:shared]), plain[shared], ours[shared])
            # Each of the two logits, from 4 to 8, may be off by one unit in its last place.
            assert abs(gap) <= 0.0625, f"{method} differs at token {shared}"
