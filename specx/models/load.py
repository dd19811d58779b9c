"""Loading a target or a draft: from its files to a model that is ready for the engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from specx.errors import ModelError, UsageError, reason
from specx.models.checkpoint import bytes_to_download, loaded_bytes, weight_files
from specx.models.families import family_of, read_architecture, text_config
from specx.models.families.text_part import has_parts
from specx.models.generation_file import Stated, read_generation, stated_in
from specx.models.gguf.checkpoint import GgufCheckpoint, read_checkpoint
from specx.models.memory import check_memory
from specx.models.source import ModelSource, locate, read_raw
from specx.models.tokenizer_files import load_tokenizer
from specx.ops.contract import Ops, kept_formats, ops_for
from specx.ops.spec import DecoderSpec
from specx.ops.torch.flash_packages import UnusableError

Role = Literal["target", "draft"]
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "auto": None,
}


@dataclass(frozen=True)
class ModelSpec:
    """Which model to load.

    ``model`` is a hub id, a local folder, ``embedded:target`` or ``embedded:draft``; ``revision``
    a branch, tag or commit of the hub; ``dtype`` one of float32, float16, bfloat16, or auto for
    what the checkpoint states; ``attention`` and ``kv_cache_dtype`` as in a profile.

    What the files of a head leave open: ``head_layers`` of the target whose input it reads, counted
    from 0, and the meaning of its key ``norm_output``.
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    attention: str = "auto"
    kv_cache_dtype: str = "auto"
    head_layers: tuple[int, ...] | None = None
    norm_output: Literal["fed-back", "lm-head"] | None = None

    def cache_dtype(self, dtype: torch.dtype, device: torch.device) -> torch.dtype:
        """Return the number format of keys and values of a model that computes in ``dtype``.

        Raises UsageError for one that is asked for and not supported.
        """
        asked = DTYPES[self.kv_cache_dtype]
        if asked is None:
            return dtype
        if device.type != "cpu" or dtype != torch.float32:
            raise UsageError(
                f"`target.kv_cache_dtype: {self.kv_cache_dtype}` is for a CPU that computes in "
                f"float32; {self.model} keeps keys and values in "
                f"{str(dtype).removeprefix('torch.')} on {device.type}: leave the key out."
            )
        return asked


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model ready for the engine, in evaluation mode and without gradients.

    ``vocab_size`` counts the rows of the lm head, padding included. ``window`` is the longest
    input in tokens. ``eos_token_ids`` joins those of the generation config, the config and the
    tokenizer. ``inv_freq`` float32 [R/2], on the CPU: radians per position of the first R elements
    of a head, element i turning with i + R/2 (half-split), so that a key at position p is moved to
    q by the angles ``(q − p) · inv_freq``; None without rotary embeddings, or with several.
    ``source`` is what the user called it; ``weight_bytes`` counts every tensor once; ``ops``: the
    operations of its device; ``stated``: by its own ``generation_config.json``, how tokens are to
    be chosen; ``formats``: of a GGUF model, and if its weights were unpacked; ``decoder_spec``: of
    a ``Decoder``, None for other models; ``spec_of``: returns it for a text of so many tokens, None
    where it is the same for all; ``config``: its ``config.json`` as it is written; ``scalings``: of
    each layer of a ``SeamModel``; ``cache_dtype``: of keys and values, None where it is ``dtype``.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    window: int
    eos_token_ids: frozenset[int]
    inv_freq: Tensor | None
    model: Any
    tokenizer: Any
    source: str
    dtype: torch.dtype
    device: torch.device
    weight_bytes: int
    ops: Ops
    stated: Stated = field(default_factory=Stated)
    formats: str | None = None
    decoder_spec: DecoderSpec | None = None
    spec_of: Callable[[int], DecoderSpec] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    scalings: tuple[float, ...] = ()
    cache_dtype: torch.dtype | None = None

    @property
    def is_ours(self) -> bool:
        """False for a model that transformers computes (``SeamModel``)."""
        return getattr(self.model, "is_ours", False)

    @property
    def computed_by(self) -> str:
        """Say whose code computes the model, for people."""
        return "specx" if self.is_ours else "transformers' modules, which specx does not speed up"

    def for_text(self, tokens: int) -> "LoadedModel":
        """Return the model for a text of at most so many tokens, with output; often this one.

        Some frequencies depend on that (longrope). They stay as they are while the text grows, so
        all methods write the same.
        """
        if self.spec_of is None or self.decoder_spec is None:
            return self
        spec = self.spec_of(tokens)
        if turns_alike(spec, self.decoder_spec):
            return self
        return replace(self, model=self.model.with_spec(spec), decoder_spec=spec)

    @property
    def vocabulary_weights(self) -> tuple[Tensor, Tensor]:
        """Return the embedding and the weight of the lm head, [V, K] each; tied, they are one."""
        weights = self.model.weights
        return weights.embedding, weights.head.weight

    def query_shape(self, layer: int) -> tuple[int, int]:
        """Return the query heads of a layer, and the elements of one."""
        if self.decoder_spec is None:
            return self.num_heads, self.head_dim
        attention = self.decoder_spec.layers[layer].attention
        return attention.query_heads, attention.head_dim

    def scaling_of(self, layer: int) -> float:
        """Return the factor that a layer multiplies its scores with."""
        if self.decoder_spec is not None:
            return self.decoder_spec.layers[layer].attention.scaling
        return self.scalings[layer]

    def softcap_of(self, layer: int) -> float | None:
        """Return the cap of a layer's scores, if they have one."""
        spec = self.decoder_spec
        return None if spec is None else spec.layers[layer].attention.softcap

    @property
    def full_layers(self) -> list[int]:
        """Layers that attend to the whole text, counted from 0."""
        return [layer for layer in range(self.num_layers) if self.window_of(layer) is None]

    def window_of(self, layer: int) -> int | None:
        """Return the window of a layer; None where it sees the whole text."""
        spec = self.decoder_spec
        window = None if spec is None else spec.layers[layer].attention.window
        return None if window is None or window >= self.window else window


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """A model that was found, and all that is read of it before its weights.

    ``raw``: its ``config.json`` as it is written; ``stated``: as of ``LoadedModel``; ``gguf``: of
    a model in that format, which is all of these.
    """

    spec: ModelSpec
    device: torch.device
    role: Role
    source: ModelSource
    raw: dict[str, Any]
    tokenizer: Any
    stated: Stated
    gguf: GgufCheckpoint | None = None


