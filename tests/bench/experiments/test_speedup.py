from dataclasses import replace

import pytest

from specx.bench.experiments.speed import EXPERIMENT as SPEEDUP
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
    (table,) = SPEEDUP.conclude([replace(run, read_s=None) for run in runs]).tables
    assert [row[6:8] for row in table.rows] == 2 * [(None, None)]


def test_no_table_and_no_figure_has_what_others_disturbed():
    runs = [
        made_up(method, speed, repeat=repeat, taken=taken)
        for repeat, taken, speeds in ((0, 0.0, (10, 20)), (1, 0.5, (1, 9)), (2, 0.0, (10, 22)))
        for method, speed in zip(("plain", "fast"), speeds, strict=True)
    ]
    findings = SPEEDUP.conclude(runs)
    assert findings.tables[0].rows[1][2:4] == (21.0, pytest.approx(2.1))
    assert findings.sentences == (
        "Other processes took up to 50% of the time, and more than a tenth in 2 of 6 runs: "
        "2 are excluded from the tables.",
    )
    assert (findings.headline, findings.withheld[:12]) == ("", "No headline:")
    findings = SPEEDUP.conclude(runs[2:4])
    assert findings.tables[0].rows[1][3] == pytest.approx(9.0)
    assert (
        "2 stay in the tables, as all runs of their prompts were disturbed" in findings.sentences[0]
    )


def test_a_table_and_a_headline():
    bench = workbench((300, 400), "plain,specextend")
    findings = SPEEDUP.conclude(list(SPEEDUP.measure(bench)))
    assert [table.title for table in findings.tables] == ["Speed, digest"]
    assert findings.headline.startswith("specextend ")
    assert " × plain at 400, " in findings.headline
    assert findings.headline.endswith(" × end to end, same text")
    assert all(row[-1] == "1 of 1" for table in findings.tables for row in table.rows)


def test_an_interrupted_benchmark_is_concluded_too():
    assert SPEEDUP.conclude([]).tables == ()
    (table,) = SPEEDUP.conclude([made_up("fast", 10)]).tables
    assert table.rows[0][3:6] == (None, None, None)
