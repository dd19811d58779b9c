"""The tensors of a model as tables for machine code, and a pass over a few rows in one call."""

import ctypes
import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache, cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from specx.ops.layers import DecoderWeights, LayerWeights, LinearMap, SmallBatch
from specx.ops.native.code import Code, load, openmp, vector_unit
from specx.ops.native.emitter import UNIT
from specx.ops.native.functions import ACTIVATIONS
from specx.ops.native.kinds import (
    PLAIN,
    PassKind,
    kind_of,
    kinds_of_layers,
    maps_of,
    names_of,
    sizes_of,
)
from specx.ops.native.packed import READABLE
from specx.ops.native.tables import (
    ALWAYS,
    BY_COLUMN,
    BY_ROW,
    BYTES,
    CALL,
    FRAME,
    GATHERED,
    HALF,
    LAYER,
    MAP,
    MAPS,
    MODEL,
    NORMS,
    PACKED,
    PIECE,
    SIZES,
    WHOLE,
    area_sizes,
    bounds_to,
    common_sizes,
    largest,
)
from specx.ops.packed_weight import Weight
from specx.ops.spec import DecoderSpec, LayerSpec, NormSpec

_CALL = struct.Struct(f"{len(CALL)}q")
_END = CALL.index("end_layer")
_OF_PIECE = slice(len(CALL) - len(PIECE), len(CALL))
MOST_ROWS = 64  # of a verified tree
AT_ONCE = 2**20  # numbers of a weight that are looked at
LOWER_HALF = 0xFFFF  # of the bits of a float32, which bfloat16 does not have
_BOUNDS = bounds_to(2**24)
_BOUNDS_TABLE = torch.tensor(_BOUNDS)
# Weights -> their copies in bfloat16, None where that is not exact: decoders that differ in their
# frequencies alone have the same ones.
_SHORT = WeakTensorKeyDictionary()
Experts = Callable[[Tensor, Tensor], Tensor]  # of rows x [T, K], and those before their norm
_NONE_KEPT = (ctypes.c_int64 * 3)(-1, 0, 0)


