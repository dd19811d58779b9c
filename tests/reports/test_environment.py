"""Facts of this machine, found without torch."""

import json
import sys

from specx import __version__
from specx.reports.environment import environment


def test_facts() -> None:
    facts = environment()
    assert facts["specx"] == __version__
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(facts["packages"]) == {"torch", "transformers", "pypdfium2", "pypdf"}
    assert facts["packages"]["pypdf"]
    assert facts["cpu_threads"] >= (facts["cpu_cores"] or 1) >= 1
    json.dumps(facts)
