"""Print the tables in raw files of ``measurements/bench`` as Markdown.

``python docs/tables.py docs/measurements/bench/h200-ablation.json …``
"""

import json
import sys
from pathlib import Path

from specx.bench.report import Table, table_lines

if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        report = json.loads(path.read_text(encoding="utf-8"))
        print(f"# {path.stem}\n\n`{report['command']}`, {report['date'][:10]}\n")
        for section in report["sections"]:
            for raw in section["findings"]["tables"]:
                print("\n\n".join(table_lines(Table(**raw))) + "\n")
