"""Heads on a CUDA device: kernels say what their modules say, and the text is the target's own."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, Qwen3Config

from specx.bench.generated import generate_report
from specx.models.call import PrefillCall, SlotMapping, TreeCall
from specx.models.decoder_files import tensors_of
from specx.models.head_config import EAGLE, EAGLE3, HeadSpec
from specx.models.head_decoder import HeadDecoder, head_weights
from specx.ops.ancestors import AncestorMask, chain_sets
from specx.ops.contract import built_in_ops
from specx.ops.layers import LinearMap
from specx.prompts.digest import Digest
from specx.records import Method
from specx.runs.pair import load_pair
from tests.gpu.test_cuda import CUDA, same_or_tied, written
from tests.gpu.test_decoder import ERROR
from tests.gpu.test_lookup import mini
from tests.models.families import Read
from tests.models.head_module import Head
from tests.models.modules import NAME

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

PREFIX, CAPACITY, STATES, VOCABULARY = 100, 300, 70, 1000
KINDS: dict[str, dict[str, Any]] = {
    "eagle": {"input": EAGLE, "features": (), "vocabulary": None, "final_norm": False},
    "eagle with biases": {"input": EAGLE, "features": (), "vocabulary": None, "fc_bias": True},
    "eagle3": {},
    "normed residual": {"norms_residual": True, "feature_norm": "each"},
    "fed back, two layers": {"feeds_normed": True, "feature_norm": "all", "layers": 2},
    "qwen3 with biases": {"family": Qwen3Config, "attention_bias": True},
}


def make_head(hidden: int, device: torch.device, **flags: Any) -> Head:
    """A random head in float32. From a hidden size of 2,048 on all products are Hopper's."""
    family, layers = flags.pop("family", LlamaConfig), flags.pop("layers", 1)
    config = family(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 256),
        head_dim=64,
        attention_bias=flags.pop("attention_bias", False),
    )
    spec: dict[str, Any] = {"input": EAGLE3, "features": (1, 2, 3), "vocabulary": 480}
    made = HeadSpec(config=config.to_dict(), feature_size=hidden, embeds=True, **(spec | flags))
    torch.manual_seed(hidden)
    head = Head(made, nn.Identity(), nn.Linear(hidden, VOCABULARY, bias=False))
    head.config._attn_implementation = NAME
    for weight in head.parameters():
        size = weight.shape[-1]
        weight.data = (
            1 + torch.randn(size) / 5 if weight.ndim == 1 else torch.randn(weight.shape) / size**0.5
        )
    return head.to(device).eval().requires_grad_(False)


def decoder_of(head: Head) -> HeadDecoder:
    """The same head as a decoder, with copies of its weights."""
    weight, ops = head.fc.weight, built_in_ops(CUDA)
    tensors = {name: each.clone() for name, each in head.state_dict().items()}
    read = Read(tensors, weight.dtype, CUDA)
    weights = head_weights(
        head.spec,
        read.joined,
        ops.prepack,
        "The head",
        embedding=head.embed_tokens.weight,
        head=LinearMap(head.lm_head.weight, None),
        target_ids=head.target_ids,
    )
    return HeadDecoder(weights, ops)


def one_pass(
    head: Head | HeadDecoder,
    config: Any,
    count: int,
    *,
    rows: Any = 0,
    parents: bool,
    prefill: bool = False,
) -> Any:
    """States, logits, and the keys and values of a chain behind a prefix."""
    generator = torch.Generator().manual_seed(count)
    is_decoder = isinstance(head, HeadDecoder)
    weight = head.weights.fc.weight if is_decoder else head.fc.weight
    tokens = torch.randint(0, VOCABULARY, (count + 1,), generator=generator).to(CUDA)[1:]
    features = torch.randn(STATES if parents else count, head.spec.width, generator=generator)
    places = torch.randint(0, STATES, (count,), generator=generator).to(CUDA) if parents else None
    shape = (config.num_hidden_layers, 2, config.num_key_value_heads, CAPACITY, config.head_dim)
    storage = torch.randn(shape, generator=generator).to(weight)
    slots = PREFIX + torch.arange(count, device=CUDA)
    kind, settings = PrefillCall, {"past": PREFIX}
    if not prefill:
        mask = AncestorMask(chain_sets(count, CUDA), count)
        kind, settings = TreeCall, {"prefix": torch.tensor([PREFIX], device=CUDA), "mask": mask}
    call = kind(ops=built_in_ops(CUDA), mapping=SlotMapping(storage, slots), **settings)
    with torch.inference_mode():
        if is_decoder:
            states = head.project(features.to(weight))
            out, logits = head.run((tokens, states, slots), call, rows, places)
        else:
            states = head.project(features[None].to(weight))
            out, logits = head(tokens[None], states, slots[None], rows, places, specx_call=call)
            out, logits = out[0], logits[0]
    return out, logits, storage[:, :, :, slots]