def turns_alike(one: DecoderSpec, other: DecoderSpec) -> bool:
    """Return True if two specs of a model differ in no rotary frequency."""
    ropes = zip(one.ropes, other.ropes, strict=True)
    return all(a.amplitude == b.amplitude and a.inv_freq.equal(b.inv_freq) for a, b in ropes)


def load_model(
    spec: ModelSpec,
    device: str | torch.device,
    role: Role,
    *,
    positions: int | None = None,
    check: Callable[["ModelFiles"], None] | None = None,
) -> LoadedModel:
    """Load a model and see that specx computes it correctly.

    ``positions`` is the number of tokens that may be used, by default the model's window.
    ``check`` is asked before weights are looked for.

    Raises ModelError (exit 4) for a model that is missing, damaged or not supported, and
    OutOfMemoryError (exit 5) when it does not fit, UsageError (exit 2) for a device that is not
    there; each message is one sentence.
    """
    files = open_model(spec, device, role)
    if check is not None:
        check(files)
    model = _own_decoder(files, positions) or _by_transformers(files, positions)
    cache_dtype = spec.cache_dtype(model.dtype, model.device)
    return model if cache_dtype == model.dtype else replace(model, cache_dtype=cache_dtype)


_GENERATES = ("ForCausalLM", "ForConditionalGeneration")  # how classes of whole models end


def _own_decoder(files: ModelFiles, positions: int | None) -> LoadedModel | None:
    """Load a decoder of our own; None for a model that is left to transformers."""
    raw, label = files.raw, files.source.label
    if files.gguf is not None:  # which transformers could not read as exactly
        from specx.models.decoder_files import load_gguf

        return load_gguf(files, files.gguf)
    if raw.get("quantization_config") or family_of(raw) is None:
        return None
    if not all(str(name).endswith(_GENERATES) for name in raw.get("architectures") or []):
        return None
    try:
        read_architecture(raw, label)
    except ModelError as refusal:
        if has_parts(raw):
            raise
        try:  # it may know what the config means
            return _by_transformers(files, positions)
        except ModelError:
            raise refusal from None
    source, found = fetch_weights(files, stated_dtype(raw) or torch.float32)
    if any(file.suffix != ".safetensors" for file in found):
        return None
    from specx.models.decoder_files import load_decoder

    return load_decoder(replace(files, source=source), found)