class NativePass:
    """A pass over few rows through all layers at once, in machine code.

    ``saved_bytes``: how many bytes fewer a pass reads, thanks to smaller copies of weights.
    """

    def __init__(self, weights: DecoderWeights, experts: Callable[[LayerWeights], Experts]) -> None:
        """``weights`` satisfy ``suits``; they must stay at their addresses and must not change.

        ``experts``: as ``Ops.experts``. The experts of each layer are computed between parts of a
        pass.
        """
        self._weights = weights
        routed = [i for i, layer in enumerate(weights.layers) if layer.routing is not None]
        self._experts = [(i, experts(weights.layers[i])) for i in routed]
        self.saved_bytes = 0
        self._is_prepared = False
        self._preparing = threading.Lock()
        self._vocabulary = weights.head.weight.shape[0]
        attentions = [layer.attention for layer in weights.spec.layers]
        self._heads = [(each.query_heads, each.head_dim) for each in attentions]
        self._windows = [each.window for each in attentions]
        self._rows = torch.arange(MOST_ROWS)
        self._teams: dict[int, _OnThreads] = {}  # by number of threads
        self._places: tuple[tuple[int, ...], Any] = ((), None)  # of a storage in one tensor
        self._team(torch.get_num_threads())  # so that its code is on its way

    def _team(self, threads: int) -> "_OnThreads":
        team = self._teams.get(threads)
        if team is None:
            team = self._teams[threads] = _OnThreads(self._weights, threads)
        return team

    def _prepared(self) -> DecoderWeights:
        """Return the weights, with smaller copies of some, which are made at the first pass.

        No copies are made if there can be no pass with this number of threads.
        """
        with self._preparing:
            if not self._is_prepared:
                self._weights = weights = shortened(self._weights)
                short = (each.weight for each in maps_of(weights))
                short = (weight for weight in short if weight.dtype == torch.bfloat16)
                self.saved_bytes += sum(2 * weight.numel() for weight in short)
                self._is_prepared = True
        return self._weights

    @property
    def is_row_invariant(self) -> bool:
        """True if other rows never change a row's result, to the bit (``Ops.is_row_invariant``).

        False with windows, because branches are then attended to in storage order.
        """
        return not any(self._windows)

    def serves(self, rows: int, cached: torch.dtype) -> bool:
        """Return True if a pass over this number of rows can run now.

        ``cached``: the dtype of keys and values.
        """
        if rows > MOST_ROWS or not (cached == torch.float32 or _kept_as(cached)):
            return False
        threads = torch.get_num_threads()
        # Waited for, once on a machine: a text is rounded in one way from its beginning.
        code = self._team(threads).code
        return code is not None and code.has_team(threads)

    def __call__(self, batch: SmallBatch) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], ...]]:
        """Store the keys and values of rows, and compute logits.

        Returns logits [rows, V] and, for each recorded layer, rotated queries [Hq, T, D] and the
        log-sum-exp [Hq, T] of their scores.
        """
        rows, threads = batch.tokens.shape[0], torch.get_num_threads()
        team, mask, kept_rows = self._team(threads), batch.mask, batch.logits_to_keep
        code, prefix = team.code, int(batch.prefix)
        assert code is not None
        places = self._places_in(batch.storage, prefix, mask.rows)
        if isinstance(kept_rows, int):
            first = max(0, rows - kept_rows) if kept_rows else 0
            kept_rows = self._rows[first:rows]
        # Held here until the pass is done: some come as one number for all rows.
        tokens, positions, text_rows, sets, kept_rows = (
            each.contiguous()
            for each in (batch.tokens, batch.positions, batch.rows, mask.sets, kept_rows)
        )
        logits = _numbers(kept_rows.shape[0], self._vocabulary)
        kept = [(_numbers(heads, rows, dim), _numbers(2, heads, rows))
                for heads, dim in (self._heads[layer] for layer in batch.recorded)]  # fmt: skip
        kept_table = _table_of_kept(batch.recorded, kept) if kept else _NONE_KEPT
        segments = bisect_left(_BOUNDS, prefix + mask.rows)
        scratch = team.scratch(self._prepared, segments)
        table = scratch.table(rows)
        count = len(self._weights.layers)
        _CALL.pack_into(
            table, 0,
            tokens.data_ptr(), positions.data_ptr(), text_rows.data_ptr(), ctypes.addressof(places),
            prefix, sets.data_ptr(), sets.shape[1], mask.rows,
            mask.rows <= GATHERED and not mask.is_chain,
            segments, kept_rows.data_ptr(), kept_rows.shape[0], logits.data_ptr(),
            ctypes.addressof(kept_table), *(0, count, 0, int(not self._experts), 0),
        )  # fmt: skip
        for layer, experts in self._experts:
            table[_END] = layer + 1
            openmp().GOMP_parallel(code.run, table, threads, 0)
            states = scratch.states(rows)
            has_norm = self._weights.spec.layers[layer].output_norm is not None
            y = experts(states["normed" if has_norm else "hidden_rows"], states["hidden_rows"])
            y, noted = y.contiguous(), bisect_right(batch.recorded, layer)
            is_last = int(layer == self._experts[-1][0])
            table[_OF_PIECE] = layer, count, noted, is_last, y.data_ptr()
        openmp().GOMP_parallel(code.run, table, threads, 0)
        team.free.append(scratch)
        return logits, tuple((queries, ends[1].log_().add_(ends[0])) for queries, ends in kept)

    def _places_in(self, storage: Tensor | Sequence[Tensor], prefix: int, behind: int) -> Any:
        """Return the table of places and capacities of the layers' keys and values.

        Raises IndexError if rows do not fit.
        """
        if isinstance(storage, Tensor):
            place, capacity, kept = storage.data_ptr(), storage.shape[3], _kept_as(storage.dtype)
            if prefix + behind > capacity:
                raise IndexError(
                    f"{behind} rows after {prefix} do not fit into a cache of {capacity} rows"
                )
            known, table = self._places
            if known != (place, capacity, kept):
                step = storage.element_size() * storage.stride(0)
                entries = [(place + i * step, capacity, kept) for i in range(len(storage))]
                table = _table(number for each in entries for number in each)
                self._places = (place, capacity, kept), table
            return table
        flat: list[int] = []
        for layer, window in zip(storage, self._windows, strict=True):
            capacity = layer.shape[2]
            needed = prefix if window is None else min(prefix, window)
            if needed + behind > capacity:
                raise IndexError(
                    f"{behind} rows after {prefix} do not fit into a cache of {capacity} rows"
                )
            flat += [layer.data_ptr(), capacity, _kept_as(layer.dtype)]
        return _table(flat)


