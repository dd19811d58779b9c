"""Every part of a step beside the time it cannot be faster than, on a scaled pair and a GPU.

``python -m specx.bench.parts --target llama-3.1-8b --lengths 1k,4k,16k --out parts.json``
prints a table of each length and writes everything that was measured.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from specx.bench.floors import Ceilings, cache_bytes, floors, measure_ceilings
from specx.bench.lengths import parse_length
from specx.bench.scaled import scaled_pair, scaled_profile
from specx.bench.workbench import with_output, without_fallback
from specx.documents.generated import generate_report
from specx.engine.decode import decode
from specx.engine.methods import Pair
from specx.engine.stopwatch import Stopwatch
from specx.profile import DigestPrompt, Profile, TreeSettings, load_profile
from specx.prompts.digest import Digest
from specx.records import Finished, Method, Step, Tally
from specx.reports.environment import environment

SETTLED = 30  # steps at the end of a run that count: the first ones are recorded, not replayed
TRAINED = 24576  # tokens that the embedded pair was trained for
SKIPPED = 10  # steps before those that are profiled
WATCHED = 15
METHODS: tuple[Method, ...] = ("plain", "specextend")


@dataclass(kw_only=True)
class TimedRun:
    """One method at one length; times of ``parts`` in ms."""

    method: Method
    tokens: int
    acceptance_length: float
    seconds: float
    first_token_s: float
    parts: dict[str, float]
    output: list[int] = field(repr=False)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


def prompt_of(pair: Pair, profile: Profile, tokens: int) -> list[int]:
    """Make a digest prompt of about so many tokens; longer than the window, it repeats itself."""
    assert isinstance(profile.prompt, DigestPrompt)
    window = min(tokens, 24000)
    report = generate_report(6 * window, seed=3)
    digest = Digest(pair.target.tokenizer, profile.prompt.sentences)
    ids = list(digest.prompts(report, window)[0].token_ids)
    body, request = ids[:-2], ids[-2:]
    while len(body) + 2 < tokens and window < tokens:
        body += body[: tokens - 2 - len(body)]
    return body + request


def run_once(pair: Pair, profile: Profile, method: Method, prompt: Sequence[int]) -> TimedRun:
    watch, tally = Stopwatch(pair.target.device), Tally()
    output: list[int] = []
    started = time.perf_counter()
    first = started
    for event in decode(pair, profile, method, prompt, watch):
        if isinstance(event, Step):
            if not output:
                first = time.perf_counter()
            output += event.tokens
            tally.add(event)
        elif isinstance(event, Finished):
            timings, seconds = event.timings, event.decoding
    parts = {
        name: 1e3 * statistics.median(samples[-SETTLED:])
        for name, samples in watch.samples.items()
        if not name.endswith("prefill")
    }
    parts["target_prefill"] = 1e3 * timings.target_prefill
    parts["draft_prefill"] = 1e3 * timings.draft_prefill
    return TimedRun(
        method=method,
        tokens=len(output) - 1,
        acceptance_length=tally.acceptance_length,
        seconds=seconds,
        first_token_s=first - started,
        parts=parts,
        output=output,
    )


def median_run(runs: list[TimedRun]) -> TimedRun:
    """Return the run with the median speed, with the medians of all parts."""
    middle = sorted(runs, key=lambda run: run.tokens_per_second)[len(runs) // 2]
    return replace(
        middle,
        parts={name: statistics.median(run.parts[name] for run in runs) for name in middle.parts},
        first_token_s=statistics.median(run.first_token_s for run in runs),
    )


def measure(
    pair: Pair, profile: Profile, length: int, ceilings: Ceilings, repeats: int
) -> dict[str, Any]:
    """Plain and speculative decoding in turn, after one run of each that does not count."""
    prompt = prompt_of(pair, profile, length)
    torch.cuda.reset_peak_memory_stats()
    runs: dict[str, list[TimedRun]] = {method: [] for method in METHODS}
    for turn in range(repeats + 1):
        for method in METHODS:
            run = run_once(pair, profile, method, prompt)
            if turn:
                runs[method].append(run)
    plain, spec = (median_run(runs[method]) for method in METHODS)
    floor = floors(pair, profile, len(prompt), ceilings)
    step = sum(spec.parts[name] for name in ("drafting", "verification", "keep"))
    step += spec.parts.get("retrieval", 0.0) / profile.draft_cache.every
    plain_step = sum(plain.parts[name] for name in ("drafting", "verification", "keep"))
    same = next(
        (i for i, (a, b) in enumerate(zip(plain.output, spec.output, strict=False)) if a != b), None
    )
    return {
        "prompt": len(prompt),
        "floor_ms": floor,
        "plain": asdict(plain) | {"tokens_per_second": plain.tokens_per_second},
        "specextend": asdict(spec) | {"tokens_per_second": spec.tokens_per_second},
        "step_ms": step,
        "plain_step_ms": plain_step,
        "predicted_speedup": spec.acceptance_length * plain_step / step,
        "measured_speedup": spec.tokens_per_second / plain.tokens_per_second,
        "first_difference": same,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
        "weights_and_cache_gb": sum(
            model.weight_bytes + cache_bytes(model, len(prompt))
            for model in (pair.target, pair.draft)
            if model is not None
        )
        / 1e9,
    }


def idle_share(
    pair: Pair, settings: Profile, method: Method, prompt: Sequence[int]
) -> float | None:
    """Return the share of time without a kernel or a copy, over steps that are settled; None when
    the text is too short for a look."""
    steps = 0
    profiler = torch.profiler.profile(activities=[ProfilerActivity.CUDA])
    for event in decode(pair, settings, method, prompt):
        steps += isinstance(event, Step)
        if steps == SKIPPED and isinstance(event, Step):
            profiler.start()
        if steps == SKIPPED + WATCHED:
            torch.cuda.synchronize()
            profiler.stop()
            break
    else:
        if steps >= SKIPPED:
            profiler.stop()
        return None
    return gaps(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events() or ()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )


def gaps(busy: Iterable[tuple[float, float]]) -> float:
    """Return the share of the time between the first beginning and the last end that no interval
    covers.
    ``busy``: beginnings and ends in any unit, which may overlap.
    """
    spans = sorted(busy)
    reached = first = spans[0][0]
    idle = 0.0
    for begin, end in spans:
        idle += max(0.0, begin - reached)
        reached = max(reached, end)
    return idle / (reached - first)


def table(found: dict[str, Any]) -> str:
    """Write one length as Markdown."""
    floor, spec, plain = found["floor_ms"], found["specextend"], found["plain"]
    lines = ["| part | ms | floor | ratio |", "|---|---|---|---|"]
    for name in ("verification", "drafting", "retrieval", "keep", "target_prefill"):
        if name not in spec["parts"]:
            continue
        ms, least = spec["parts"][name], floor.get(name)
        ratio = f"{least:.3f} | {ms / least:.2f}" if least else "|"
        lines.append(f"| {name} | {ms:.3f} | {ratio} |")
    least = floor["verification"]
    ms = plain["parts"]["verification"]
    lines.append(f"| plain token | {ms:.3f} | {least:.3f} | {ms / least:.2f} |")
    lines.append(
        f"\nplain {plain['tokens_per_second']:.1f} tokens/s, specextend "
        f"{spec['tokens_per_second']:.1f} (τ {spec['acceptance_length']:.2f}): "
        f"{found['measured_speedup']:.2f} ×, predicted {found['predicted_speedup']:.2f} ×; step "
        f"{found['step_ms']:.2f} ms; first difference {found['first_difference']}; peak "
        f"{found['peak_gb']:.1f} GB, weights and cache {found['weights_and_cache_gb']:.1f} GB; "
        f"first token after {spec['first_token_s']:.2f} s"
        + "".join(f"; idle in {m} {s:.1%}" for m, s in found.get("idle", {}).items() if s)
    )
    return "\n".join(lines)


def main() -> None:
    arguments = _arguments()
    device = torch.device("cuda")
    lengths = [parse_length(length) for length in arguments.lengths.split(",")]
    pair, profile = _prepare(arguments, lengths, device)
    ceilings = measure_ceilings(device)
    print(
        f"{arguments.target} + {arguments.draft} (scaled mini), "
        f"{ceilings.bandwidth / 1e12:.2f} TB/s, {ceilings.matmul / 1e12:.0f} TFLOP/s"
    )
    results: dict[str, Any] = {"arguments": {k: str(v) for k, v in vars(arguments).items()}}
    results |= {"environment": environment(), "device": torch.cuda.get_device_name(device)}
    results |= {"ceilings": asdict(ceilings), "lengths": {}}
    for length in lengths:
        found = measure(pair, profile, length, ceilings, arguments.repeats)
        if arguments.idle:
            prompt = prompt_of(pair, profile, length)
            found["idle"] = {m: idle_share(pair, profile, m, prompt) for m in METHODS}
        results["lengths"][str(length)] = found
        print(f"\n{found['prompt']} tokens\n\n{table(found)}", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(results, indent=1, default=str))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="llama-3.1-8b")
    parser.add_argument("--draft", default="68m")
    parser.add_argument(
        "--lengths", default="1k,4k,16k", help="if all are beyond the window, no text ends early"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=300, help="output tokens at most")
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--width", type=int, default=None, help="nodes of a level that go on")
    parser.add_argument("--idle", action="store_true", help="profile how long the GPU waits")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def _prepare(
    arguments: argparse.Namespace, lengths: Sequence[int], device: torch.device
) -> tuple[Pair, Profile]:
    pair = scaled_pair(arguments.target, arguments.draft, device)
    # The scaled models have no window of their own: beyond the embedded one they run, and forget.
    target = replace(pair.target, window=max(*lengths, TRAINED) + 4096)
    if min(lengths) > TRAINED:  # what they write there means nothing, nor that it ends
        target = replace(target, eos_token_ids=frozenset())
    profile = without_fallback(with_output(load_profile("mini").on("cuda"), arguments.tokens))
    tree = TreeSettings(nodes=arguments.nodes, depth=10, threshold=0.0, width=arguments.width)
    profile = scaled_profile(profile, arguments.target).changed(tree=tree)
    return replace(pair, target=target), profile


if __name__ == "__main__":
    main()
