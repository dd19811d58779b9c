"""Attention of one layer by everything that can compute it on a GPU: prefill and verification.

``python docs/attention.py --length 1k,4k,16k,64k --rows 16,64 --out attention.json``

The layer has the form of Llama 3.1 8B, or another with ``--heads``, in bf16; with ``--window``,
``--softcap`` or ``--sinks`` that of other models. A prompt is read in
the engine's chunks; verification is a tree behind a prefix, over several layers in turn, so that
their keys do not stay in the GPU's cache. Everything is recorded as CUDA graphs, replayed in turn,
and compared with float64.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from specx.decoding.forward import PREFILL_CHUNK
from specx.ops.ancestors import AncestorMask, single_sets, words_for
from specx.ops.contract import Ops, built_in_ops
from specx.ops.torch.backend import TorchOps
from specx.ops.torch.flash_packages import PACKAGES, FlashOps, FlashPackage, UnusableError, load
from specx.reports.environment import environment, installed_version
from specx.reports.lengths import parse_length

CUDA, DTYPE = torch.device("cuda"), torch.bfloat16
WORKING_SET = 300 * 2**20  # bytes of keys and values that one replay reads at least
SPARE = 128  # rows of storage behind a prefix, the tree's among them
SAMPLED = 64  # last rows of a prompt that are compared with float64


@dataclass(frozen=True)
class Heads:
    """Query heads, key heads and the size of a head, and how they attend (``AttentionSpec``)."""

    query: int
    key: int
    dim: int
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False

    @property
    def is_plain(self) -> bool:
        return self.window is self.softcap is None and not self.sinks

    def options(self) -> dict[str, Any]:
        """Return what ``Ops`` has to know beside the window."""
        sinks = torch.linspace(-2, 3, self.query, device=CUDA) if self.sinks else None
        given = {"softcap": self.softcap, "sinks": sinks}
        return {name: value for name, value in given.items() if value is not None}

    def draw(self, heads: int, rows: int) -> Tensor:
        return torch.randn(heads, rows, self.dim, device=CUDA, dtype=DTYPE)


@dataclass
class Comparison:
    """Raw times of every candidate in ms, relative errors to float64, and what failed why."""

    tokens: int
    rows: int | None
    ms: dict[str, list[float]] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    first_call_s: dict[str, float] = field(default_factory=dict)


def main() -> None:
    arguments = _arguments()
    query, key, dim = (int(part) for part in arguments.heads.split(","))
    heads = Heads(query, key, dim, arguments.window, arguments.softcap, arguments.sinks)
    found, absent = candidates(heads)
    report: dict[str, Any] = {
        **environment(),
        "device": torch.cuda.get_device_name(),
        "flash_packages": {name: installed_version(name) for name in PACKAGES},
        "unusable": absent,
        "heads": vars(heads),
        "prefill": [],
        "verification": [],
    }
    lengths = [parse_length(part) for part in arguments.length.split(",")]
    for tokens in lengths:
        case = prefill(heads, tokens, found, arguments.repeats)
        report["prefill"].append(vars(case))
        _show(case)
    for tokens in lengths:
        for rows in (int(part) for part in arguments.rows.split(",")):
            case = verification(heads, tokens, rows, found, arguments.repeats)
            report["verification"].append(vars(case))
            _show(case)
    print(json.dumps(absent))
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(report, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", default="32,8,128", help="query heads, key heads, size of one")
    parser.add_argument("--window", type=int, help="rows that a token sees; default: all")
    parser.add_argument("--softcap", type=float, help="the cap of scores; default: none")
    parser.add_argument("--sinks", action="store_true", help="one more logit a head")
    parser.add_argument("--length", default="1k,4k,16k,64k", help="tokens of prompt or prefix")
    parser.add_argument("--rows", default="16,64", help="rows of a tree")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--out")
    return parser.parse_args()


def candidates(heads: Heads) -> tuple[dict[str, Ops], dict[str, str]]:
    """Return all that can attend here, by name, and of the other packages why they cannot."""
    own, dim = built_in_ops(CUDA), heads.dim
    found: dict[str, Any] = {"built-in": own, "torch": TorchOps()}
    if not heads.is_plain:
        return found, {}
    found["cudnn"] = FlashOps(own, _CUDNN, "cudnn")
    absent = {}
    for name in PACKAGES:
        try:
            package = load(name, CUDA, DTYPE, dim)
        except UnusableError as reason:
            absent[name] = str(reason)
        else:
            found[name] = FlashOps(own, package, name)
    return found, absent


def _cudnn(
    q: Tensor, k: Tensor, v: Tensor, *, scaling: float, causal: bool,
    window: int | None = None, used: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attend by cuDNN in one call, as a package would, with everything before a tree of 128 rows.

    A prompt has to fit into one chunk: what is longer is read in pieces, which ``built-in`` does.
    """
    assert window is None
    assert not causal or q.shape[1] == k.shape[1], "cuDNN aligns at the first key"
    written = k.shape[1] if used is None else k.shape[1] - SPARE
    rows = (q.transpose(1, 2), *(each[:, :written].transpose(1, 2) for each in (k, v)))
    out, lse = torch.ops.aten._scaled_dot_product_cudnn_attention(
        *rows, None, True, 0.0, causal, False, scale=scaling
    )[:2]
    return out.transpose(1, 2), lse.reshape(1, q.shape[2], q.shape[1])