def _kept_as(cached: torch.dtype) -> int:
    """Return the storage kind of keys and values: ``HALF``, ``BYTES``, or else ``WHOLE``.

    ``HALF`` only if the processor has instructions for it.
    """
    if cached == torch.float16 and vector_unit().has_half:
        return HALF
    return BYTES if cached == torch.int8 else WHOLE


class _OnThreads:
    """The code for one number of threads, and the working memory of its passes."""

    def __init__(self, weights: DecoderWeights, threads: int) -> None:
        self._threads, self._kind = threads, kind_of(weights, threads)
        loading(self._kind)  # begins
        self.free: list[_Scratch] = []  # that no pass uses
        self._shares_heads = not all(layer.owns_heads for layer in self._kind.layers)
        self._layers = self._ropes = self._ones = torch.empty(0)
        self._parts: list[Any] = []  # tables of the parts of matrices in blocks
        self._model: dict[str, int] = {}

    @cached_property
    def code(self) -> Code | None:
        """Wait for the code; None if there is none."""
        return loading(self._kind).result()

    def scratch(self, prepared: Callable[[], DecoderWeights], segments: int) -> "_Scratch":
        """Return memory for a pass over this number of key segments."""
        try:
            scratch = self.free.pop()
        except IndexError:
            return self._make_scratch(prepared(), segments)
        if self._shares_heads and segments > scratch.segments:
            return self._make_scratch(prepared(), segments)
        return scratch

    def _make_scratch(self, weights: DecoderWeights, segments: int) -> "_Scratch":
        if not self._model:
            self._model = self._entries(weights)
        room = 2 ** (segments - 1).bit_length() if self._shares_heads else 0
        return _Scratch(self._model, weights.spec, self._threads, room)

    def _entries(self, weights: DecoderWeights) -> dict[str, int]:
        """Return the table entries ``MODEL``; keep references to the tensors they point to."""
        spec, norm = weights.spec, weights.spec.norm
        self._ones = torch.ones(max(layer.attention.head_dim for layer in spec.layers))
        offsets = list(accumulate((2 * len(each.inv_freq) for each in spec.ropes), initial=0))
        of_rope = {id(rope): offset for rope, offset in zip(spec.ropes, offsets, strict=False)}
        kinds = map(self._kind.layers.index, kinds_of_layers(weights, self._threads))
        self._layers = torch.tensor([
            self._layer_entries(layer, kind, of_rope.get(id(own.attention.rope)))
            for layer, kind, own in zip(weights.layers, kinds, spec.layers, strict=True)
        ])  # fmt: skip
        self._ropes = torch.tensor([
            [rope.inv_freq.data_ptr(), bits(rope.attention_factor), 2 * len(rope.inv_freq), offset]
            for rope, offset in zip(spec.ropes, offsets, strict=False)
        ], dtype=torch.int64)  # fmt: skip
        entries = self._matrix_entries("head", weights.head.weight) | {
            "head_bias": _address(weights.head.bias),
            "layer_count": len(weights.layers), "hidden": spec.hidden,
            "vocabulary": weights.head.weight.shape[0],
            **self._matrix_entries("embedding", weights.embedding),
            "embedding_scale": bits(spec.embedding_scale),
            "ropes": self._ropes.data_ptr(), "rope_count": len(spec.ropes),
            "layers": self._layers.data_ptr(),
            "norm": _address(weights.norm), "norm_bias": _address(weights.norm_bias),
            "eps": _eps(norm),
            "logit_scale": bits(spec.logit_scale), "logit_cap": bits(spec.logit_softcap or 0.0),
            "bounds": _BOUNDS_TABLE.data_ptr(),
        }  # fmt: skip
        assert set(entries) == set(MODEL)
        return entries

    def _layer_entries(self, layer: LayerWeights, kind: int, angles: int | None) -> list[int]:
        """Return the table entries of a layer.

        ``angles``: the offset of its RoPE's angles.
        """
        spec, attention = layer.spec, layer.spec.attention
        norm, temperature = attention.head_norm, attention.temperature
        entries: dict[str, int] = dict(zip(SIZES, sizes_of(spec), strict=True)) | {
            "kind": kind, "scaling": bits(attention.scaling),
            "rotates": int(angles is not None), "angles_offset": angles or 0,
            "query_norm": _address(layer.query_norm), "query_step": _step(layer.query_norm),
            "key_norm": _address(layer.key_norm), "key_step": _step(layer.key_norm),
            "head_eps": _eps(norm), "ones": self._ones.data_ptr() if attention.value_norm else 0,
            "value_eps": _eps(attention.value_norm),
            "beta": bits(0.0 if temperature is None else temperature.beta),
            "length": 1 if temperature is None else temperature.length,
            "window": attention.window or ALWAYS, "cap": bits(attention.softcap or 0.0),
            "sinks": _address(layer.sinks), "residual_scale": bits(spec.residual_scale),
            "scalar": bits(layer.scalar),
        }  # fmt: skip
        for name in NORMS:
            entries |= {
                f"{name}_norm": _address(getattr(layer, f"{name}_norm")),
                f"{name}_norm_bias": _address(getattr(layer, f"{name}_norm_bias", None)),
                f"{name}_eps": _eps(getattr(spec, f"{name}_norm")),
            }
        entries |= dict.fromkeys((f"{name}{part}" for name in MAPS for part in MAP), 0)
        for name in names_of(layer):
            linear_map = getattr(layer, name)
            entries |= self._matrix_entries(name, linear_map.weight)
            entries[f"{name}_bias"] = _address(linear_map.bias)
        return [entries[name] for name in LAYER]

    def _matrix_entries(self, name: str, weight: Weight) -> dict[str, int]:
        """Return address and kind of a matrix; the address of a packed one is that of its table."""
        if isinstance(weight, Tensor):
            layout = BY_ROW if weight.is_contiguous() else BY_COLUMN
            layout += int(weight.dtype == torch.bfloat16)
            return {name: weight.data_ptr(), f"{name}_layout": layout}
        numbers, end = [len(weight.parts)], 0
        for blocks, form in weight.parts:
            end += len(blocks)
            place = blocks.data_ptr(), blocks.stride(0), self._kind.formats.index(form.name)
            numbers += [end, *place]
        self._parts.append(_table(numbers))
        return {name: ctypes.addressof(self._parts[-1]), f"{name}_layout": PACKED}


