"""Models that only transformers can run, in its own unmodified classes, checked before use.

These are plain decoders with full attention: models of families that ``families/`` lacks, and
models in torch files. The seam is transformers' attention interface and cache: one extra keyword
argument, ``specx_call``, describes the pass to the attention function.
"""

from collections.abc import Sequence
from dataclasses import replace
from pickle import UnpicklingError
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.cache_utils import Cache

from specx.errors import is_out_of_memory
from specx.models.call import AttentionCall, TreeCall
from specx.models.checkpoint import no_room, pickled, unreadable
from specx.models.decoder import Call
from specx.models.decoder_files import check_complete, other_shapes
from specx.models.facts import LENGTHENED, check_rope, model_facts, rope_kind, window
from specx.models.families import family_of
from specx.models.loaded import DTYPES, LoadedModel
from specx.models.model_files import ModelFiles, attending_ops, fetch_weights
from specx.models.seam_config import check_kind, check_layers, quiet_transformers, read_config
from specx.models.seam_trial import check_pieces, check_rotation, run_apart
from specx.models.source import ModelSource, not_supported
from specx.ops.layers import LinearMap
from specx.ops.trees import MAX_ROWS

NAME = "specx"


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # None: this implementation has no mask function
    *,
    scaling: float,
    specx_call: AttentionCall,
    **extras: Any,
) -> tuple[Tensor, None]:
    """Store the new keys and values, and attend.

    q [1, Hq, T, D]; k, v [1, Hkv, T, D], new rows, unrepeated -> (out [1, T, Hq, D], None).
    """
    more = {**extras, "attention_mask": attention_mask}
    return specx_call.attend(module.layer_idx, query, key, value, scaling, **more), None


AttentionInterface.register(NAME, attention)


class SeamModel:
    """A transformers model with the interface of a ``Decoder``.

    ``module`` keeps its own classes, and attends through ``attention``.
    """

    runs_natively, saved_bytes = False, 0

    def __init__(self, module: Any) -> None:
        self.module, self._head = module, module.get_output_embeddings()
        self.embed = module.get_input_embeddings()
        self.weights = SimpleNamespace(
            embedding=self.embed.weight,
            head=LinearMap(self._head.weight, getattr(self._head, "bias", None)),
        )

    def logits(self, x: Tensor) -> Tensor:
        """Return logits [T, V] of normed hidden states [T, K]."""
        return self._head(x[None])[0]

    def run(
        self, ids: Tensor, positions: Tensor, call: Call, logits_to_keep: Tensor | int = 0
    ) -> Tensor:
        """Compute logits as ``Decoder.run`` does. transformers may wait for the device."""
        features, past = call.features, call.prefix if isinstance(call, TreeCall) else call.past
        output = self.module(
            input_ids=ids[None],
            position_ids=positions[None],
            past_key_values=SeamCache(past),
            use_cache=True,
            logits_to_keep=logits_to_keep,
            specx_call=call,
            **({} if features is None else {"output_hidden_states": True}),
        )
        if features is not None:
            *inputs, normed = output.hidden_states
            for layer, hidden in enumerate(inputs):
                features.record(hidden[0], layer)
            features.record(normed[0], None)
        return output.logits[0]


