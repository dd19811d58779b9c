from specx.bench.experiments.speedup import EXPERIMENT
from tests.bench.benches import made_up, workbench


def test_ratios_are_medians_over_documents():
    runs = [
        made_up("plain", 10),
        made_up("plain", 10, case="b"),
        made_up("plain", 10, case="c"),
        made_up("fast", 20, acceptance_length=2.0),
        made_up("fast", 30, case="b", acceptance_length=4.0),
        made_up("fast", 90, case="c", acceptance_length=6.0, output=tuple(range(1, 102))),
    ]
    (table,) = EXPERIMENT.conclude(runs).tables
    assert table.baseline == "plain"
    rows = {row[0]: row for row in table.rows}
    _, length, _, speedup, lowest, highest, acceptance, _, same = rows["fast"]
    assert (length, acceptance, same) == ("1K", 4.0, "2 of 3")
    assert [round(x, 6) for x in (speedup, lowest, highest)] == [3.0, 2.0, 9.0]
    assert rows["plain"][3] == 1.0


def test_one_table_a_task_and_two_figures():
    bench = workbench((300, 400), "plain,specextend", tasks=("digest", "control"))
    findings = EXPERIMENT.conclude(list(EXPERIMENT.measure(bench)))
    assert [table.title for table in findings.tables] == ["Speed, digest", "Speed, control"]
    assert [figure.name for figure in findings.figures] == [
        "speedup-digest",
        "acceptance-digest",
        "speedup-control",
        "acceptance-control",
    ]
    for figure in findings.figures:
        (line,) = figure.series
        assert (line.label, line.x) == ("specextend", (300, 400))
    assert findings.headline.startswith("specextend ")
    assert findings.headline.endswith(" × plain at 400, digest, same text")
    assert all(row[-1] == "1 of 1" for table in findings.tables for row in table.rows)


def test_an_interrupted_benchmark_is_concluded_too():
    assert EXPERIMENT.conclude([]).tables == ()
    (table,) = EXPERIMENT.conclude([made_up("fast", 10)]).tables
    assert table.rows[0][3:6] == (None, None, None)