_CUDNN = FlashPackage("cudnn", _cudnn, windows=False)


# ---------------------------------------------------------------- what is measured


def prefill(heads: Heads, tokens: int, found: dict[str, Ops], repeats: int) -> Comparison:
    """Measure the attention of one layer to a whole prompt, read in chunks.

    With a window in a ring as well, which has the rows that the last chunk sees.
    """
    q = heads.draw(heads.query, tokens)
    keys, values = heads.draw(heads.key, tokens), heads.draw(heads.key, tokens)
    chunk, scaling, options = PREFILL_CHUNK["cuda"], heads.dim**-0.5, heads.options()

    def work_of(ops: Ops, keys: Tensor, values: Tensor) -> Callable[[], Tensor]:
        def work() -> Tensor:
            for start in range(0, tokens, chunk):
                part = q[:, start : start + chunk]
                out = ops.prefill_attention(
                    part, keys, values, start, heads.window, scaling, **options
                )
            return out

        return work

    last = min(SAMPLED, tokens)
    visible = torch.ones(last, tokens, dtype=torch.bool, device=CUDA).tril(tokens - last)
    expected = exact(q[:, -last:], keys, values, visible, heads)
    case = Comparison(tokens, None)
    works = {name: (work_of(ops, keys, values), 1) for name, ops in found.items()}
    if heads.window is not None and tokens > heads.window + chunk:
        ring_keys, ring_values = (in_ring(each, heads.window + chunk) for each in (keys, values))
        works["built-in, in a ring"] = (work_of(found["built-in"], ring_keys, ring_values), 1)
    return measured(case, works, lambda out: out[-last:], expected, repeats)


def in_ring(rows: Tensor, capacity: int) -> Tensor:
    """Return the last of rows [Hkv, S, D], each at its number mod capacity."""
    kept = torch.arange(rows.shape[1] - capacity, rows.shape[1], device=rows.device)
    ring = torch.empty_like(rows[:, :capacity])
    ring[:, kept % capacity] = rows[:, kept]
    return ring


