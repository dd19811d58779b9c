"""Write the table of families into ``docs/models.md``: ``python docs/models_table.py``.

A row is a family; its cells are the small random models that tests hold against transformers' own
class (``tests/models/families.py``).
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # tests are no package that is installed

from specx.models.families import FAMILIES  # noqa: E402
from tests.models.families import CELLS, LAYER_BY_LAYER  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
HEAD = "| family | `model_type` | checked |\n|---|---|---|\n"
TABLE = re.compile(r"\| family \|.*?\n\n", re.DOTALL)


def table() -> str:
    """Return the table, with an empty line behind it."""
    rows = []
    for kind, family in FAMILIES.items():
        cells = [cell.feature for cell in CELLS if cell.family == kind]
        marked = [f"{cell} ¹" if cell in LAYER_BY_LAYER else cell for cell in cells]
        rows.append(f"| {family.name} | `{kind}` | {'; '.join(marked)} |\n")
    return HEAD + "".join(rows) + "\n"


def page(text: str) -> str:
    """Return the page with a table that is up to date."""
    return TABLE.sub(lambda _: table(), text, count=1)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
