"""Bring the documents of ``facts.jsonl`` into a folder, each with what readers wanted from it.

    python -m tests.evaluation.facts FOLDER

Each line of ``facts.jsonl`` is a public document: its address (``source``), its kind, and the facts
that somebody who has to know it would demand, vital or not, written before any digest of it was
seen. A fact has expressions that tell it (``any``), or the first words of the sentences that each
tell it (``sentences``). ``ranked``, in some, is the digest of eight sentences that the reader would
write, likewise. The readers were language models; one set of facts a document.

For each document ``NAME.nuggets.json`` is written, which ``test_nuggets.py`` measures, and
``NAME.labels.json`` where sentences were marked, from which ``specx.training.judge`` learns. What
is measured must not be learned from: put those documents in another folder.
"""

import json
import re
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

FACTS = Path(__file__).with_name("facts.jsonl")
_TAG = re.compile(r"/(?:[A-Z*$+-][\w*$+-]*|pct)(?=\s|$)")  # of the Brown corpus: the/AT ./pct


def records() -> list[dict[str, Any]]:
    """Return the lines of ``facts.jsonl``."""
    return [json.loads(line) for line in FACTS.read_text(encoding="utf-8").splitlines()]


def expressions(fact: dict[str, Any]) -> list[str]:
    """Return the regular expressions that tell a fact."""
    marked = [r"\b" + r"\W+".join(each.split()) for each in fact.get("sentences", [])]
    found: list[str] = fact.get("any", marked)
    return found


def readable(source: str, data: bytes) -> tuple[str, bytes]:
    """Return the suffix and the bytes of a document that specx reads, of what ``source`` has."""
    suffix = Path(source).suffix.lower()
    if suffix == ".json":  # an opinion in a field, its paragraphs numbered {1}
        text = re.sub(r"\s*(\{\d+\})", r"\n\n\1", json.loads(data)["content"])
        return ".txt", text.encode()
    if "/brown_txt/" in source:
        text = re.sub(r" +([.,;:?!)])", r"\1", _TAG.sub("", data.decode("utf-8", "replace")))
        return ".txt", text.replace("``", '"').replace("''", '"').encode()
    return suffix, data


def _download(source: str) -> bytes:
    with urllib.request.urlopen(source, timeout=60) as answer:
        data: bytes = answer.read()
    return data


def lay_out(folder: Path, download: Callable[[str], bytes] = _download) -> list[str]:
    """Write the documents and their facts into ``folder``; return what could not be had."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for number, record in enumerate(records()):
        try:
            suffix, data = readable(record["source"], download(record["source"]))
        except OSError as error:
            missing.append(f"{record['source']}: {error}")
            continue
        name, facts = f"{number:03}", record["facts"]
        (folder / f"{name}{suffix}").write_bytes(data)
        common = {"file": f"{name}{suffix}", "kind": record["kind"]}
        nuggets = [{"vital": each["vital"], "any": expressions(each)} for each in facts]
        told = json.dumps(common | {"nuggets": nuggets}, ensure_ascii=False)
        (folder / f"{name}.nuggets.json").write_text(told, encoding="utf-8")
        if all("sentences" in each for each in facts):
            labels = common | {"nuggets": facts, "ranked": record.get("ranked", [])}
            marked = json.dumps(labels, ensure_ascii=False)
            (folder / f"{name}.labels.json").write_text(marked, encoding="utf-8")
    return missing


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    left_out = lay_out(Path(sys.argv[1]))
    print(*left_out, sep="\n")
    print(f"{len(records()) - len(left_out)} documents, {len(left_out)} missing")
