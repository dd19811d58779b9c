"""Decoding by transformers itself, with its model on our decoder's weights or a second copy."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)

from specx.bench.cases import Case
from specx.bench.runs import Measurement, Setting, draft_model
from specx.decoding.methods import Pair
from specx.errors import DocumentError, UsageError
from specx.models.decoder import Decoder
from specx.models.families import read_architecture
from specx.models.families.text_part import has_parts
from specx.models.families.weight_map import WeightMap, rows_of_each
from specx.models.loaded import LoadedModel
from specx.models.memory import check_memory
from specx.models.reference import load_own_class
from specx.models.seam_config import quiet_transformers
from specx.models.source import locate
from specx.ops.blocks import FP8
from specx.ops.layers import DecoderWeights, LinearMap
from specx.ops.packed_weight import PackedWeight, Weight
from specx.ops.spec import LayerSpec
from specx.profile import Profile, Sampling, resolve

ATTENTION = "sdpa"  # what transformers chooses for itself


@contextmanager
def stock(loaded: LoadedModel) -> Iterator[Any]:
    """Provide the transformers model, with its default attention and generation settings."""
    model = stock_model(loaded)
    settings, attention = model.generation_config, model.config._attn_implementation
    model.generation_config = GenerationConfig()
    model.set_attn_implementation(ATTENTION)
    try:
        with quiet_transformers():
            yield model
    finally:
        model.set_attn_implementation(attention)
        model.generation_config = settings


@dataclass(frozen=True)
class Stock:
    """``generate`` of transformers with its own attention and cache.

    The first step, which reads the prompt with target and draft, counts as prefill. ``options``: a
    function that returns extra arguments of ``generate`` for a pair; ``drafts``: True if the method
    uses the profile's draft.
    """

    name: str
    about: str
    options: Callable[[Pair], dict[str, Any]] = lambda _: {}
    drafts: bool = False

    def check(self, profile: Profile) -> None:
        if self.drafts and profile.draft is None:
            raise UsageError(f"profile {profile.name} has no draft, so it cannot run {self.name}")

    def run(self, setting: Setting, case: Case) -> Measurement:
        """Write the output with transformers' ``generate``.

        Raises DocumentError for a prompt that leaves no room, and UsageError for vocabularies of
        different size, which transformers does not support.
        """
        pair = setting.pair
        settings = resolve(setting.profile, "plain", pair.facts)
        limit, window = settings.limit_behind(len(case.ids)), settings.window
        if limit < 1:
            raise DocumentError(
                f"the prompt has {len(case.ids)} tokens, but the window holds {window}"
            )
        if self.drafts:
            draft, _ = draft_model(pair, self.name)
            if draft.vocab_size != pair.target.vocab_size:
                raise UsageError(
                    f"{self.name} needs a draft whose lm head is as large as the target's; "
                    f"{draft.source} has {draft.vocab_size} rows instead of "
                    f"{pair.target.vocab_size}"
                )
        clock = self._generate(pair, settings.sampling, case, limit)
        steps = len(clock.tokens) - 1
        decoded = sum(len(tokens) for tokens in clock.tokens[1:])
        return Measurement.of(
            self.name,
            case,
            [token for tokens in clock.tokens for token in tokens],
            repeat=setting.repeat,
            decode_s=clock.seconds[-1] - clock.seconds[0],
            prefill_s={"target_prefill": clock.seconds[0]},
            acceptance_length=decoded / steps if steps else 1.0,
            accepted_per_step=decoded / steps - 1 if steps else 0.0,
            steps=steps,
            prefilled=len(clock.tokens[0]),
            read_s=0.0,
        )

    def _generate(self, pair: Pair, settings: Sampling, case: Case, limit: int) -> "Clock":
        """Write ``limit`` tokens."""
        device = pair.target.device
        ids = torch.tensor([case.ids], device=device)
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
            torch.manual_seed(settings.seed)
            model = stack.enter_context(stock(pair.target))
            if self.drafts and pair.draft:
                stack.enter_context(stock(pair.draft))
            clock = Clock()
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=limit,
                eos_token_id=sorted(pair.target.eos_token_ids) or None,
                pad_token_id=0,  # there is nothing to pad
                logits_processor=LogitsProcessorList([OwnRules(pair, len(case.ids), settings)]),
                streamer=clock,
                **_sampling(settings),
                **self.options(pair),
            )
        return clock


def _sampling(settings: Sampling) -> dict[str, Any]:
    given = {
        "repetition_penalty": settings.repetition_penalty,
        "no_repeat_ngram_size": settings.no_repeat_ngram,
        "suppress_tokens": list(settings.suppress_tokens) or None,
        "begin_suppress_tokens": list(settings.begin_suppress_tokens) or None,
    }
    if settings.temperature == 0:
        return given | {"do_sample": False}
    return given | {
        "do_sample": True,
        "min_p": settings.min_p or None,
        "temperature": settings.temperature,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
    }


class OwnRules(LogitsProcessor):
    """Masks ids outside the tokenizer, and subtracts presence and frequency penalty as in vLLM.

    For target and draft, as our engine does. ``prompt``: tokens of the prompt.
    """

    def __init__(self, pair: Pair, prompt: int, settings: Sampling) -> None:
        masks = [pair.target_allowed] + ([] if pair.draft is None else [pair.draft_allowed])
        self._forbidden = {len(mask): ~mask for mask in reversed(masks) if mask is not None}
        self._prompt, self._settings = prompt, settings

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.masked_fill(self._forbidden[scores.shape[-1]], -torch.inf)
        presence, frequency = self._settings.presence_penalty, self._settings.frequency_penalty
        if presence or frequency:
            written = input_ids[:, self._prompt :]
            ones = torch.ones_like(written, dtype=scores.dtype)
            counts = torch.zeros_like(scores).scatter_add(1, written, ones)
            scores = scores - frequency * counts - presence * (counts > 0)
        return scores


class Clock:
    """A streamer of transformers: the ``tokens`` of each step, and their time in ``seconds``."""

    def __init__(self) -> None:
        self.tokens: list[list[int]] = []
        self.seconds: list[float] = []
        self._started: float | None = None

    def put(self, value: Tensor) -> None:
        """Record the prompt first, then the tokens of each step."""
        now = time.perf_counter()
        if self._started is None:
            self._started = now
        else:
            self.tokens.append(value.flatten().tolist())
            self.seconds.append(now - self._started)

    def end(self) -> None:
        """Do nothing."""


STOCK = (
    Stock("hf-generate", "transformers' generate with its dynamic cache"),
    Stock(
        "hf-assisted",
        "transformers' assisted generation by the draft",
        lambda pair: {"assistant_model": pair.draft and stock_model(pair.draft)},
        drafts=True,
    ),
    Stock(
        "prompt-lookup",
        "transformers' prompt lookup, 10 tokens at a time",
        lambda _: {"prompt_lookup_num_tokens": 10},
    ),
)


# ---------------------------------------------------------------- transformers' own class

_MADE: WeakKeyDictionary[Decoder, Any] = WeakKeyDictionary()


def stock_model(loaded: LoadedModel) -> Any:
    """Return the model of transformers, made once.

    Raises OutOfMemoryError if it needs a second copy that does not fit.
    """
    if not isinstance(loaded.model, Decoder):
        return loaded.model.module
    if loaded.model not in _MADE:
        module = _of_views(loaded) or _loaded_again(loaded)
        _MADE[loaded.model] = module.eval().requires_grad_(False)
    return _MADE[loaded.model]


def _of_views(loaded: LoadedModel) -> Any:
    """Return a model on views of a decoder's weights; None if loading changed the weights."""
    # Packed weights are unpacked in another order; float8 ones transformers would not unpack.
    if loaded.formats is not None and not loaded.formats.startswith(FP8.name):
        return None
    tensors = tensors_by_name(
        loaded.model.weights, read_architecture(loaded.config, loaded.source).weights
    )
    if tensors is None or has_parts(loaded.config):
        return None
    own = {key: value for key, value in loaded.config.items() if key != "quantization_config"}
    config = AutoConfig.for_model(**own)
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config, dtype=loaded.dtype)
    module.load_state_dict(tensors, strict=False, assign=True)
    module.tie_weights()
    # Frequencies are not weights; they are made on the CPU, as when a model is loaded.
    decoder = module.get_decoder()
    if hasattr(decoder, "rotary_emb"):
        decoder.rotary_emb = type(decoder.rotary_emb)(config).to(loaded.device)
    every = [*module.parameters(), *module.buffers()]
    return None if any(tensor.is_meta for tensor in every) else module


