"""A scaled pair is measured beyond the length that the embedded one was trained for."""

import pytest

from specx.bench import session
from specx.bench.request import BenchListener, Request
from specx.bench.workbench import Workbench
from tests.bench.benches import embedded


def prepared(length: int) -> Workbench:
    _, profile = embedded()
    request = Request(
        command="specx bench",
        experiments="speedup",
        profile=profile,
        documents=(),
        lengths=(length,),
        methods="plain",
        tasks=("digest",),
        repeats=1,
        most=1,
        tokens=8,
        seed=0,
        device="cpu",
        scale="llama-3.1-8b",
    )
    return session.prepare(request, BenchListener())


@pytest.mark.parametrize(("length", "ends"), [(600, True), (25_600, False)])
def test_the_end_of_a_text_that_means_nothing_is_not_looked_for(
    length: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, _ = embedded()
    monkeypatch.setattr(session, "scaled_pair", lambda *_: pair)
    bench = prepared(length)
    assert bool(bench.pair.target.eos_token_ids) == ends
    assert bench.pair.target.window >= length + 8
    warned = any("than the 24576 it was trained on" in text for text in session.warnings(bench))
    assert warned != ends