class _Scratch:
    """The working memory of all threads for one pass at a time, and the tables of its addresses."""

    def __init__(
        self, model: dict[str, int], spec: DecoderSpec, threads: int, segments: int
    ) -> None:
        """``model``: the entries ``MODEL``. ``segments``: the maximum number of key segments."""
        self.segments = segments
        self._model, self._spec, self._threads = model, spec, threads
        own, common = (sum(sizes.values()) for sizes in self._sizes(MOST_ROWS))
        # What few rows do not need of it is never touched.
        self._memory = _numbers(threads * own + common)
        self._tables: dict[int, Any] = {}
        self._states: dict[int, dict[str, Tensor]] = {}

    def states(self, rows: int) -> dict[str, Tensor]:
        """Return a thread's hidden states by area: [rows, K], unchanged and normed."""
        if rows not in self._states:
            own, size = self._sizes(rows)[0], rows * self._spec.hidden
            firsts = dict(zip(own, accumulate(own.values(), initial=0), strict=False))
            self._states[rows] = {
                name: self._memory[firsts[name] : firsts[name] + size].view(rows, -1)
                for name in ("hidden_rows", "normed")
            }
        return self._states[rows]

    def table(self, rows: int) -> Any:
        """Return the table for passes over this number of rows. The caller fills in ``CALL``."""
        if rows not in self._tables:
            own, common = self._sizes(rows)
            place, stride = self._memory.data_ptr(), sum(own.values())
            behind = place + 4 * self._threads * stride
            entries = dict.fromkeys(CALL, 0) | self._model | _placed(place, own)
            entries |= {"rows": rows, "threads": self._threads, "stride": stride}
            entries |= _placed(behind, common)
            self._tables[rows] = _table(entries[name] for name in FRAME)
        return self._tables[rows]

    def _sizes(self, rows: int) -> tuple[dict[str, int], dict[str, int]]:
        """Return the sizes of each thread's areas, and of those shared by all."""
        angles = sum(2 * len(rope.inv_freq) for rope in self._spec.ropes)
        sizes = {sizes_of(layer) for layer in self._spec.layers}
        few = {"rows": rows, "threads": self._threads, "hidden": self._spec.hidden}
        own = [area_sizes(each, **few, angles=angles) for each in sizes]
        return largest(own), largest(
            [common_sizes(each, rows=rows, segments=self.segments) for each in sizes]
        )


