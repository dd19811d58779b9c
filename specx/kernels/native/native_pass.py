"""A model's weights, and a pass over a few rows with one call."""

import ctypes
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from specx.kernels.layers import DecoderWeights, FewRows, LayerWeights, LinearMap
from specx.kernels.native.code import Code, load, openmp
from specx.kernels.native.decoder import CALL, FRAME, LAYER, MAPS, MODEL, Areas, area_sizes
from specx.kernels.native.emitter import UNIT
from specx.kernels.spec import DecoderSpec, NormSpec

_CALL = struct.Struct(f"{len(CALL)}q")
MOST_ROWS = 64  # of a tree that is verified
AT_ONCE = 2**20  # numbers of a weight that are looked at
LOWER_HALF = 0xFFFF  # of the bits of a float32, which bfloat16 does not have


class Loading:
    """The code of this process, compiled or read by a thread while other work goes on."""

    def __init__(self) -> None:
        self.code: Code | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._load, name="native code")
        self._thread.start()

    def _load(self) -> None:
        # Another OpenMP, a processor that LLVM does not know, an llvmlite that is broken: torch
        # computes all passes then.
        with suppress(Exception):
            self.code = load()
        self._is_over = True

    def wait(self) -> Code | None:
        """Return the code when it is there, or None where there is none."""
        if not self._is_over:
            self._thread.join()
        return self.code


class NativePass:
    """``WholePass`` in machine code."""

    def __init__(self, weights: DecoderWeights, loading: Loading) -> None:
        """``weights`` satisfy ``suits``; they stay where they are, and what they are."""
        self._weights, self._loading = weights, loading
        self.saved_bytes = 0
        self._model: list[int] = []
        self._preparing = threading.Lock()
        layer = weights.spec.layers[0]
        self._dim = layer.attention.head_dim
        self._query_heads = layer.attention.query_heads
        self._kv_heads = layer.attention.kv_heads
        self._inner = layer.mlp.inner
        self._vocabulary, self._hidden = weights.head.weight.shape
        self._rows = torch.arange(MOST_ROWS)
        self._scratch: dict[int, list[_Scratch]] = {}  # that no pass uses, by number of threads

    def _model_entries(self) -> list[int]:
        """Return the entries ``MODEL``, with copies of weights that the first pass makes.

        Where threads or features allow no pass, nobody needs them.
        """
        with self._preparing:
            if not self._model:
                self._model = self._prepare()
        return self._model

    def _prepare(self) -> list[int]:
        self._weights = weights = shortened(self._weights)
        short = (each.weight for each in maps_of(weights) if each.weight.dtype == torch.bfloat16)
        self.saved_bytes = sum(2 * weight.numel() for weight in short)
        table = [number for each in weights.layers for number in _layer_entries(each)]
        self._table = torch.tensor(table)
        norm, spec, (rope,) = weights.norm, weights.spec, weights.spec.ropes
        assert norm is not None
        assert spec.norm is not None
        known = _map_entries("head", weights.head) | {
            "layer_count": len(weights.layers), "hidden": self._hidden,
            "query_heads": self._query_heads, "kv_heads": self._kv_heads, "head_dim": self._dim,
            "inner": self._inner, "vocabulary": self._vocabulary,
            "embedding": weights.embedding.data_ptr(),
            "embedding_by_column": int(not weights.embedding.is_contiguous()),
            "frequencies": rope.inv_freq.data_ptr(), "amplitude": _bits(rope.amplitude),
            "layers": self._table.data_ptr(),
            "scaling": _bits(spec.layers[0].attention.scaling),
            "norm": norm.data_ptr(), "eps": _bits(spec.norm.eps),
        }  # fmt: skip
        assert set(known) == set(MODEL)
        return [known[name] for name in MODEL]

    def serves(self, rows: int) -> bool:
        threads, heads = torch.get_num_threads(), self._kv_heads
        fits = threads % heads == 0 or heads % threads == 0
        # Waited for, once on a machine: a text is rounded in one way from its beginning.
        code = self._loading.wait() if fits and rows <= MOST_ROWS else None
        return code is not None and code.has_team(threads)

    def __call__(self, few: FewRows) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], ...]]:
        code, rows, threads = self._loading.code, few.tokens.shape[0], torch.get_num_threads()
        assert code is not None
        storage, mask, wanted = few.storage, few.mask, few.wanted
        assert isinstance(storage, Tensor)
        prefix, capacity = int(few.prefix), storage.shape[3]
        if prefix + mask.rows > capacity:
            raise IndexError(f"{mask.rows} rows behind {prefix} in a cache of {capacity}")
        if isinstance(wanted, int):
            first = max(0, rows - wanted) if wanted else 0
            wanted = self._rows[first:rows]
        # Held here until the pass is done: some come as one number for all rows.
        tokens, positions, slots, sets, wanted = (
            each.contiguous() for each in (few.tokens, few.positions, few.rows, mask.sets, wanted)
        )
        logits = _numbers(wanted.shape[0], self._vocabulary)
        queries = ends = None
        (kept,) = few.kept or (None,)
        if kept is not None:
            queries = _numbers(self._query_heads, rows, self._dim)
            ends = _numbers(2, self._query_heads, rows)
        free = self._scratch.setdefault(threads, [])
        try:
            scratch = free.pop()
        except IndexError:
            scratch = self._make_scratch(threads)
        table = scratch.table(rows)
        _CALL.pack_into(
            table, 0,
            tokens.data_ptr(), positions.data_ptr(), slots.data_ptr(), storage.data_ptr(),
            capacity, prefix, sets.data_ptr(), sets.shape[1], mask.rows,
            wanted.data_ptr(), wanted.shape[0], logits.data_ptr(),
            -1 if kept is None else kept, _address(queries), _address(ends),
        )  # fmt: skip
        openmp().GOMP_parallel(code.run, table, threads, 0)
        free.append(scratch)
        if queries is None or ends is None:
            return logits, ()
        greatest, totals = ends
        return logits, ((queries, totals.log_().add_(greatest)),)

    def _make_scratch(self, threads: int) -> "_Scratch":
        sizes = partial(
            area_sizes, threads=threads, hidden=self._hidden, query_heads=self._query_heads,
            kv_heads=self._kv_heads, head_dim=self._dim, inner=self._inner,
        )  # fmt: skip
        return _Scratch(self._model_entries(), threads, sizes)


