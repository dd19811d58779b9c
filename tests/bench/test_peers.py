"""``docs/peers.py``: what it prints of runs beside another program."""

import runpy
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "docs" / "peers.py"


def run(side: str, method: str, speed: float, tokens: list[int]) -> dict[str, Any]:
    made = {"side": side, "method": method, "prefill_s": 0.25, "tokens_s": speed, "tokens": tokens}
    return {"length": "1k", "prompt": 1000, **made}


def test_medians_and_the_tokens_until_outputs_part() -> None:
    runs = [
        *(run("specx", "plain", speed, [5, 6, 7, 8]) for speed in (90.0, 110.0, 300.0)),
        run("llama.cpp", "plain", 50.0, [5, 6, 7, 8]),
        run("llama.cpp", "plain", 60.0, [5, 6, 9, 8]),
        run("llama.cpp", "lookup of 2", 70.0, [5, 6, 7]),
    ]
    _, _, *rows = runpy.run_path(str(SCRIPT))["table"](runs)
    assert rows == [
        "| 1,000 | specx | plain | 0.25 | 110 | 90, 300 | 4 of 4 |",
        "| 1,000 | llama.cpp | plain | 0.25 | 55 | 50, 60 | 2 of 4 |",
        "| 1,000 | llama.cpp | lookup of 2 | 0.25 | 70 | 70, 70 | 3 of 4 |",
    ]
