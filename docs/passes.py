"""A plain token and verification of a few rows on a CPU, in a folder's model.

``python docs/passes.py FOLDER --length 1k,4k,16k --rows 1,8,16 --out passes.json``

The cache is random, in float32. A pass stands beside the time that it cannot be faster than
(``specx/bench/floors.py``). Memory is read in turn with the passes, because its bandwidth is not
the same all the time.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from specx.bench.floors import pass_floor
from specx.decoding.forward import cache_shape
from specx.decoding.kv_cache import PreallocatedCache
from specx.models.call import TreeCall
from specx.models.load import load_model
from specx.models.loaded import LoadedModel, ModelSpec
from specx.ops.ancestors import AncestorMask, chain_sets
from specx.ops.ceilings import Ceilings, measure_ceilings, reader
from specx.reports.figures import parse_lengths

CPU = torch.device("cpu")
WARM_UP = 2  # passes that do not count


def main() -> None:
    arguments = _arguments()
    model = load_model(ModelSpec(arguments.model, dtype="float32"), CPU, "target")
    ceilings = measure_ceilings(CPU)
    found: dict[str, Any] = {
        "model": Path(arguments.model).name,
        "threads": torch.get_num_threads(),
        "ceilings": asdict(ceilings),
        "passes": [],
    }
    print(json.dumps(found), flush=True)
    rows, read = [int(part) for part in arguments.rows.split(",")], reader()
    for length in parse_lengths(arguments.length):
        for timed in measure(model, length, rows, arguments.repeats, ceilings, read):
            found["passes"].append(timed)
            print(timed, f"{timed['over_floor']:.2f} x its floor", flush=True)
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="the folder of a model")
    parser.add_argument("--length", default="4k", help="tokens in the cache, as 1k,4k")
    parser.add_argument("--rows", default="1,8,16")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out")
    return parser.parse_args()


def measure(
    model: LoadedModel, length: int, rows: Sequence[int], repeats: int, ceilings: Ceilings,
    read: Callable[[], float],
) -> Iterator[dict[str, float]]:  # fmt: skip
    """Time passes over each number of ``rows`` behind a random cache of ``length`` tokens.

    ``read``: measures the bandwidth of reading, in bytes/s, which takes the place of that in
    ``ceilings``. Yields medians in ms, and of the bandwidth in bytes/s.
    """
    cache = PreallocatedCache(cache_shape(model), length + max(rows))
    cache.storage.normal_(generator=torch.Generator().manual_seed(1))
    cache.length.fill_(length)
    for count in rows:
        seconds, bandwidths = [], []
        for _ in range(WARM_UP + repeats):
            bandwidths.append(read())
            begin = time.perf_counter()
            one_pass(model, cache, count)
            seconds.append(time.perf_counter() - begin)
        best = replace(ceilings, bandwidth=median(bandwidths[WARM_UP:]))
        taken, floor = median(seconds[WARM_UP:]), pass_floor(model, best, length, count)
        yield {
            "tokens": length,
            "rows": count,
            "decoder_ms": 1e3 * taken,
            "floor_ms": 1e3 * floor,
            "bandwidth": best.bandwidth,
            "over_floor": taken / floor,
        }


def one_pass(model: LoadedModel, cache: PreallocatedCache, rows: int) -> None:
    """Read a chain of random tokens behind what the cache holds."""
    tokens = torch.randint(model.vocab_size, (rows,), generator=torch.Generator().manual_seed(rows))
    call = TreeCall(
        ops=model.ops,
        mapping=cache.mapping(rows),
        prefix=cache.length,
        mask=AncestorMask(chain_sets(rows, CPU), rows),
    )
    with torch.inference_mode():
        model.model.run(tokens, cache.next_position + torch.arange(rows), call)


if __name__ == "__main__":
    main()