class _Scratch:
    """The memory of all threads for one pass at a time, and tables with its places."""

    def __init__(self, model: list[int], threads: int, sizes: Callable[[int], Areas]) -> None:
        """``model``: the entries ``MODEL``; ``sizes``: of areas, for a number of rows."""
        self._model, self._threads, self._sizes = model, threads, sizes
        # What few rows do not need of it is never touched.
        self._memory = _numbers(threads * sum(sizes(MOST_ROWS).values()))
        self._tables: dict[int, Any] = {}

    def table(self, rows: int) -> Any:
        """Return the table for passes over so many rows; ``CALL`` is to be filled in."""
        if rows not in self._tables:
            sizes, place = self._sizes(rows), self._memory.data_ptr()
            places = [place + 4 * end for end in accumulate(sizes.values(), initial=0)]
            entries = dict.fromkeys(CALL, 0) | dict(zip(MODEL, self._model, strict=True))
            entries |= {"rows": rows, "threads": self._threads, "stride": sum(sizes.values())}
            entries |= dict(zip(sizes, places, strict=False))
            self._tables[rows] = (ctypes.c_int64 * len(FRAME))(*(entries[n] for n in FRAME))
        return self._tables[rows]


def shortened(weights: DecoderWeights) -> DecoderWeights:
    """Return the same weights with those in bfloat16 that are exactly numbers of it.

    Published models mostly are. A pass over few rows takes as long as reading them, so half the
    bytes are half the time. The others and, where memory is short, all stay as they are.
    """
    if sum(2 * each.weight.numel() for each in maps_of(weights)) > weights.spare():
        return weights
    layers = []
    for layer in weights.layers:
        changed: dict[str, Any] = {name: _shortened(getattr(layer, name)) for name in MAPS}
        layers.append(replace(layer, **changed))
    return replace(weights, layers=layers, head=_shortened(weights.head))