def _loaded_again(loaded: LoadedModel) -> Any:
    check_memory(loaded.weight_bytes, loaded.device, f"A second copy of {loaded.source}")
    return load_own_class(locate(loaded.source, None, "target"), loaded.dtype).to(loaded.device)


def tensors_by_name(weights: DecoderWeights, names: WeightMap) -> dict[str, Tensor] | None:
    """Return views of a decoder's weights by the names in its checkpoint.

    Returns None if the weights were changed when the checkpoint was read.
    """
    spec, special = weights.spec, (names.order, names.scalar, names.constants or None)
    if any(each is not None for each in special) or names.norm_offset or names.keys_are_values:
        return None
    if spec.per_layer is not None or any(each.mlp.experts is not None for each in spec.layers):
        return None
    found: dict[str, Tensor] = {}
    outside = {"embedding": weights.embedding, "norm": weights.norm, "head": weights.head.weight,
               "norm_bias": weights.norm_bias, "head_bias": weights.head.bias}  # fmt: skip
    for field, (name,) in names.outside(spec).items():
        found[name] = _kept(outside[field])
    for index, layer in enumerate(weights.layers):
        fields: dict[str, Any] = {}
        for field, value in vars(layer).items():
            is_map = isinstance(value, LinearMap)
            fields |= (
                {field: value.weight, f"{field}_bias": value.bias} if is_map else {field: value}
            )
        for field, members in names.of_layer(spec, index).items():
            found |= _parts(_kept(fields[field]), members, layer.spec)
    return found


def _kept(weight: Weight | None) -> Tensor:
    assert weight is not None
    return weight.unpack() if isinstance(weight, PackedWeight) else weight


def _parts(whole: Tensor, names: Sequence[str], spec: LayerSpec) -> Mapping[str, Tensor]:
    """Return the tensors that were concatenated."""
    rows = rows_of_each(tuple(names), len(whole), spec.attention)
    return dict(zip(names, whole.split(list(rows)), strict=True))
