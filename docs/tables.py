"""Print what ``specx bench`` found, as Markdown, from the raw files of ``measurements/bench``.

``python docs/tables.py docs/measurements/bench/h200-ablation.json …``. Unlike ``specx bench
--from``, which concludes everything again from the outputs, it prints the tables as they were
saved, so it also serves the files of GovReport, which have hashes in the place of their outputs.
"""

import sys
from pathlib import Path

from specx.bench.report.files import load_bench
from specx.bench.report.markdown import to_tables

if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        report = load_bench(path)
        print(f"# {path.stem}\n\n`{report.command}`, {report.date[:10]}\n\n{to_tables(report)}")
