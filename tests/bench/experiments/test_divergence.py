import pytest
import torch
from transformers import AutoModelForCausalLM

from specx.bench.experiments.divergence import EXPERIMENT, compare, first_difference, measure
from specx.models.source import locate
from tests.bench.benches import made_up, workbench


@pytest.mark.parametrize(
    ("a", "b", "at"),
    [([], [], None), ([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 2], 1)],
)
def test_the_first_difference(a, b, at):
    assert first_difference(a, b) == at


def test_in_float32_nothing_parts():
    findings = EXPERIMENT.conclude(list(measure(workbench((300,), "plain"))))
    parted, counted = findings.tables
    assert parted.rows == ()
    assert counted.rows == ((1, 1, 0, 0),)


def test_the_gap_is_that_of_the_targets_logits():
    bench = workbench((300,), "plain")
    (case,) = bench.cases(300, "digest")
    (plain,) = bench.alternate([case], warm_up=False)
    at, token = 5, 4000
    other = made_up("specextend", 1, output=(*plain.output[:at], token, *plain.output[at + 1 :]))
    facts = compare(bench.setting(case), case, plain, other)
    text = torch.tensor([[*case.ids, *plain.output[:at]]])
    folder = locate(bench.pair.target.source, None, "target").folder
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(input_ids=text, use_cache=False).logits[0, -1]
    assert facts["at"] == at
    assert facts["gap"] == pytest.approx(float(logits[plain.output[at]] - logits[token]), abs=1e-3)
    assert 0 <= facts["difference"] < 1e-3
    assert logits.argmax() == plain.output[at]


def test_an_output_that_ends_early_has_no_gap():
    bench = workbench((300,), "plain")
    (case,) = bench.cases(300, "digest")
    (plain,) = bench.alternate([case], warm_up=False)
    facts = compare(bench.setting(case), case, plain, made_up("x", 1, output=plain.output[:3]))
    assert facts == {"at": 3, "gap": None, "difference": None}


def test_what_counts_as_a_tie():
    def apart(case: str, gap: float | None, difference: float | None):
        facts = {"at": 7, "gap": gap, "difference": difference}
        return [made_up("plain", 1, case=case), made_up("specextend", 1, case=case, facts=facts)]

    runs = [*apart("a", 0.02, 0.01), *apart("b", 0.021, 0.01), *apart("c", None, None)]
    findings = EXPERIMENT.conclude(runs)
    assert [row[-1] for row in findings.tables[0].rows] == ["yes", "no", "no"]
    counted = findings.tables[1]
    assert counted.columns == ("outputs", "the same", "parted at a tie", "parted elsewhere")
    assert counted.rows == ((3, 0, 1, 2),)
