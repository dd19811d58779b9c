"""Print what ``specx bench`` found, as Markdown, from the raw files of ``measurements/bench``.

``python docs/tables.py docs/measurements/bench/h200-ablation.json …``. Unlike ``specx bench
--from``, which concludes everything again from the outputs, it prints the tables as they were
saved, so it also serves the files of GovReport, which have hashes in the place of their outputs.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def page(path: Path) -> Iterator[str]:
    """Yield the paragraphs of one raw file: its command, its sentences and its tables."""
    report = json.loads(path.read_text(encoding="utf-8"))
    yield f"# {path.stem}\n\n`{report['command']}`, {report['date'][:10]}"
    for section in report["sections"]:
        yield f"## {section['title']}"
        if withheld := section["findings"].get("withheld"):
            yield f"**{withheld}**"
        yield from section["findings"]["sentences"]
        for table in section["findings"]["tables"]:
            yield f"**{table['title']}**"
            yield "\n".join(rows(table))
            if table["note"]:
                yield table["note"]


def rows(table: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield _row(table["columns"])
    yield "|---" * len(table["columns"]) + "|"
    for row in table["rows"]:
        yield _row([_shown(cell) for cell in row])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(cell: str | float | None) -> str:
    if cell is None:
        return "–"
    return f"{cell:,.3g}" if isinstance(cell, float) and abs(cell) < 1000 else _whole(cell)


def _whole(cell: str | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:,.0f}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print("\n\n".join(page(Path(name))), end="\n\n")