def verification(
    heads: Heads, tokens: int, rows: int, found: dict[str, Ops], repeats: int
) -> Comparison:
    """Measure the attention of a layer to a tree of ``rows`` and to ``tokens`` before it."""
    read = min(tokens, heads.window or tokens)
    layers = max(2, -(-WORKING_SET // (4 * heads.key * heads.dim * read)))
    q, mask, scaling = heads.draw(heads.query, rows), random_tree(rows), heads.dim**-0.5
    options = heads.options() | ({} if heads.window is None else {"window": heads.window})
    storage = [[heads.draw(heads.key, tokens + SPARE) for _ in "kv"] for _ in range(layers)]

    def work_of(name: str, ops: Ops) -> Callable[[], Tensor]:
        # torch and cuDNN read the number on the host, which cannot be recorded of a device's.
        length = torch.tensor([tokens], device="cpu" if name == "torch" else CUDA)

        def work() -> Tensor:
            for keys, values in storage:
                out = ops.tree_attention(q, keys, values, length, mask, scaling, **options)[0]
            return out

        return work

    keys, values = (each[:, : tokens + rows] for each in storage[-1])
    prefix = torch.ones(rows, tokens, dtype=torch.bool, device=CUDA)
    expected = exact(q, keys, values, torch.cat([prefix, mask.dense], dim=1), heads)
    works = {name: (work_of(name, ops), layers) for name, ops in found.items()}
    return measured(Comparison(tokens, rows), works, lambda out: out, expected, repeats)


def random_tree(rows: int) -> AncestorMask:
    """Return a tree in which each node hangs on one of the nodes before it."""
    generator = torch.Generator().manual_seed(rows)
    sets = single_sets(0, rows, words_for(rows), torch.device("cpu"))
    for row in range(1, rows):
        sets[row] |= sets[int(torch.randint(row, (1,), generator=generator))]
    return AncestorMask(sets.to(CUDA), rows)


def exact(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor, heads: Heads) -> Tensor:
    """Attend in float64, a head at a time: [Hq, T, D] -> [T, Hq, D]."""
    group, sinks = len(q) // len(keys), heads.options().get("sinks")
    if heads.window is not None:
        later = visible.flip(1).cumsum(1).flip(1) - visible.long()
        visible = visible & (later < heads.window)
    outs = []
    for head in range(len(q)):
        k, v = keys[head // group].double(), values[head // group].double()
        scores = q[head].double() @ k.T * heads.dim**-0.5
        if heads.softcap is not None:
            scores = heads.softcap * (scores / heads.softcap).tanh()
        scores = scores.masked_fill(~visible, -torch.inf)
        total = scores.logsumexp(-1, keepdim=True)
        if sinks is not None:
            total = torch.logaddexp(total, sinks[head].double())
        outs.append((scores - total).exp() @ v)
    return torch.stack(outs, dim=1)


# ---------------------------------------------------------------- how it is measured


def measured(
    case: Comparison, works: dict[str, tuple[Callable[[], Tensor], int]],
    compared: Callable[[Tensor], Tensor], expected: Tensor, repeats: int,
) -> Comparison:  # fmt: skip
    """Record each work, with how often it attends, and time replays of all in turn."""
    graphs = {}
    for name, (work, _) in works.items():
        begin = time.perf_counter()
        try:
            work()
            torch.cuda.synchronize()
            case.first_call_s[name] = round(time.perf_counter() - begin, 3)
            graphs[name], out = recorded(work)
        except Exception as error:  # of any library: it is told, and the others are measured
            case.failed[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        graphs[name].replay()
        difference = compared(out).double() - expected
        case.error[name] = float(difference.norm() / expected.norm())
        case.ms[name] = []
    for _ in range(repeats):
        for name, graph in graphs.items():
            case.ms[name].append(round(milliseconds(graph) / works[name][1], 5))
    return case


def recorded(work: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Record a CUDA graph of what has run before."""
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        out = work()
    return graph, out


def milliseconds(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()  # brings clocks and caches into the state of a run
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def _show(case: Comparison) -> None:
    what = f"{case.tokens} tokens" + (f", {case.rows} rows" if case.rows else ", prefill")
    times = (f"{name} {1e3 * median(ms):.1f} ({case.error[name]:.1e})" for name, ms in
             case.ms.items())  # fmt: skip
    print(f"{what}, µs (error): {', '.join(times)} {case.failed or ''}", flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