def errors(results: Any, expected: Any) -> list[float]:
    return [
        float((x - exact).norm() / exact.norm()) if exact.numel() else 0.0
        for x, exact in zip(results, expected, strict=True)
    ]


@pytest.mark.parametrize("count", [1, 10, 64])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("hidden", [256, 2048])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_says_what_the_modules_say(kind: str, hidden: int, dtype: str, count: int) -> None:
    exact = make_head(hidden, CUDA, **KINDS[kind])
    head = copy.deepcopy(exact).to(getattr(torch, dtype))
    head.rotary_emb.inv_freq = exact.rotary_emb.inv_freq  # in float32, as when it is loaded
    decoder, config = decoder_of(head), exact.config
    for rows, parents, prefill in (
        (0, True, False),
        (torch.tensor([count // 2], device=CUDA), False, False),
        (None, False, False),
        (None, False, True),
        (1, False, True),
    ):
        options = {"rows": rows, "parents": parents, "prefill": prefill}
        ours, theirs, expected = (
            one_pass(each, config, count, **options) for each in (decoder, head, exact)
        )
        found, limits = errors(ours, expected), errors(theirs, expected)
        print(f"decoder {max(found):.1e}, modules {max(limits):.1e}")
        assert all(a < max(ERROR[dtype], 1.5 * b) for a, b in zip(found, limits, strict=True))
        again = one_pass(decoder, config, count, **options)
        assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))


def test_weights_are_there_once() -> None:
    head = make_head(2048, CUDA).to(torch.bfloat16)
    weights = decoder_of(head).weights
    frequencies = {id(each) for each in tensors_of(weights.decoder)}
    every = [each for each in tensors_of(weights) if id(each) not in frequencies]
    kept = {w.untyped_storage().data_ptr(): w.untyped_storage().nbytes() for w in every}
    expected = sum(weight.nbytes for weight in head.state_dict().values())
    assert sum(kept.values()) == expected + head.target_ids.nbytes


@pytest.mark.parametrize("characters", [6_000, 60_000])
def test_with_the_embedded_head_the_text_is_that_of_plain_decoding(characters: int) -> None:
    profile = mini(name="mini-eagle3")
    pair = load_pair(profile, "specextend", CUDA)
    digest = Digest(pair.target.tokenizer, sentences=8, whole=True)
    prompt = digest.prompts(generate_report(characters, seed=2), 24_000)[0].token_ids
    plain, _ = written(pair, profile, "plain", prompt)
    methods: tuple[Method, ...] = ("tree", "streaming", "specextend", "specextend+lookup")
    for method in methods:
        ours, tally = written(pair, profile, method, prompt)
        same_or_tied(pair, prompt, plain, ours)
        assert tally.steps <= len(plain)


def graph_of(tensors: list[Tensor], work: Any) -> torch.cuda.CUDAGraph:
    """Record work once, without an eager call; what it returns goes to ``tensors``."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(capture_error_mode="relaxed")
        tensors += work()
        graph.capture_end()
    return graph


def test_a_level_can_be_recorded_at_once() -> None:
    module = make_head(2048, CUDA).to(torch.bfloat16)
    head = decoder_of(module)
    cache = torch.randn(1, 2, module.config.num_key_value_heads, CAPACITY, 64, device=CUDA)
    states = torch.randn(STATES, 2048, device=CUDA, dtype=torch.bfloat16)
    slots = PREFIX + torch.arange(10, device=CUDA)
    stored, prefix = cache.bfloat16(), torch.tensor([PREFIX], device=CUDA)

    def work() -> Any:
        call = TreeCall(
            ops=built_in_ops(CUDA),
            mapping=SlotMapping(stored, slots),
            prefix=prefix,
            mask=AncestorMask(chain_sets(10, CUDA), 10),
        )
        return head.run((7 * slots, states, slots), call, 0, slots % STATES)

    recorded: list[Tensor] = []
    with torch.inference_mode():
        graph, expected = graph_of(recorded, work), work()
        for _ in range(2):
            graph.replay()
            assert all(torch.equal(a, b) for a, b in zip(recorded, expected, strict=True))
            states.copy_(states.flip(0))
            expected = work()