def _placed(place: int, sizes: dict[str, int]) -> dict[str, int]:
    """Return the addresses of areas that follow each other."""
    places = (place + 4 * end for end in accumulate(sizes.values(), initial=0))
    return dict(zip(sizes, places, strict=False))


def _table(numbers: Iterable[int]) -> Any:
    entries = list(numbers)
    return (ctypes.c_int64 * len(entries))(*entries)


def _table_of_kept(layers: tuple[int, ...], kept: Sequence[tuple[Tensor, Tensor]]) -> Any:
    """Return the addresses for the recorded queries and softmax statistics of layers."""
    entries = [(layer, queries.data_ptr(), ends.data_ptr())
               for layer, (queries, ends) in zip(layers, kept, strict=True)]  # fmt: skip
    return _table(number for each in [*entries, (-1, 0, 0)] for number in each)


def shortened(weights: DecoderWeights) -> DecoderWeights:
    """Return the weights, in which those that are exact in bfloat16 have bfloat16 copies.

    Most published models have such weights. A pass over few rows takes as long as reading the
    weights, so half the bytes take half the time. Other weights are kept as they are, and so are
    all weights if memory is short.
    """
    plain = (each.weight for each in maps_of(weights) if isinstance(each.weight, Tensor))
    missing = [weight for weight in plain if weight not in _SHORT]
    if sum(2 * weight.numel() for weight in missing) > weights.memory_budget():
        return weights
    layers = []
    for layer in weights.layers:
        changed: dict[str, Any] = {
            name: _shortened(getattr(layer, name)) for name in names_of(layer)
        }
        layers.append(replace(layer, **changed))
    return replace(weights, layers=layers, head=_shortened(weights.head))


def _shortened(linear_map: LinearMap) -> LinearMap:
    weight = linear_map.weight
    if not isinstance(weight, Tensor):
        return linear_map
    if weight not in _SHORT:
        _SHORT[weight] = _copied(weight.detach())
    short = _SHORT[weight]
    return linear_map if short is None else replace(linear_map, weight=short)


