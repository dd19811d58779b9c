import pytest

from specx.bench.experiments import EXPERIMENTS
from tests.bench.benches import made_up, workbench

SPEEDUP = EXPERIMENTS["speedup"]


def test_ratios_are_medians_over_documents():
    runs = [
        made_up("plain", 10),
        made_up("plain", 10, case="b"),
        made_up("plain", 10, case="c"),
        made_up("fast", 20, acceptance_length=2.0),
        made_up("fast", 30, case="b", acceptance_length=4.0),
        made_up("fast", 90, case="c", acceptance_length=6.0, output=tuple(range(1, 102))),
    ]
    (table,) = SPEEDUP.conclude(runs).tables
    assert table.baseline == "plain"
    rows = {row[0]: row for row in table.rows}
    _, length, _, speedup, lowest, highest, _, _, acceptance, _, same = rows["fast"]
    assert (length, acceptance, same) == ("1K", 4.0, "2 of 3")
    assert [round(x, 6) for x in (speedup, lowest, highest)] == [3.0, 2.0, 9.0]
    assert rows["plain"][3] == 1.0


def test_end_to_end_is_beside_decoding():
    runs = [made_up("plain", 10, read_s=10.0), made_up("fast", 20, read_s=10.0)]
    (table,) = SPEEDUP.conclude(runs).tables
    assert [row[6:8] for row in table.rows] == [(101 / 20, 1.0), (101 / 15, pytest.approx(20 / 15))]


@pytest.mark.parametrize(("taken", "told"), [(0.04, ()), (0.5, ("Other processes took 50%",))])
def test_other_processes_are_told_of(taken: float, told: tuple[str, ...]) -> None:
    found = SPEEDUP.conclude([made_up("plain", 10, taken=taken)]).sentences
    assert tuple(sentence[:24] for sentence in found) == told


def test_a_table():
    bench = workbench((300, 400), "plain,specextend")
    findings = SPEEDUP.conclude(list(SPEEDUP.measure(bench)))
    assert [table.title for table in findings.tables] == ["Speed, digest"]
    assert {row[0] for table in findings.tables for row in table.rows} == {"plain", "specextend"}
    assert all(row[-1] == "1 of 1" for table in findings.tables for row in table.rows)


def test_an_interrupted_benchmark_is_concluded_too():
    (table,) = SPEEDUP.conclude([made_up("fast", 10)]).tables
    assert table.rows[0][3:6] == (None, None, None)
