"""A plain token and verification of a few rows on a CPU, in models of public shapes or a folder's.

``python docs/passes.py smollm3-3b --layers 4 --length 4k --rows 1,8,16 --out passes.json``
``python docs/passes.py FOLDER --length 1k,4k,16k --rows 1 --out passes.json``

The cache is random, in float32. So are the weights of a shape, as numbers of bfloat16, in which
such models are published; each pass runs through our decoder and, in turn, through transformers'
own modules of the same weights. A folder's model is measured alone. A pass stands beside the time
that it cannot be faster than (``specx/bench/floors.py``). Memory is read in turn with the
passes, because its bandwidth is not the same all the time.
"""

import argparse
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from specx.bench.floors import Ceilings, measure_ceilings, pass_floor, reader
from specx.bench.methods.stock import stock_model
from specx.bench.request import parse_lengths
from specx.bench.scaled import tensor_shapes
from specx.bench.scaled_weights import fill_randomly
from specx.bench.shapes import Shape
from specx.decoding.forward import cache_shape
from specx.decoding.kv_cache import PreallocatedCache
from specx.models.call import TreeCall
from specx.models.decoder_files import loaded_decoder
from specx.models.families import read_architecture
from specx.models.load import LoadedModel, ModelSpec, load_model, open_model
from specx.models.memory import check_memory
from specx.models.seam import in_memory
from specx.ops.ancestors import AncestorMask, chain_sets

CPU = torch.device("cpu")
WARM_UP = 2  # passes that do not count
QWEN3_06B = Shape(
    name="qwen3-0.6b",
    family="qwen3",
    hidden_size=1024,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    intermediate_size=3072,
    vocab_size=151936,
    tied=True,
)
SMOLLM3_3B = Shape(
    name="smollm3-3b",
    family="smollm3",
    hidden_size=2048,
    num_layers=36,
    num_heads=16,
    num_kv_heads=4,
    head_dim=128,
    intermediate_size=11008,
    vocab_size=128256,
    tied=True,
)
LAPTOP = {shape.name: shape for shape in (QWEN3_06B, SMOLLM3_3B)}


def main() -> None:
    arguments = _arguments()
    lengths = parse_lengths(arguments.length)
    if arguments.model in LAPTOP:
        shape = LAPTOP[arguments.model]
        layers = min(arguments.layers or shape.num_layers, shape.num_layers)
        forms = build(replace(shape, num_layers=layers), lengths[-1])
        name = f"{shape.name}, {layers} of {shape.num_layers} layers, random weights"
    else:
        spec = ModelSpec(arguments.model, dtype="float32")
        forms, name = Forms(load_model(spec, CPU, "target")), Path(arguments.model).name
    ceilings = measure_ceilings(CPU)
    found: dict[str, Any] = {
        "model": name,
        "threads": torch.get_num_threads(),
        "ceilings": asdict(ceilings),
        "passes": [],
    }
    print(json.dumps(found), flush=True)
    rows, read = [int(part) for part in arguments.rows.split(",")], reader()
    for length in lengths:
        for timed in measure(forms, length, rows, arguments.repeats, ceilings, read):
            found["passes"].append(asdict(timed) | {"over_floor": timed.over_floor})
            print(timed, f"{timed.over_floor:.2f} x its floor", flush=True)
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help=f"{', '.join(LAPTOP)}, or the folder of a model")
    parser.add_argument("--layers", type=int, help="the first so many alone")
    parser.add_argument("--length", default="4k", help="tokens in the cache, as 1k,4k")
    parser.add_argument("--rows", default="1,8,16")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out")
    return parser.parse_args()


@dataclass(frozen=True)
class Forms:
    """A model as our decoder, and perhaps the same as modules of transformers."""

    decoder: LoadedModel
    modules: LoadedModel | None = None

    def each(self) -> dict[str, LoadedModel]:
        """Return those that are there, by name."""
        forms = {"decoder": self.decoder, "modules": self.modules}
        return {name: form for name, form in forms.items() if form is not None}