def _copied(weight: Tensor) -> Tensor | None:
    """Return a weight in bfloat16, or None if it is not exactly that."""
    lines = weight.t() if _by_column(weight) else weight
    for part in lines.split(max(1, AT_ONCE // lines.shape[1])):
        if bool((part.view(torch.int32) & LOWER_HALF).any()):
            return None
    return weight.to(torch.bfloat16)


@cache
def loading(kind: PassKind = PLAIN) -> Future[Code | None]:
    """Start to compile or read the code of a kind of pass in a thread; return the future.

    Its result is None if there is no code.
    """
    thread = ThreadPoolExecutor(1, "native code")
    code = thread.submit(_loaded, kind)
    thread.shutdown(wait=False)  # it ends with its work
    return code


def _loaded(kind: PassKind) -> Code | None:
    try:
        return load(kind)
    # Another OpenMP, a processor that LLVM does not know, a broken llvmlite: torch
    # computes all passes then.
    except Exception:
        return None


def suits(weights: DecoderWeights) -> bool:
    """Return True if a pass supports a model with these weights."""
    maps = [*maps_of(weights), LinearMap(weights.embedding, None)]
    return (
        is_written_for(weights.spec)
        and all(_is_readable(each.weight) for each in maps)
        and all(each.dtype == torch.float32 and each.is_contiguous() for each in _others(weights))
    )


def is_written_for(spec: DecoderSpec) -> bool:
    """Return True if a pass supports the layers of a spec, whatever the weights are."""
    return spec.per_layer is None and all(_is_known(layer) for layer in spec.layers)


def _is_readable(weight: Weight) -> bool:
    if not isinstance(weight, Tensor):
        return all(form.name in READABLE for _, form in weight.parts)
    is_plain = weight.is_contiguous() or _by_column(weight)
    return is_plain and weight.dtype == torch.float32


def _is_known(layer: LayerSpec) -> bool:
    attention, norm = layer.attention, layer.attention.head_norm
    mlp, is_clamped = layer.mlp, layer.mlp.clamp is not None
    has_code = mlp.activation in ACTIVATIONS and not is_clamped
    if mlp.experts is not None:
        has_code = (has_code or is_clamped) and mlp.gated and not layer.parallel
    return (
        attention.head_dim % UNIT == 0
        and attention.query_heads % attention.kv_heads == 0
        and not attention.gated
        and attention.latent is attention.delta is None
        and has_code
        and not (norm is not None and norm.whole and norm.after_rope)
        and not (layer.parallel and (layer.attended_norm or layer.mlp_norm))
    )


def _others(weights: DecoderWeights) -> Iterator[Tensor]:
    """Yield all weights and constants that do not belong to linear maps."""
    tensors = [weights.norm, weights.norm_bias, *(rope.inv_freq for rope in weights.spec.ropes)]
    for layer in weights.layers:
        tensors += [getattr(layer, f"{name}_norm") for name in (*NORMS, "query", "key")]
        tensors += [layer.input_norm_bias, layer.output_norm_bias, layer.sinks]
    yield from (each for each in tensors if each is not None)
    yield from (each.bias for each in maps_of(weights) if each.bias is not None)


def _by_column(weight: Tensor) -> bool:
    return weight.t().is_contiguous()


def _step(weight: Tensor | None) -> int:
    """Return the elements from one head's norm weight to the next; 0 if heads share one."""
    return weight.shape[-1] if weight is not None and weight.ndim > 1 else 0


def _numbers(*shape: int) -> Tensor:
    """Return memory for float32, whatever torch's default dtype is."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _eps(norm: NormSpec | None) -> int:
    return bits(0.0 if norm is None else norm.eps)


def bits(value: float) -> int:
    """Return the bits of a number in float32, as an integer."""
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found
