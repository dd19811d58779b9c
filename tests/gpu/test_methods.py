"""Every method of the bench on a CUDA device: the same output, in graphs as step by step."""

import pytest
import torch

from specx.bench.cases import Case
from specx.bench.generated import generate_report
from specx.bench.methods import find_methods
from specx.bench.runs import Setting
from specx.decoding import decode as decode_module
from specx.decoding.runner import Runner
from specx.documents.document import Document
from specx.prompts.digest import Digest
from specx.runs.pair import load_pair
from tests.gpu.test_cuda import CUDA, mini, same_or_tied
from tests.gpu.test_graphs import in_half

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NAMES = [
    *("chain", "tree", "streaming", "specextend", "window"),
    "chain:depth=5",
]


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting(load_pair(mini(), "specextend", CUDA), mini())


@pytest.fixture(scope="module")
def half() -> Setting:
    """In half precision."""
    profile = in_half(mini())
    return Setting(load_pair(profile, "specextend", CUDA), profile)


@pytest.fixture(scope="module")
def case(setting: Setting) -> Case:
    kind = Digest(setting.pair.target.tokenizer, sentences=8, whole=True)
    prompt = kind.prompts(generate_report(12_000, seed=7), 24_000)[0]
    return Case(Document("report", "text", (), ()), 4096, "digest", prompt)


@pytest.mark.parametrize("name", NAMES)
def test_the_output_is_that_of_plain_decoding(name: str, setting: Setting, case: Case) -> None:
    (plain, method) = find_methods(f"plain,{name}", setting.profile)
    expected, run = plain.run(setting, case), method.run(setting, case)
    same_or_tied(setting.pair, case.ids, list(expected.output), list(run.output))


@pytest.mark.parametrize("precision", ["setting", "half"])
@pytest.mark.parametrize("name", NAMES)
def test_graphs_do_what_eager_steps_do(
    name: str,
    precision: str,
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    setting: Setting = request.getfixturevalue(precision)
    (method,) = find_methods(name, setting.profile)
    recorded = method.run(setting, case)
    monkeypatch.setattr(decode_module, "runner_for", lambda *_, **__: Runner())
    eager = method.run(setting, case)
    assert recorded.output == eager.output
    assert recorded.acceptance_by_position == eager.acceptance_by_position
