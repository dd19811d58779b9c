"""Speed of the default profile on this machine: speculation over plain decoding, by length.

Meaningful on a quiet machine only. The methods alternate, and what is compared is the median.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specx.bench.cases import make_cases
from specx.decoding.decode import decode
from specx.decoding.methods import Pair
from specx.documents.document import Document
from specx.profile import Profile, resolve
from specx.prompts.digest import Digest
from specx.records import Method, Step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

LENGTHS = {"512": 512, "1K": 1024, "2K": 2048, "4K": 4096, "8K": 8192, "16K": 16384}
DOCUMENTS, REPEATS = 4, 3


def throughput(pair: Pair, profile: Profile, method: Method, prompt: tuple[int, ...]) -> float:
    """Tokens of output per second of decoding steps; neither model's prefill is counted."""
    steps = [
        event
        for event in decode(pair, resolve(profile, method, pair.facts), prompt)
        if isinstance(event, Step) and event.passes
    ]
    return sum(len(step.tokens) for step in steps) / sum(step.seconds for step in steps)


@pytest.mark.usefixtures("shared_prefill")
def test_speculation_pays_on_long_input_and_costs_nothing_on_short(
    govreport: dict[str, list[Document]], pair: Pair, mini: Profile
) -> None:
    digest = Digest(pair.target.tokenizer, 8, whole=True)
    ratios: dict[str, float] = {}
    print()
    for label, tokens in LENGTHS.items():
        medians: dict[Method, list[float]] = {"specextend": [], "plain": []}
        for document in govreport["16K"][:DOCUMENTS]:
            (case,) = make_cases(digest, [document], tokens, most=1)
            prompt = case.ids
            speeds: dict[Method, list[float]] = {"specextend": [], "plain": []}
            for _ in range(REPEATS):
                for method, found in speeds.items():  # the one that watches a layer reads first
                    found.append(throughput(pair, mini, method, prompt))
            for method, found in speeds.items():
                medians[method].append(statistics.median(found))
        each = [a / b for a, b in zip(medians["specextend"], medians["plain"], strict=True)]
        ratios[label] = statistics.median(each)
        print(
            f"  {label:>4}  plain {statistics.median(medians['plain']):4.0f} tokens/s  specextend"
            f" {statistics.median(medians['specextend']):4.0f}  ratio {ratios[label]:.2f} "
            f"({min(each):.2f} to {max(each):.2f})"
        )
    assert ratios["16K"] >= 1.5
    assert min(ratios["512"], ratios["1K"], ratios["2K"]) >= 0.95


def test_a_long_report_takes_less_than_a_minute(
    govreport: dict[str, list[Document]], tmp_path: Path
) -> None:
    source, report = tmp_path / "report.txt", tmp_path / "report.json"
    source.write_text(govreport["16K"][0].text)
    command = [sys.executable, "-m", "specx", "summarize", str(source), "--report", str(report)]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - started
    tokens = json.loads(report.read_text())["input"]["prompt_tokens"]
    print(f"\n  {tokens} tokens in {seconds:.1f} s, from the start of the process to its end")
    assert seconds <= 60
