"""Tiny random pairs, profiles for them, and one whole run of the loop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch

from specx.decoding.decode import decode
from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.methods import Pair
from specx.models.facts import eos_token_ids, window
from specx.models.loaded import LoadedModel
from specx.models.model_files import attending_ops
from specx.profile import GenerationSettings, Profile, resolve
from specx.profile.schema import (
    DraftCacheSettings,
    DraftSettings,
    FallbackSettings,
    TargetSettings,
    TreeSettings,
)
from specx.records import Event, FellBack, Finished, Method, PrefillProgress, Step, Stop, Timings
from tests.models.families import decoder_of
from tests.tiny import VOCAB, make_model, make_tokenizer


@cache
def loaded(
    family: str = "llama",
    seed: int = 0,
    *,
    noise: float = 0.0,
    peak: float = 1.0,
    attention: float = 1.0,
    **overrides: Any,
) -> LoadedModel:
    """A random model as ``load_model`` would return it, without the way over the disk.

    ``noise`` is added to every weight, so that the model is like that of the same seed without
    it. ``peak`` multiplies the lm head: at 5, nearly all probability is on one token, as in a
    model that copies. ``attention`` multiplies what attention adds to the hidden states: at 0.5,
    a draft that sees little of the text is right now and then.
    """
    model, tokenizer = make_model(family, seed, **overrides), make_tokenizer()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += noise * torch.randn(weight.shape, generator=generator)
        model.get_output_embeddings().weight *= peak
        for layer in model.get_decoder().layers:
            layer.self_attn.o_proj.weight *= attention
    config, device = model.config, torch.device("cpu")
    dim = config.hidden_size // config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or dim
    ops = attending_ops("tiny", "auto", device, model.dtype, head_dim)
    decoder = decoder_of(model.requires_grad_(False), ops)
    rows = model.get_output_embeddings().weight.shape[0]
    stated = [each.eos_token_id for each in (model.generation_config, config, tokenizer)]
    return LoadedModel(
        decoder_spec=decoder.spec,
        vocab_size=rows,
        window=window(config.to_dict(), getattr(tokenizer, "model_max_length", None)),
        eos_token_ids=eos_token_ids(stated, rows),
        model=decoder,
        tokenizer=tokenizer,
        source=f"{family}-{seed}",
        dtype=model.dtype,
        device=device,
        weight_bytes=sum({t.data_ptr(): t.nbytes for t in model.parameters()}.values()),
        ops=ops,
        config=config.to_dict(),
    )


def pair_of(target: LoadedModel, draft: LoadedModel | None = None) -> Pair:
    """A pair that may produce every id of the tests' tokenizer."""
    if draft is None:
        return Pair(target, allowed(target))
    return Pair(target, allowed(target), draft, allowed(draft))


def on_triton(pair: Pair) -> Pair:
    """The pair on the Triton backend: its kernels in the interpreter."""
    from specx.ops.triton.backend import TritonOps

    draft = pair.draft and replace(pair.draft, ops=TritonOps())
    return replace(pair, target=replace(pair.target, ops=TritonOps()), draft=draft)


def allowed(model: LoadedModel, ids: Sequence[int] = range(VOCAB)) -> torch.Tensor:
    mask = torch.zeros(model.vocab_size, dtype=torch.bool)
    mask[list(ids)] = True
    return mask


def make_profile(
    *,
    tree: dict[str, Any] | None = None,
    cache: dict[str, Any] | None = None,
    below: float | None = None,
    window: int | None = None,
    **generation: Any,
) -> Profile:
    return Profile(
        name="tiny",
        target=TargetSettings(model="tiny", window=window),
        draft=DraftSettings(model="tinier", trained_context=100_000),
        tree=TreeSettings(**{"nodes": 8, "depth": 3, "threshold": 0.0, **(tree or {})}),
        draft_cache=DraftCacheSettings(**(cache or {})),
        generation=GenerationSettings(**{"max_new_tokens": 24, **generation}),
        fallback=FallbackSettings(below=below),
    )


def make_prompt(length: int, seed: int = 0) -> list[int]:
    """Random ids of the tokenizer, special tokens left out."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCAB, (length,), generator=generator).tolist()


@dataclass
class Run:
    """What one call of ``decode`` yielded."""

    events: list[Any]
    tokens: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)  # without the first token's
    fell_back: list[FellBack] = field(default_factory=list)
    progress: list[PrefillProgress] = field(default_factory=list)
    reason: str = ""
    timings: Timings = field(default_factory=Timings)

    @property
    def lengths(self) -> list[int]:
        return [len(step.tokens) for step in self.steps]

    @property
    def accepted(self) -> list[int]:
        return [step.accepted for step in self.steps]


def run(
    pair: Pair,
    profile: Profile,
    method: Method,
    prompt: Sequence[int],
    stop: Stop | None = None,
) -> Run:
    return collect(decode(pair, resolve(profile, method, pair.facts), prompt, stop=stop))


_PLAIN: dict[tuple[Any, ...], tuple[LoadedModel, Run]] = {}


def run_plain(pair: Pair, profile: Profile, prompt: Sequence[int]) -> Run:
    """Plain decoding, run once for all tests that compare with the same text."""
    asked = profile.generation.model_dump_json(), profile.target.model_dump_json()
    read = *prompt, PREFILL_CHUNK["cpu"]
    key = id(pair.target), asked, read, tuple(pair.target_allowed.tolist())
    if key not in _PLAIN:
        _PLAIN[key] = pair.target, run(pair, profile, "plain", prompt)
    return _PLAIN[key][1]


def check(pair: Pair, method: Method, profile: Profile, prompt: Sequence[int]) -> Run:
    """Return the speculative run, after comparing it with the plain one."""
    expected = run_plain(pair, profile, prompt)
    result = run(pair, profile, method, prompt)
    assert result.tokens == expected.tokens
    assert result.reason == expected.reason
    return result


def collect(events: Iterator[Event]) -> Run:
    result = Run(list(events))
    for event in result.events:
        match event:
            case Step():
                result.tokens += event.tokens
                result.steps += [event] if event.passes else []
            case FellBack():
                result.fell_back.append(event)
            case PrefillProgress():
                result.progress.append(event)
            case Finished():
                result.reason, result.timings = event.reason, event.timings
    assert isinstance(result.events[-1], Finished)
    return result