def maps_of(weights: DecoderWeights) -> list[LinearMap]:
    """Return all linear maps: those of the layers, and last the lm head."""
    return [getattr(layer, name) for layer in weights.layers for name in MAPS] + [weights.head]


def _shortened(linear_map: LinearMap) -> LinearMap:
    weight = linear_map.weight.detach()
    lines = weight.t() if _by_column(weight) else weight
    for part in lines.split(max(1, AT_ONCE // lines.shape[1])):
        if bool((part.view(torch.int32) & LOWER_HALF).any()):
            return linear_map
    return replace(linear_map, weight=weight.to(torch.bfloat16))


@cache
def loading() -> Loading:
    """Return the code of this process, which is there some time after the first call."""
    return Loading()


def suits(weights: DecoderWeights) -> bool:
    """Return True if the pass is written for such a model."""
    maps = [*maps_of(weights), LinearMap(weights.embedding, None)]
    sizes = {size for each in maps[:-2] for size in each.weight.shape}
    sizes |= {layer.attention.head_dim for layer in weights.spec.layers}
    return (
        _is_known(weights.spec)
        and all(layer.input_norm is not None and layer.is_plain for layer in weights.layers)
        and all(size % UNIT == 0 for size in sizes)
        and all(each.weight.dtype == torch.float32 for each in maps)
        and all(each.weight.is_contiguous() or _by_column(each.weight) for each in maps)
    )


def _is_known(spec: DecoderSpec) -> bool:
    """Return True if the pass is written for such a decoder: all layers attend alike."""
    attentions = [layer.attention for layer in spec.layers]
    alike = {(each.query_heads, each.kv_heads, each.head_dim, each.scaling) for each in attentions}
    special = (each.window or each.softcap or each.sinks or each.temperature for each in attentions)
    return (
        len(alike) == len(spec.ropes) == 1
        and spec.ropes[0].inv_freq.dtype == torch.float32
        and not any(special)
        and (spec.embedding_scale, spec.logit_scale, spec.logit_softcap) == (1.0, 1.0, None)
        and spec.norm is not None
        and spec.norm == NormSpec(eps=spec.norm.eps)
        and len({layer.mlp.inner for layer in spec.layers}) == 1
    )


def _by_column(weight: Tensor) -> bool:
    return weight.t().is_contiguous()


def _layer_entries(layer: LayerWeights) -> Iterator[int]:
    """Yield what the pass finds in its table of a layer."""
    spec, head_norm = layer.spec, layer.spec.attention.head_norm
    assert spec.input_norm is not None
    assert spec.output_norm is not None
    entries = {
        "input_norm": _address(layer.input_norm), "input_eps": _bits(spec.input_norm.eps),
        "query_norm": _address(layer.query_norm), "key_norm": _address(layer.key_norm),
        "head_eps": _bits(0.0 if head_norm is None else head_norm.eps),
        "output_norm": _address(layer.output_norm), "output_eps": _bits(spec.output_norm.eps),
        "rotates": int(spec.attention.rope is not None),
    }  # fmt: skip
    for name in MAPS:
        entries |= _map_entries(name, getattr(layer, name))
    yield from (entries[name] for name in LAYER)


def _map_entries(name: str, linear_map: LinearMap) -> dict[str, int]:
    weight = linear_map.weight
    return {
        name: weight.data_ptr(),
        f"{name}_bias": _address(linear_map.bias),
        f"{name}_by_column": int(not weight.is_contiguous()),
        f"{name}_is_short": int(weight.dtype == torch.bfloat16),
    }


def _numbers(*shape: int) -> Tensor:
    """Return memory for float32, whatever torch's default is just now."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _bits(value: float) -> int:
    """Return the bits of a float32."""
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits
