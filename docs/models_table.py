"""Write the table of families into ``docs/models.md``: ``python docs/models_table.py``.

A row is a family, with llama.cpp's names of the files that tests write and read
(``tests/models/gguf/test_families.py``).
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # tests are no package that is installed

from specx.models.families import FAMILIES  # noqa: E402
from tests.models.families import CELLS, LAYER_BY_LAYER  # noqa: E402
from tests.models.gguf.test_families import CASES  # noqa: E402
from tests.models.gguf.test_ollama import FILES  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
HEAD = "| family | `model_type` | GGUF |\n|---|---|---|\n"
SAME = {  # whose files say nothing of pictures, or that they have no windows
    **{"mistral": "llama", "granitemoehybrid": "granite", "gemma4_unified_text": "gemma4"},
    **{"qwen2_vl_text": "qwen2vl", "qwen2_5_vl_text": "qwen2vl"},
    **{"qwen3_vl_text": "qwen3vl", "qwen3_vl_moe_text": "qwen3vlmoe"},
}
TABLE = re.compile(r"\| family \|.*?\n\n", re.DOTALL)


def table() -> str:
    """Return the table, with an empty line behind it."""
    rows: list[str] = []
    named = {kind: {f"`{name}`": None} for kind, name in SAME.items()}
    for name, kind, *_ in (*CASES.values(), *FILES.values()):
        named.setdefault(kind, {})[f"`{name}`"] = None
    for kind, family in FAMILIES.items():
        in_layers = any(cell.family == kind and cell.feature in LAYER_BY_LAYER for cell in CELLS)
        files = ", ".join(named.get(kind, ()))
        rows.append(f"| {family.name}{' ¹' * in_layers} | `{kind}` | {files} |\n")
    return HEAD + "".join(rows) + "\n"


def page(text: str) -> str:
    """Return the page with a table that is up to date."""
    return TABLE.sub(lambda _: table(), text, count=1)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
