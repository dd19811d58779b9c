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
    assert [run.method for run in runs] == ["specextend", HALF, "sentences"]
    assert [run.facts["chunk_tokens"] for run in runs[:2]] == [8, 4]
    assert runs[2].facts["chunk_tokens"] == runs[2].prompt_tokens / runs[2].facts["sentences"]
    assert len({run.output for run in runs}) == 1
    assert len(EXPERIMENT.conclude(runs).tables[0].rows) == 3


def test_an_odd_chunk_has_no_half() -> None:
    methods = compared(tiny_profile(cache={"chunk": 7}))
    assert [(method.name, size) for method, size in methods] == [
        ("specextend", 7),
        ("sentences", None),
    ]


@pytest.mark.parametrize(
    ("acceptance", "words"),
    [
        (3.0, "help acceptance (1.5 × that of fixed chunks of 4 tokens), at 0.5 × their speed"),
        (1.0, "do not help acceptance (0.5 × that of fixed chunks of 4 tokens), at 0.5 × their sp"),
    ],
)
def test_sentences_against_the_better_size(acceptance: float, words: str) -> None:
    runs = [
        run_of("specextend", 8, 1.5),
        run_of(HALF, 4, 2.0),
        run_of("sentences", 12.5, acceptance, decode_s=2.0),
    ]
    findings = EXPERIMENT.conclude(runs)
    (sentence,) = findings.sentences
    assert sentence.startswith(f"Digest, 1K: borders at sentences {words}")
    assert findings.tables[0].rows[2][:6] == ("sentences", 12.5, "1K", acceptance, 50.0, 0.5)
    assert EXPERIMENT.conclude(runs[:2]).sentences == ()
