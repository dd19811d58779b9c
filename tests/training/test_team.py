"""Two processes train one model: gradients are averaged, and both stop at the same time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROCESS = """
import sys, torch
from pathlib import Path
from specx.training.team import Team
team = Team.join()
weight = torch.nn.Parameter(torch.zeros(3))
weight.grad = torch.full((3,), float(team.rank))
team.average_gradients([weight, torch.nn.Parameter(torch.zeros(2))])
most = team.largest(float(team.rank), torch.device("cpu"))
team.log(Path(sys.argv[1]), grad=weight.grad.tolist(), most=most, size=team.size)
team.leave()
"""


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path: Path) -> None:
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
    ]
    subprocess.run([*launch, str(script), str(tmp_path)], check=True, timeout=200)
    (line,) = (tmp_path / "curve.jsonl").read_text().splitlines()
    assert json.loads(line) == {"grad": [0.5, 0.5, 0.5], "most": 1.0, "size": 2}
