"""A row's numbers are its own, to the bit, on a CUDA device.

Neither the rows beside it nor how much of its text is committed change them. So every method writes
what plain decoding writes.
"""

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from specx.bench.generated import generate_report
from specx.decoding.methods import Pair
from specx.models.decoder import Decoder
from specx.ops.contract import built_in_ops
from specx.ops.hopper import tree_attention as hopper_attention
from specx.ops.hopper.driver import is_hopper
from specx.ops.triton import tree_attention
from specx.ops.triton.tree_inputs import TreeInputs
from specx.profile import Profile
from specx.prompts.digest import Digest
from specx.runs.pair import load_pair
from tests.gpu.test_cuda import mini, written
from tests.models.families import CELLS, SIZES, Cell, Text, ancestors_of, make_pair
from tests.models.rows import CAPACITY, check_rows, copy_of, logits_alone, places_in
from tests.ops.examples import random_parents, sets_of
from tests.ops.reference import visible_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda", 0)
HALF = (torch.bfloat16, torch.float16)
# Behind them rows are on both sides of the borders of own parts, blocks and parts.
PREFIXES = (1, 60, 187, 320, 505)


@pytest.mark.parametrize("dtype", [*HALF, torch.float32], ids=str)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_row_of_a_tree_is_what_it_is_alone(
    cell: Cell, dtype: torch.dtype, tmp_path: Path
) -> None:
    decoder = make_pair(cell, tmp_path).decoder(CAPACITY, built_in_ops(CUDA), CUDA, dtype)
    assert decoder.row_invariant
    check_rows(decoder, len(str(cell)), PREFIXES)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_so_it_is_over_keys_and_values_in_8_bits(cell: Cell, tmp_path: Path) -> None:
    """Those of a text are read from prompts and from trees alike, in rings, too."""
    decoder = make_pair(cell, tmp_path).decoder(CAPACITY, built_in_ops(CUDA), CUDA, torch.bfloat16)
    check_rows(decoder, len(str(cell)), PREFIXES, torch.int8)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    """Heads, states and choices of experts as in Qwen3.5 35B-A3B; fewer and smaller experts."""
    heads = {"num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256}
    heads |= {"linear_num_key_heads": 8, "linear_num_value_heads": 16}
    heads |= {"linear_key_head_dim": 128, "linear_value_head_dim": 128}
    experts = {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 128}
    experts |= {"shared_expert_intermediate_size": 128}
    sizes = {"hidden_size": 1024, "num_hidden_layers": 4, "vocab_size": 4096}
    cell = Cell("qwen3_5_moe_text", "wide", SIZES | sizes | heads | experts)
    pair = make_pair(cell, tmp_path_factory.mktemp("hybrid"))
    return pair.decoder(8192, built_in_ops(CUDA), CUDA, torch.bfloat16)


@pytest.mark.parametrize("behind", [64, 200, 2000, 5000])
def test_few_rows_of_a_hybrid_with_experts_among_many(hybrid: Decoder, behind: int) -> None:
    drawn = torch.randint(3, 4096, (behind + 64,), generator=torch.Generator().manual_seed(behind))
    text, tokens = Text(hybrid, behind + 64), drawn[behind:]
    chain = [max(0, row - 1) for row in range(64)]
    for part in drawn[:behind].split(1024):
        text.read(part, 1)
    together = text.verify(tokens, chain)
    assert together.isfinite().all()
    for rows in (1, 2, 4, 8, 16, 17, 33):
        assert torch.equal(text.verify(tokens[:rows], chain[:rows]), together[:rows]), rows
    assert torch.equal(logits_alone(text, tokens, [0, 1, 2, 3])[0], together[3])


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize(("heads", "kv_heads"), [(32, 8), (12, 2), (16, 16), (8, 1)])
@pytest.mark.parametrize("prefix", [0, 63, 191, 192, 1085, 4160, 16_500])
def test_every_kernel_attends_alike(
    prefix: int, heads: int, kv_heads: int, dtype: torch.dtype
) -> None:
    if not is_hopper(CUDA):
        pytest.skip("needs a Hopper GPU")
    generator = torch.Generator(CUDA).manual_seed(prefix)
    shapes = (64, heads, 128), (kv_heads, prefix + 64, 128), (kv_heads, prefix + 64, 128)
    q, keys, values = (torch.randn(s, generator=generator, device=CUDA).to(dtype) for s in shapes)
    q = q.transpose(0, 1)
    sets = sets_of(visible_of(random_parents(64, prefix))).to(CUDA)
    recent, length = tree_attention.recent_rows(sets), torch.tensor([prefix], device=CUDA)
    inputs = TreeInputs(q, keys, values, length, sets, recent, 128**-0.5 * 1.44)
    launch = tree_attention.plan_for(inputs)
    kernels = tree_attention.attend_to_prefix, hopper_attention.attend_to_prefix
    (out, lse), (other, other_lse) = (
        tree_attention.attend(inputs, launch, kernel) for kernel in kernels
    )
    assert torch.equal(out, other)
    assert torch.equal(lse, other_lse)
    for rows in (1, 2):  # at most 16 that share a key head: a third kernel
        few = TreeInputs(
            q[:, :rows], keys, values, length, sets[:rows], recent[:rows], inputs.scale
        )
        assert few.rows <= hopper_attention.FEW_ROWS
        launch = tree_attention.plan_for(few)
        for _ in range(3):
            other, other_lse = tree_attention.attend(few, launch, kernels[1])
            assert torch.equal(out[:rows], other)
            assert torch.equal(lse[:, :rows], other_lse)


def profile(**generation: object) -> Profile:
    known = mini().changed(target={"dtype": "bfloat16"})
    return known.changed(generation={"max_new_tokens": 120, **generation})


@pytest.fixture(scope="module", params=["embedded", "in 8 bits"])
def pair(request: pytest.FixtureRequest) -> Pair:
    if request.param == "in 8 bits":
        in_bytes = profile().changed(target={"kv_cache_dtype": "int8"})
        return load_pair(in_bytes, "specextend", CUDA)
    return load_pair(profile(), "specextend", CUDA)


@pytest.mark.parametrize("rows", [2, 5, 16, 17, 64])
def test_a_row_of_a_large_decoder(pair: Pair, rows: int) -> None:
    text = Text(pair.target.model, 192)
    ids = torch.arange(100, 200)
    text.read(ids, 1)
    parents = random_parents(rows, rows)
    logits = copy_of(text).verify(ids[:rows], parents)
    for row in places_in(rows):
        path = ancestors_of(tuple(parents))[row]
        assert torch.equal(logits[row], logits_alone(text, ids, path)[0]), row


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("characters", [6_000, 60_000])
def test_every_method_writes_what_plain_writes(
    pair: Pair, characters: int, temperature: float
) -> None:
    wanted = profile(temperature=temperature, seed=7)
    kind = Digest(pair.target.tokenizer, sentences=8, whole=True)
    prompt = kind.prompts(generate_report(characters, seed=3), 24_000)[0].token_ids
    plain, _ = written(pair, wanted, "plain", prompt)
    for method in ("lookup", "tree", "specextend", "specextend+lookup"):
        assert written(pair, wanted, method, prompt)[0] == plain, method
