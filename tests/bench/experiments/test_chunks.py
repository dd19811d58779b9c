import pytest

from specx.bench.experiments.chunks import EXPERIMENT, compared
from specx.bench.runs import Run
from tests.bench.experiments.benches import made_run, tiny_bench, tiny_profile

HALF = "specextend:chunk=4,top_k=8"


def run_of(method: str, tokens: float, acceptance: float, decode_s: float = 1.0) -> Run:
    return made_run(
        method, acceptance_length=acceptance, decode_s=decode_s, facts={"chunk_tokens": tokens}
    )


def test_chunks_of_equal_working_caches() -> None:
    runs = list(EXPERIMENT.measure(tiny_bench(200)))
    assert [run.method for run in runs] == ["specextend", HALF, "even", "sentences"]
    assert [run.facts["chunk_tokens"] for run in runs[:2]] == [8, 4]
    assert runs[3].facts["chunk_tokens"] == runs[3].prompt_tokens / runs[3].facts["sentences"]
    assert runs[2].facts == runs[3].facts
    assert len({run.output for run in runs}) == 1
    assert len(EXPERIMENT.conclude(runs).tables[0].rows) == 4


def test_an_odd_chunk_has_no_half() -> None:
    methods = compared(tiny_profile(cache={"chunk": 7}))
    assert [(method.name, size) for method, size in methods] == [
        ("specextend", 7),
        ("even", None),
        ("sentences", None),
    ]


@pytest.mark.parametrize(("acceptance", "verdict"), [(3.0, "help"), (1.0, "do not help")])
def test_sentences_against_even_chunks(acceptance: float, verdict: str) -> None:
    runs = [
        run_of("specextend", 8, 1.0),
        run_of(HALF, 4, 1.5),
        run_of("even", 12.5, 2.0),
        run_of("sentences", 12.5, acceptance, decode_s=2.0),
    ]
    findings = EXPERIMENT.conclude(runs)
    assert findings.sentences == (
        f"Digest, 1K: borders at sentences {verdict} acceptance ({acceptance / 2} × that of as "
        "many even chunks, at 0.5 × their speed); even chunks with the request apart accept 2 × "
        "what the chunks of the profile do.",
    )
    kinds = [row[0] for row in findings.tables[0].rows]
    assert kinds == ["fixed", "fixed", "even", "sentences"]
    assert findings.tables[0].rows[3][1:6] == (12.5, "1K", acceptance, 50.0, 0.5)
    for missing in (0, 2, 3):
        assert EXPERIMENT.conclude(runs[:missing] + runs[missing + 1 :]).sentences == ()