@dataclass(frozen=True)
class TimedPass:
    """A pass over ``rows`` tokens behind ``tokens``: medians in ms, and of reading memory in turn,
    in bytes/s.

    ``difference``: the largest of logits between both forms, as a share of the largest logit. None:
    there is one form.
    """

    tokens: int
    rows: int
    decoder_ms: float
    modules_ms: float | None
    floor_ms: float
    bandwidth: float
    difference: float | None

    @property
    def over_floor(self) -> float:
        return self.decoder_ms / self.floor_ms


def build(shape: Shape, length: int) -> Forms:
    """Return both forms of a model of random weights, which they share.

    Raises OutOfMemoryError before anything is built when they do not fit with a cache of ``length``
    tokens.
    """
    cached = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * length
    check_memory(4 * (shape.parameters() + cached), CPU, f"A model of {shape.name}")
    config = {**shape.config(), "model_type": shape.family, "tie_word_embeddings": shape.tied}
    config |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    small = open_model(ModelSpec("embedded:target"), CPU, "target")
    name = f"random {shape.name}"
    files = replace(small, spec=ModelSpec(name), raw=config)
    tensors = RandomTensors(tensor_shapes(shape))
    decoder = loaded_decoder(files, read_architecture(config, name), tensors.joined, torch.float32)
    return Forms(decoder, in_memory(stock_model(decoder), small.tokenizer, name))


class RandomTensors:
    """Tensors by name, of normal numbers of bfloat16 in float32 (``Tensors``)."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._numbers = {name: number for number, name in enumerate(shapes)}

    @property
    def names(self) -> Collection[str]:
        return self._shapes.keys()

    def joined(self, names: Sequence[str]) -> Tensor:
        made = [torch.empty(self._shapes[name]) for name in names]
        for name, tensor in zip(names, made, strict=True):
            fill_randomly([tensor], self._numbers[name])
        return torch.cat(made).bfloat16().float()


def measure(
    forms: Forms, length: int, rows: Sequence[int], repeats: int, ceilings: Ceilings,
    read: Callable[[], float],
) -> Iterator[TimedPass]:  # fmt: skip
    """Time passes over each number of ``rows`` behind a random cache of ``length`` tokens.

    ``read``: measures the bandwidth of reading, in bytes/s, which takes the place of that in
    ``ceilings``.
    """
    cache = PreallocatedCache(cache_shape(forms.decoder), length + max(rows))
    cache.storage.normal_(generator=torch.Generator().manual_seed(1))
    cache.length.fill_(length)
    for count in rows:
        seconds: dict[str, list[float]] = {name: [] for name in forms.each()}
        logits: dict[str, Tensor] = {}
        bandwidths = []
        for _ in range(WARM_UP + repeats):
            bandwidths.append(read())
            for name, times in seconds.items():
                begin = time.perf_counter()
                logits[name] = one_pass(forms.each()[name], cache, count)
                times.append(time.perf_counter() - begin)
        best = replace(ceilings, bandwidth=median(bandwidths[WARM_UP:]))
        times_ms = {name: 1e3 * median(times[WARM_UP:]) for name, times in seconds.items()}
        yield TimedPass(
            tokens=length,
            rows=count,
            decoder_ms=times_ms["decoder"],
            modules_ms=times_ms.get("modules"),
            floor_ms=1e3 * pass_floor(forms.decoder, best, length, count),
            bandwidth=best.bandwidth,
            difference=_apart(logits),
        )


def _apart(logits: dict[str, Tensor]) -> float | None:
    if "modules" not in logits:
        return None
    largest = logits["modules"].abs().max()
    return float((logits["decoder"] - logits["modules"]).abs().max() / largest)


def one_pass(model: LoadedModel, cache: PreallocatedCache, rows: int) -> Tensor:
    """Return the logits [rows, V] of a chain of random tokens behind what the cache holds."""
    tokens = torch.randint(model.vocab_size, (rows,), generator=torch.Generator().manual_seed(rows))
    call = TreeCall(
        ops=model.ops,
        mapping=cache.mapping(rows),
        prefix=cache.length,
        mask=AncestorMask(chain_sets(rows, CPU), rows),
    )
    with torch.inference_mode():
        return model.model.run(tokens, cache.next_position + torch.arange(rows), call)


if __name__ == "__main__":
    main()
