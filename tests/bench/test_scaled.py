"""A small model and its large form write the same."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from specx.bench.generated import generate_report
from specx.bench.scaled import SmallModel, read_small, scale, scaled_pair, scaled_profile
from specx.bench.scaled_weights import scaled_layer
from specx.bench.shapes import DRAFTS, TARGETS, Shape
from specx.decoding.forward import cache_shape
from specx.decoding.kv_cache import PreallocatedCache
from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.errors import OutOfMemoryError, UsageError
from specx.models.call import PrefillCall
from specx.models.loaded import ModelSpec
from specx.models.model_files import open_model
from specx.ops.chunks import Grid
from specx.ops.torch.scores import best_chunks
from specx.profile import Profile, load_profile
from specx.prompts.digest import Digest
from specx.runs.pair import load_pair
from tests.decoding.pairs import Run, run
from tests.tiny import LLAMA3, VOCAB, make_model

CPU = torch.device("cpu")
ROWS = 500  # of the large vocabulary
# Largest relative difference of logits. EXACT: in float64, where the factors of the norms are
# powers of two. Elsewhere the norms round, which compute in float32: measured were 6e-7 in float64,
# 2e-6 in float32 and 3e-2 in bfloat16.
EXACT = 1e-15
TOLERANCE = {torch.float64: 2e-6, torch.float32: 5e-6, torch.bfloat16: 6e-2}
IDS = torch.randint(3, VOCAB, (1, 60), generator=torch.Generator().manual_seed(1))


def large(**changes: Any) -> Shape:
    """A shape for the models of ``tests/tiny.py``: 4 times as wide, 2 layers more."""
    sizes: dict[str, Any] = {
        "hidden_size": 256,
        "num_layers": 4,
        "num_heads": 8,
        "num_kv_heads": 4,
        "head_dim": 32,
        "intermediate_size": 300,
        "vocab_size": ROWS,
    }
    return Shape(name="large", **{**sizes, **changes})


def larger(config: Any, **sizes: Any) -> Shape:
    """A shape a little larger than a model, and as ``sizes`` say."""
    return large(
        num_layers=config["num_hidden_layers"] + 2,
        intermediate_size=config["intermediate_size"] + 100,
        vocab_size=config["vocab_size"] + 1000,
        **sizes,
    )


def in_dtype(model: Any, dtype: torch.dtype) -> Any:
    """The model in another number format, but for its frequencies: they stay float32."""
    frequencies = model.model.rotary_emb.inv_freq.clone()
    model.to(dtype).model.rotary_emb.inv_freq = frequencies
    return model


def small_of(model: Any) -> SmallModel:
    """A model of transformers as it would be read from its files."""
    return SmallModel(config=model.config.to_dict(), tensors=model.state_dict())


def scaled(
    small: SmallModel, shape: Shape, rows: int | None = None, *, dtype: torch.dtype, seed: int = 0
) -> Any:
    """The large form as a model of transformers."""
    config, tensors = scale(small, shape, rows, dtype=dtype, device=CPU, seed=seed)
    return of_class(config, {name: tensors.joined([name]) for name in tensors.names}, dtype)


def of_class(config: Any, tensors: Any, dtype: torch.dtype) -> Any:
    own = AutoConfig.for_model(**config)
    with torch.device("meta"):  # without random weights, which take longer than the test
        model = AutoModelForCausalLM.from_config(own, attn_implementation="sdpa")
    tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    missing, extra = model.load_state_dict(tensors, strict=False, assign=True)
    assert not extra
    assert not missing or (own.tie_word_embeddings and missing == ["lm_head.weight"])
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(own)  # frequencies stay float32
    return model.eval()


def logits_of(small: Any, shape: Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits [L, V] of a model, and those of its large form [L, V of the shape]."""
    small = in_dtype(small, dtype)
    large = scaled(small_of(small), shape, dtype=dtype)
    with torch.no_grad():
        return small(IDS).logits[0], large(IDS).logits[0]


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Relative to the size of ``ours`` [L, V]; ``theirs`` may have more ids."""
    theirs = theirs[:, : ours.shape[1]]
    return float((ours - theirs).double().norm() / ours.double().norm())


@pytest.mark.parametrize(
    ("small", "shape"),
    [
        pytest.param({}, {"num_layers": 2, "vocab_size": VOCAB}, id="wider"),
        pytest.param({}, {"num_heads": 4, "num_kv_heads": 4}, id="groups-come-apart"),
        pytest.param({"num_key_value_heads": 4}, {"num_heads": 16}, id="groups-appear"),
        pytest.param({"num_key_value_heads": 1}, {"num_heads": 16}, id="one-kv-head"),
        pytest.param({}, {"head_dim": 64}, id="heads-of-16-to-64"),
        pytest.param({"head_dim": 64}, {"head_dim": 64}, id="heads-of-64-to-64"),
        pytest.param({"tie_word_embeddings": True}, {}, id="tied-to-untied"),
        pytest.param({"tie_word_embeddings": True}, {"tied": True}, id="tied"),
        pytest.param({}, {"hidden_size": 64}, id="no-wider"),
        pytest.param(
            {"rope_parameters": {**LLAMA3, "rope_theta": 1e4}}, {"head_dim": 64}, id="llama3-rope"
        ),
    ],
)
def test_logits_are_equal_where_the_norm_is_exact(
    small: dict[str, Any], shape: dict[str, Any]
) -> None:
    ours, theirs = logits_of(make_model(**small), large(**shape), torch.float64)
    assert difference(ours, theirs) < EXACT


@pytest.mark.parametrize(
    "shape",
    [
        {"hidden_size": 192, "num_heads": 12, "num_kv_heads": 3},  # one KV head has two copies
        {"hidden_size": 512},
    ],
    ids=["3-times", "8-times"],
)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_logits_are_close_elsewhere(shape: dict[str, Any], dtype: torch.dtype) -> None:
    ours, theirs = logits_of(make_model(), large(**shape), dtype)
    assert difference(ours, theirs) < TOLERANCE[dtype]


@cache
def embedded(role: Any) -> SmallModel:
    return read_small(open_model(ModelSpec(f"embedded:{role}"), CPU, role))


def test_ids_that_the_small_model_lacks_never_win() -> None:
    ours, theirs = logits_of(make_model(), large(), torch.float64)
    assert torch.allclose(theirs[:, VOCAB:], ours.mean(1, keepdim=True))
    assert torch.equal(theirs.argmax(1), ours.argmax(1))


def test_what_must_not_be_zero_is_random() -> None:
    model = scaled(small_of(make_model()), large(), dtype=torch.float32, seed=3)
    again = scaled(small_of(make_model()), large(), dtype=torch.float32, seed=3)
    written = {"o_proj", "down_proj"}  # nothing may reach the residual stream beyond
    for (name, weight), other in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(weight, other)
        part = name.split(".")[-2]
        layer = int(name.split(".")[2]) if ".layers." in name else None
        if part in written or part == "embed_tokens" or (part == "q_proj" and layer in (2, 3)):
            continue
        assert weight.ne(0).float().mean() > 0.99, name


@pytest.mark.parametrize("tied", [True, False])
def test_as_many_weights_as_the_shape_says(tied: bool) -> None:
    shape, small = large(tied=tied), small_of(make_model(tie_word_embeddings=True))
    model = scaled(small, shape, dtype=torch.float32)
    assert sum(weight.numel() for weight in model.parameters()) == shape.parameters()
    more = scaled(small, shape, 700, dtype=torch.float32)
    assert sum(weight.numel() for weight in more.parameters()) == shape.parameters(700)


# The pair, in a size that a test can afford.


@cache
def modest_shapes() -> tuple[Shape, Shape]:
    target, draft = (embedded(role).config for role in ("target", "draft"))
    return (
        larger(
            target,
            hidden_size=2 * target["hidden_size"],
            num_heads=4 * target["num_attention_heads"],
            num_kv_heads=2 * target["num_key_value_heads"],
            head_dim=2 * target["head_dim"],
        ),
        larger(
            draft,
            hidden_size=3 * draft["hidden_size"] // 2,
            num_heads=2 * draft["num_attention_heads"],
            num_kv_heads=2 * draft["num_key_value_heads"],
            head_dim=2 * draft["head_dim"],
        ),
    )


@cache
def modest_pair() -> Pair:
    with pytest.MonkeyPatch.context() as patch:
        name_modest_shapes(patch)
        return scaled_pair("modest", "modest", CPU, torch.float32)


def name_modest_shapes(patch: pytest.MonkeyPatch) -> None:
    for shapes, shape in zip((TARGETS, DRAFTS), modest_shapes(), strict=True):
        patch.setitem(shapes, "modest", shape)


@cache
def mini() -> Profile:
    profile = load_profile("mini").on("cpu")
    return profile.changed(fallback={"below": None}, generation={"max_new_tokens": 20})


@cache
def small_pair() -> Pair:
    return load_pair(mini(), "specextend", CPU)


@cache
def prompt() -> tuple[int, ...]:
    kind = Digest(small_pair().target.tokenizer, sentences=4)
    return kind.prompts(generate_report(2_600, seed=2), 24_000)[0].token_ids


@cache
def written_by_the_small_pair(method: Any) -> Run:
    return run(small_pair(), mini(), method, prompt())


@pytest.mark.every(2)
@pytest.mark.parametrize("method", ["plain", "specextend"])
def test_a_scaled_pair_writes_what_the_small_one_writes(
    method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_modest_shapes(monkeypatch)
    ours = run(modest_pair(), scaled_profile(mini(), "modest"), method, prompt())
    assert ours.tokens == written_by_the_small_pair(method).tokens
    assert ours.accepted == written_by_the_small_pair(method).accepted


def test_facts_of_a_scaled_pair() -> None:
    pair, small, shape = modest_pair(), small_pair().target, modest_shapes()[0]
    assert pair.target.window == small.window
    assert pair.target.eos_token_ids == small.eos_token_ids
    assert pair.target.source == "scaled mini large"
    assert pair.target.weight_bytes >= 4 * shape.parameters()
    assert pair.draft is not None
    assert pair.draft.vocab_size == pair.target.vocab_size == shape.vocab_size
    known = len(small.tokenizer)
    for mask in (pair.target_allowed, pair.draft_allowed):
        assert mask is not None
        assert mask.sum() == known
        assert not mask[known:].any()


@torch.inference_mode()
@pytest.mark.parametrize("role", ["target", "draft"])
def test_logits_after_a_cached_text(role: str) -> None:
    ids = torch.tensor(prompt()[:80])
    seen = []
    for pair in (small_pair(), modest_pair()):
        model = getattr(pair, role)
        cache = PreallocatedCache(cache_shape(model), len(ids))
        logits = []
        for first, last in ((0, 50), (50, 79), (79, 80)):
            mapping = cache.mapping(last - first)
            call = PrefillCall(ops=model.ops, mapping=mapping, past=first)
            positions = torch.arange(first, last)
            logits.append(model.model.run(ids[first:last], positions, call))
            cache.commit(last - first)
        seen.append(torch.cat(logits))
    assert difference(*seen) < TOLERANCE[torch.float32]


@torch.inference_mode()
@pytest.mark.parametrize("layer", [pytest.param(0, marks=pytest.mark.slow), 6])
def test_attention_keeps_the_order_of_chunks(layer: int) -> None:
    ids = torch.tensor(prompt()[:600])
    shape = modest_shapes()[0]
    places = layer, scaled_layer(layer, small_pair().target.num_layers, shape.num_layers)
    rows, best = [], []
    for pair, place in zip((small_pair(), modest_pair()), places, strict=True):
        target = Target(pair.target, len(ids), place)
        list(target.prefill(ids))
        length = target.cache.length
        rows.append(target.chunk_scores(Grid(1), length))
        best.append(best_chunks(target.chunk_scores(Grid(32), length), length, Grid(32), 8))
    used = small_pair().target.decoder_spec.softmax.query_heads / shape.num_heads
    # The heads that the small model lacks attend uniformly.
    diluted = used * rows[0] + (1 - used) / len(ids)
    assert torch.allclose(rows[1], diluted, rtol=1e-4, atol=0)
    assert torch.equal(*best)


def test_layers_keep_their_distance_to_the_last() -> None:
    assert scaled_layer(7, 8, 32) == 31
    assert scaled_layer(0, 12, 80) == 68
    layers = small_pair().target.num_layers
    mapped = scaled_profile(mini().changed(draft_cache={"layer": 5}), "vicuna-7b")
    assert mapped == mini().changed(draft_cache={"layer": 32 - layers + 5})
    last = mini().changed(draft_cache={"layer": "last"})
    assert scaled_profile(last, "vicuna-7b") == last


@pytest.mark.parametrize(
    ("target", "draft", "message"),
    [
        ("llama-9b", "68m", "no scaled target llama-9b; choose from llama-3.1-8b, vicuna-7b"),
        ("vicuna-7b", "68M", "no scaled draft 68M; choose from 68m, 160m, 1b"),
    ],
)
def test_unknown_names(target: str, draft: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        scaled_pair(target, draft, CPU)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="The device cuda:99 cannot be used"):
        scaled_pair("vicuna-7b", "68m", "cuda:99")


def test_too_little_memory_is_known_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("specx.models.memory.free_bytes", lambda _: 85_000_000_000)
    monkeypatch.setattr("specx.bench.scaled.scale", lambda *_, **__: pytest.fail("was built"))
    message = r"llama-3.1-70b and 68m in bfloat16 needs 141\.6 GB .*, but only 85\.0 GB are free"
    with pytest.raises(OutOfMemoryError, match=message):
        scaled_pair("llama-3.1-70b", "68m", CPU)
