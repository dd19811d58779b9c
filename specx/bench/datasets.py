"""Public data sets by name, from a local copy, the hub's cache or the hub."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specx.documents.document import Document
from specx.documents.plain import document_from_text
from specx.errors import DocumentError, UsageError
from specx.profile.section import did_you_mean

Row = dict[str, Any]
PARQUET = "refs/convert/parquet"  # the hub's own copy of every data set, CONFIG/SPLIT/0000.parquet
_WORD = re.compile("[a-z0-9]+")
CHARACTERS = 4  # of a token, at most


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The place of a data set on the hub, and its fields; ``title``: empty without such a field."""

    hub_id: str
    config: str = "default"
    split: str = "test"
    text: str = "text"
    title: str = ""


DATASETS = {
    "govreport": DatasetSpec(
        hub_id="ccdv/govreport-summarization", config="document", text="report"
    ),
    "pg19": DatasetSpec(hub_id="deepmind/pg19", title="short_book_title"),
    "booksum": DatasetSpec(
        hub_id="ubaada/booksum-complete-cleaned", config="books"
    ),
    "aime24": DatasetSpec(
        hub_id="HuggingFaceH4/aime_2024", split="train", text="problem",
        title="id",
    ),
}  # fmt: skip


def dataset_documents(
    name: str, folder: Path | None, *, download: bool, longest: int, most: int
) -> tuple[Document, ...]:
    """Return the first ``most`` documents of a data set that may have ``longest`` tokens.

    ``folder``: a local copy; None: the hub's cache or, with ``download``, the hub. Raises
    UsageError for an unknown name, missing files and rows of another layout.
    """
    if name not in DATASETS:
        hint = did_you_mean(name, DATASETS) or f"; there are {', '.join(DATASETS)}"
        raise UsageError(f"{name!r} is not a data set{hint}")
    spec = DATASETS[name]
    files = _files(folder, spec) if folder else _fetched(name, spec, download=download)
    found: list[Document] = []
    for number, row in enumerate(_rows(files)):
        if len(found) == most:
            break
        document = _document(row, f"{name}#{number}", spec, CHARACTERS * longest)
        if document is not None:
            found.append(document)
    if not found:
        raise UsageError(
            f"every document of {name} has fewer than {longest} tokens; choose a smaller --length"
        )
    return tuple(found)


def _document(row: Row, name: str, spec: DatasetSpec, least: int) -> Document | None:
    """Return the document of a row; None if it has fewer than ``least`` characters."""
    text = row.get(spec.text)
    if not isinstance(text, str):
        raise UsageError(
            f"{name} has no text in the field {spec.text!r}; use a copy of {spec.hub_id}"
        )
    if len(text) < least:
        return None
    if row.get(spec.title) not in (None, ""):
        name = f"{name} {row[spec.title]}"
    try:
        return document_from_text(text.replace("\r\n", "\n"), name, "jsonl")
    except DocumentError:
        return None


def _files(folder: Path, spec: DatasetSpec) -> list[Path]:
    """Find the files of a split in a local copy by words in their paths."""
    if not folder.is_dir():
        raise UsageError(
            f"--data {folder} is not a folder; give the folder that holds a copy of the data set"
        )
    files = sorted(
        path for path in folder.rglob("*") if path.suffix in (".jsonl", ".json", ".parquet")
    )
    words = {path: set(_WORD.findall(str(path.relative_to(folder)).lower())) for path in files}
    for wanted in ({spec.config, spec.split}, {spec.split}):
        chosen = [path for path in files if wanted <= words[path]]
        if chosen:
            return chosen
    raise UsageError(
        f"--data {folder} has no .jsonl, .json or .parquet file with {spec.split!r} in its path; "
        f"use a copy of {spec.hub_id}"
    )


def _fetched(name: str, spec: DatasetSpec, *, download: bool) -> list[Path]:
    """Return the files of a split in the hub's cache, fetched before with ``download``."""
    from huggingface_hub import snapshot_download

    pattern = f"{spec.config}/*{spec.split}/*.parquet"
    files: list[Path] = []
    cause: Exception | None = None
    try:
        folder = snapshot_download(
            spec.hub_id,
            repo_type="dataset",
            revision=PARQUET,
            allow_patterns=[pattern],
            local_files_only=not download,
        )
        files = sorted(Path(folder).glob(pattern))
    except Exception as error:  # errors of the HTTP client differ between versions of the hub
        cause = error
    if files:
        return files
    why = "is not in the local cache; fetch it with --download, or"
    why = "could not be fetched from the hub;" if download else why
    raise UsageError(f"{name} ({spec.hub_id}) {why} give a local copy with --data") from cause


def _rows(files: list[Path]) -> Iterator[Row]:
    for file in files:
        yield from _parquet_rows(file) if file.suffix == ".parquet" else _json_rows(file)


def _json_rows(file: Path) -> Iterator[Row]:
    """Read a file of one object a line, or of one list of objects."""
    with file.open(encoding="utf-8") as lines:
        try:
            if file.suffix == ".json":
                yield from map(dict, json.load(lines))
            else:
                yield from (dict(json.loads(line)) for line in lines if line.strip())
        except (ValueError, TypeError) as error:
            raise UsageError(f"{file} is not made of JSON objects") from error


def _parquet_rows(file: Path) -> Iterator[Row]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise UsageError(
            f"{file.name} is a Parquet file, which needs the package datasets; install it with "
            "`pip install 'datasets>=4'`"
        ) from error
    read = load_dataset("parquet", data_files=str(file), split="train", streaming=True)
    yield from map(dict, read)