class SeamCache(Cache):
    """A stand-in for a cache of ``length`` rows (int64 [1], or a number).

    transformers reads only the length.
    """

    def __init__(self, length: Tensor | int) -> None:
        super().__init__(layers=[])
        self.length = length

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Return new rows unchanged: the attention function stores them (``SlotMapping``)."""
        return key_states, value_states

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        return int(self.length)  # not asked where positions are given

    def get_mask_sizes(self, query_length: int, *_: Any, **__: Any) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self, *_: Any) -> int:
        return -1  # none


def load_modules(files: ModelFiles, positions: int | None) -> LoadedModel:
    """Load a model as ``load_model`` does."""
    source, spec, is_draft = files.source, files.spec, files.role == "draft"
    with quiet_transformers():
        config, used = judge(files, positions)
        tokenizer = files.tokenizer
        stored = getattr(config, "dtype", None) or torch.float32
        source, _ = fetch_weights(files, stored)
        module = _load_weights(source, config, spec.dtype, files.device)
        loaded = in_memory(module, tokenizer, spec.model, spec.attention)
        loaded = with_scalings(loaded, run_apart(loaded, source.label, used)[0])
        if family_of(files.raw) is None:  # those of known families are causal and heed positions
            check_pieces(loaded, source.label)
        if is_draft:
            check_rotation(loaded, source.label, used)
    # Where positions are learned, a tree behind the text needs some as well, and dynamic
    # frequencies would change for all rows of a pass that has one beyond.
    ends = not loaded.decoder_spec.ropes or rope_kind(config) == "dynamic"
    room = max(1, loaded.window - MAX_ROWS) if ends else loaded.window
    return replace(loaded, generation_config=files.generation_config, window=room, config=files.raw)


def with_scalings(loaded: LoadedModel, scalings: Sequence[float]) -> LoadedModel:
    """Return the model with each layer's own factor of attention scores."""
    pairs = zip(loaded.decoder_spec.layers, scalings, strict=True)
    layers = [
        replace(layer, attention=replace(layer.attention, scaling=own)) for layer, own in pairs
    ]
    return replace(loaded, decoder_spec=replace(loaded.decoder_spec, layers=tuple(layers)))


def judge(files: ModelFiles, positions: int | None) -> tuple[Any, int]:
    """Return a model's config and its usable positions, before its weights are read.

    Raises ModelError for a model that cannot run through the seam.
    """
    label = files.source.label
    check_kind(files.raw, label)
    with quiet_transformers():
        config = read_config(files.source.folder, label)
        stretched = rope_kind(config) in LENGTHENED
        used = positions or window(config, files.most_tokens if stretched else None)
        check_layers(config, label, used)
        check_rope(config, label, moves_keys=files.role == "draft")
    return config, used


def in_memory(module: Any, tokenizer: Any, source: str, attention: str = "auto") -> LoadedModel:
    """Wrap a model that is already on its device. From now on, the model attends through specx.

    Raises ModelError if it states no window, and as ``attending_ops`` does.
    """
    facts = model_facts(module, tokenizer)
    dim = facts["decoder_spec"].softmax.head_dim
    module.set_attn_implementation(NAME)
    tensors = {t.data_ptr(): t.nbytes for t in (*module.parameters(), *module.buffers())}
    return LoadedModel(
        **facts,
        model=SeamModel(module),
        tokenizer=tokenizer,
        source=source,
        dtype=module.dtype,
        device=module.device,
        weight_bytes=sum(tensors.values()),
        ops=attending_ops(source, attention, module.device, module.dtype, dim),
    )


def _load_weights(source: ModelSource, config: Any, dtype: str, device: torch.device) -> Any:
    try:
        module, report = AutoModelForCausalLM.from_pretrained(
            source.folder,
            config=config,
            dtype=DTYPES[dtype] or "auto",
            attn_implementation=NAME,
            trust_remote_code=False,
            local_files_only=True,
            weights_only=True,
            output_loading_info=True,
        )
        module = module.to(device)
    except Exception as error:  # file formats and the allocator: no common class
        raise _loading_error(error, source, config) from error
    ignored = [n for n in report["unexpected_keys"] if _is_in_layer(n, config.num_hidden_layers)]
    check_complete(report["missing_keys"], ignored, source.label)
    return module.eval().requires_grad_(False)


def _loading_error(error: Exception, source: ModelSource, config: Any) -> Exception:
    label = source.label
    if is_out_of_memory(error):
        return no_room(label)
    if isinstance(error, KeyError) and error.args == (NAME,):
        kind = config.model_type
        return not_supported(label, f"({kind}) does not call transformers' attention interface")
    if isinstance(error, UnpicklingError):
        return pickled(label)
    return other_shapes(label) if "ismatch" in str(error) else unreadable(label, error)


def _is_in_layer(name: str, layers: int) -> bool:
    """Return True if a tensor belongs to one of the first ``layers`` layers."""
    parts = name.split(".")
    number = next((int(part) for part in parts if part.isdigit()), layers)
    return "layers" in parts and number < layers