def unpacked_dtype(files: ModelFiles) -> torch.dtype:
    """Return the number format that a GGUF model is unpacked to, unless a profile says another."""
    usual = torch.float32 if files.device.type == "cpu" else torch.bfloat16
    return DTYPES[files.spec.dtype] or usual


def kept_in_blocks(files: ModelFiles, spec: DecoderSpec) -> tuple[str, ...]:
    """Return the formats in which matrices of a GGUF model stay: those that machine code reads.

    It has passes over whole models alone, and none for experts or embeddings of single layers.
    """
    is_known = spec.per_layer is None and all(layer.mlp.experts is None for layer in spec.layers)
    is_wide = unpacked_dtype(files) == torch.float32
    return kept_formats(files.device) if is_known and is_wide else ()


def _by_transformers(files: ModelFiles, positions: int | None) -> LoadedModel:
    from specx.models.seam import load_modules

    return load_modules(files, positions)


def stated_dtype(config: Mapping[str, Any]) -> torch.dtype | None:
    """Return the number format that a config states for its weights."""
    config = text_config(config)
    return DTYPES.get(str(config.get("dtype") or config.get("torch_dtype")))


def open_model(spec: ModelSpec, device: str | torch.device, role: Role) -> ModelFiles:
    """Find a model and read all but its weights. Raises as ``load_model`` does."""
    device = usable(device)
    if spec.dtype not in DTYPES:
        raise ModelError(f"The dtype {spec.dtype} is unknown; use one of {', '.join(DTYPES)}.")
    source = locate(spec.model, spec.revision, role)
    folder, label, gguf = source.folder, source.label, None
    if source.gguf is None:
        raw, tokenizer = read_raw(folder, label), load_tokenizer(folder, label)
        stated = read_generation(folder, label)
    else:
        gguf = read_checkpoint(source.gguf, label)
        raw, tokenizer, stated = (
            dict(gguf.config),
            gguf.tokenizer,
            stated_in(gguf.generation, label),
        )
    return ModelFiles(
        spec=spec, device=device, role=role, source=source,
        raw=raw, tokenizer=tokenizer, stated=stated, gguf=gguf,
    )  # fmt: skip


def attending_ops(
    source: str, attention: str, device: torch.device, dtype: torch.dtype, head_dim: int
) -> Ops:
    """Return the operations of a device for a model, with the ``attention`` of a profile.

    Raises UsageError for a package that is asked for and cannot be used.
    """
    try:
        return ops_for(device, attention, dtype, head_dim)
    except UnusableError as reason:
        raise UsageError(
            f"{source} cannot use `attention: {attention}` here: {reason}; choose auto, or see "
            "what `specx doctor` finds."
        ) from reason


def usable(device: str | torch.device) -> torch.device:
    """Try the device and return it. Raises UsageError for one that is not there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter: torch was built without CUDA
        raise UsageError(
            f"The device {device} cannot be used ({reason(error)}); choose cpu, or see what "
            "`specx doctor` finds."
        ) from error
    return torch.device(device)


def fetch_weights(
    files: ModelFiles, stored: torch.dtype, *, is_quantized: bool = False
) -> tuple[ModelSource, tuple[Path, ...]]:
    """Download the weights where needed, and see that they are whole and fit into memory.

    ``stored``: the dtype that the config states. Returns where they are, and their files.
    """
    source, device, dtype = files.source, files.device, DTYPES[files.spec.dtype]
    wanted = None if dtype is None else dtype.itemsize
    stated = bytes_to_download(source)
    if stated is not None and not is_quantized:
        # Refused before gigabytes come down the line; the exact answer needs the files.
        needed = stated * (wanted or stored.itemsize) // stored.itemsize
        check_fit(needed, source, device)
    found = weight_files(source)
    check_fit(loaded_bytes(found, source.label, stored.itemsize, wanted), source, device)
    source = ModelSource(found[0].parent, source.label, source.hub_id, source.revision)
    return source, found


def check_fit(needed: int, source: ModelSource, device: torch.device) -> None:
    check_memory(needed, device, source.label)
    if device.type != "cpu":  # the weights pass through main memory on their way
        check_memory(needed, torch.device("cpu"), source.label)
