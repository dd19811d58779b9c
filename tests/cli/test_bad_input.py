"""What users give by mistake: one sentence on stderr, the right exit code, nothing on stdout."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from specx.cli.main import run
from specx.documents import discover, formats
from specx.documents.text import READS
from specx.runs import summarizer
from tests.cli.processes import in_a_process
from tests.documents import pdfs
from tests.runs.pairs import TEXT, checkpoints, saying, write_profile
from tests.tiny import copy_checkpoint, make_tokenizer

GOOD = pdfs.text_pdf([TEXT])


class Ended(NamedTuple):
    code: int | str | None
    out: str
    err: str

    def sentence(self) -> str:
        """The one thing that stderr says."""
        assert self.out == ""
        assert self.err.endswith("\n")
        (sentence,) = self.err.splitlines()
        assert sentence.startswith("specx: ")
        return sentence.removeprefix("specx: ")


Run = Callable[..., Ended]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("SPECX_PDF_PASSWORD", raising=False)
    monkeypatch.setattr(summarizer, "decode", saying("A summary."))
    Path("a.txt").write_text(f"{TEXT}\n")
    return tmp_path


@pytest.fixture
def summarize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    (tmp_path / "profiles").mkdir()
    tiny = write_profile(tmp_path / "profiles")

    def do(*arguments: str, profile: str = tiny) -> Ended:
        capsys.readouterr()
        code = run(["summarize", *arguments, "-p", profile])
        return Ended(code, *capsys.readouterr())

    return do


# ---------------------------------------------------------------- files

FILES: dict[str, tuple[bytes, str]] = {
    "empty.txt": (b"", "empty.txt is empty; there is nothing to summarize"),
    "blank.txt": (b" \n\t\n", "blank.txt is empty; there is nothing to summarize"),
    "binary.txt": (
        bytes(range(256)) * 20,
        "binary.txt looks like a binary file, not like text; " + READS,
    ),
    "nul.txt": (
        b"ab\x00" * 50,
        "nul.txt looks like a binary file, not like text; " + READS,
    ),
    "picture.txt": (
        b"\x89PNG\r\n\x1a\n....",
        "picture.txt looks like a PNG image, not like text; " + READS,
    ),
    "text.pdf": (
        TEXT.encode(),
        "text.pdf has the extension .pdf but is not a PDF (no %PDF header); check the file",
    ),
    "cut.pdf": (
        GOOD[: len(GOOD) // 3],
        "cut.pdf is damaged and cannot be read as a PDF (its structure is broken); repair "
        "or re-save the file, then try again",
    ),
    "scan.pdf": (
        pdfs.scanned_pdf("ss"),
        "scan.pdf looks scanned: pages 1-2 have no text; try --ocr, or run text recognition "
        "(OCR) on it first, for example with ocrmypdf",
    ),
    "nopages.pdf": (
        pdfs.empty_pdf(),
        "nopages.pdf is a PDF without pages; there is nothing to summarize",
    ),
    "locked.pdf": (
        pdfs.encrypted_pdf(GOOD, "secret"),
        "locked.pdf is encrypted; give its password with --password or in SPECX_PDF_PASSWORD",
    ),
    "loop.pdf": (pdfs.looping_pdf(), "loop.pdf has no page that can be read: page 1 failed ("),
    "bomb.pdf": (
        pdfs.pages_pdf([pdfs.bomb_page(40)]),
        "bomb.pdf is blank: page 1 has no text and no images",
    ),
    "bad.jsonl": (
        b"\n{nope\n",
        "bad.jsonl line 2 is not valid JSON (expecting property name enclosed in double quotes at "
        "column 2)",
    ),
    "notext.jsonl": (
        b'{"body": "One."}\n',
        'notext.jsonl line 1 has no text; each line must be an object such as {"text": "..."}',
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_read(summarize: Run, name: str) -> None:
    data, sentence = FILES[name]
    Path(name).write_bytes(data)
    ended = summarize(name)
    assert ended.code == 3
    assert ended.sentence().startswith(sentence)
    assert len(ended.sentence()) < 250


def test_paths_that_lead_nowhere(summarize: Run) -> None:
    Path("folder").mkdir()
    assert summarize("a.text").sentence() == "a.text does not exist; did you mean a.txt?"
    assert summarize("no/b.txt").sentence() == "no/b.txt does not exist; check the path"
    assert summarize("folder").sentence() == (
        "folder holds no documents; specx looks for files that end in "
        + ", ".join(sorted(discover._ENDINGS))
    )
    assert {summarize(name).code for name in ("a.text", "folder")} == {3}


def test_an_empty_stdin(summarize: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    ended = summarize("-")
    assert ended.code == 3
    assert ended.sentence() == "stdin is empty; there is nothing to summarize"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_without_permission(summarize: Run) -> None:
    Path("a.txt").chmod(0)
    ended = summarize("a.txt")
    assert (ended.code, ended.sentence()) == (3, "a.txt cannot be read: Permission denied")


def test_passwords(summarize: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("locked.pdf").write_bytes(FILES["locked.pdf"][0])
    Path("open.pdf").write_bytes(GOOD)
    assert summarize("locked.pdf", "--password", "secret", "-q") == (0, "A summary.\n", "")
    assert summarize("open.pdf", "--password", "needless", "-q") == (0, "A summary.\n", "")
    wrong = summarize("locked.pdf", "--password", "wr0ng")
    assert wrong.code == 3
    assert wrong.sentence().endswith("does not open it; check --password or SPECX_PDF_PASSWORD")
    assert "wr0ng" not in wrong.err
    monkeypatch.setenv("SPECX_PDF_PASSWORD", "secret")
    assert summarize("locked.pdf", "-q").code == 0


@pytest.mark.parametrize(
    ("data", "warning"),
    [
        ("Grüße aus dem Café.".encode("latin-1"), "is not UTF-8; it was read as Windows-1252"),
        (b"word " * 100 + b"\x00", "1 NUL byte was removed from the text."),
    ],
)
def test_files_that_can_be_read_with_a_warning(summarize: Run, data: bytes, warning: str) -> None:
    Path("odd.txt").write_bytes(data)
    ended = summarize("odd.txt")
    assert ended[:2] == (0, "A summary.\n")
    assert warning in ended.err


def test_pages(summarize: Run) -> None:
    Path("open.pdf").write_bytes(GOOD)
    for pages, sentence in {
        "x": "--pages 'x' is not understood; write it like 1-10,15 or 7-",
        "7": "--pages asks for page 7, but open.pdf has only 1 page",
    }.items():
        ended = summarize("open.pdf", "--pages", pages)
        assert (ended.code, ended.sentence()) == (2, sentence)
    ended = summarize("a.txt", "--pages", "1")
    assert (ended.code, ended.sentence()) == (
        2,
        "--pages works only for PDF files, and a.txt is not a PDF",
    )


def test_longer_than_the_window_and_refused(summarize: Run, tmp_path: Path) -> None:
    Path("long.txt").write_text(f"{TEXT}\n\n" * 20)
    ended = summarize("long.txt", profile=write_profile(tmp_path, "r", long_documents="refuse"))
    assert ended.code == 3
    needed = int(ended.sentence().split()[2])
    assert needed > 276
    assert ended.sentence() == (
        f"long.txt needs {needed} prompt tokens, but the model's window has room for only 276 "
        "after the output is reserved; set `long_documents: parts` in the profile"
    )


# ---------------------------------------------------------------- profiles and models


def test_an_unknown_profile(summarize: Run) -> None:
    ended = summarize("a.txt", profile="minni")
    assert ended.code == 2
    assert ended.sentence().startswith("there is no profile 'minni'; choose ")
    assert ended.sentence().endswith("did you mean 'mini'?")


def test_every_mistake_of_a_profile_at_once(summarize: Run) -> None:
    Path("p.yaml").write_text(
        "name: p\n"
        "target: {model: x, dtyp: float32}\n"
        "draft: null\n"
        "tree: {nodes: 99}\n"
        "long_documents: part\n"
    )
    ended = summarize("a.txt", profile="p.yaml")
    assert (ended.code, ended.out) == (2, "")
    first, *problems = ended.err.splitlines()
    assert first == "specx: the profile p.yaml has 3 problems:"
    assert [problem.strip().split(":")[0] for problem in problems] == ["line 2", "line 4", "line 5"]
    assert "did you mean 'dtype'" in problems[0]
    assert "did you mean 'parts'" in problems[2]


def test_a_model_that_is_not_there(summarize: Run, tmp_path: Path) -> None:
    folder = write_profile(tmp_path, "f", target={"model": "./no such folder"})
    ended = summarize("a.txt", profile=folder)
    assert ended.code == 4
    assert ended.sentence() == (
        f"The target {tmp_path}/no such folder does not exist; give a folder in the hub's layout, "
        "a GGUF file, or a hub id such as org/name."
    )


def test_a_draft_of_another_family(summarize: Run, tmp_path: Path) -> None:
    draft = copy_checkpoint(checkpoints()[1], tmp_path / "other")
    other = make_tokenizer()
    state = other.backend_tokenizer.to_str().replace('"e":', '"@":', 1).replace('"t":', '"e":', 1)
    state = state.replace('"@":', '"t":', 1)
    (draft / "tokenizer.json").write_text(state)
    ended = summarize("a.txt", profile=write_profile(tmp_path, "o", draft={"model": str(draft)}))
    assert ended.code == 4
    assert "do not share a vocabulary: token id" in ended.sentence()
    assert ended.sentence().endswith(
        "choose a draft of the target's family, or none: --method lookup needs no draft."
    )


def test_digests_need_a_model_with_markers(summarize: Run, tmp_path: Path) -> None:
    digest = write_profile(tmp_path, "d")
    text = Path(digest).read_text().replace("kind: instruct", "kind: digest")
    Path(digest).write_text(text.replace("  instruction: Summarize.\n", ""))
    Path("a.txt").write_text(f"{TEXT}\n\n" * 5)  # more sentences than a digest has
    ended = summarize("a.txt", profile=digest)
    assert ended.code == 4
    assert ended.sentence().endswith("use `kind: instruct` for this model")


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--set", "generation.top_p=0"], "`generation.top_p` is 0; it must be more than 0"),
        (["--set", "target.offload=disk"], "`target.offload` is 'disk'; it must be cpu"),
        (
            ["--set", "generation.topk=3"],
            "unknown key 'topk' in `generation`; did you mean 'top_k'?",
        ),
        (["--set", "top_k"], "--set 'top_k' is not KEY=VALUE"),
        (["--set", "seed=1", "--set", "seed=2"], "--set 'seed=2' sets a key that another --set"),
        (
            ["--set", "seed=1", "--set", "seed.x=2"],
            "--set 'seed.x=2' sets a key that another --set",
        ),
        (["--set", "seed={"], "--set 'seed={' has a value that is not valid YAML"),
        (["--temperature", "inf"], "--temperature is inf; it must be a finite number"),
        (["--seed", str(2**40)], f"--seed is {2**40}; it must be at most 4294967295"),
        (["--json", "--jsonl"], "--json and --jsonl cannot be combined"),
        (
            ["--allow-failures", "none"],
            "--allow-failures is none; it must be a number of documents, such as 3, or a file that "
            "lists them (No such file or directory)",
        ),
        (["--jsonl-keys", "summary"], "--jsonl-keys needs --jsonl"),
        (["--jsonl", "--jsonl-keys", "sum"], "--jsonl-keys: no line has the key sum; "),
        (
            ["--out", "mine.md"],
            "mine.md exists and specx did not write it; choose another place, or ",
        ),
        (
            ["--sentences", "9"],
            "--sentences needs a digest, but the profile tiny has an instruct prompt; "
            "use --words for the length of the summary",
        ),
        (
            ["--think", "400"],
            "max_new_tokens is 24, which leaves no room for a document in a window",
        ),
        (["--max-new-tokens", "300"], "max_new_tokens is 300, which leaves no room for a document"),
        (["--max-new-tokens", "290"], "the model's window leaves 0 tokens for the document, which"),
    ],
)
def test_options_that_cannot_be(summarize: Run, options: list[str], sentence: str) -> None:
    for name in ("b.txt", "mine.md"):
        Path(name).write_text(TEXT)
    ended = summarize("a.txt", *options)
    assert ended.code == 2
    assert ended.sentence().startswith(sentence)


@pytest.mark.parametrize(
    "options",
    [["--temperature", "-1"], ["--temperature", "nan"], ["--method", "fast"], []],
)
def test_usage(summarize: Run, options: list[str]) -> None:
    ended = summarize("a.txt", *options) if options else summarize()
    assert (ended.code, ended.out) == (2, "")
    assert ended.sentence().endswith("; see specx summarize --help")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_a_folder_without_permission(summarize: Run) -> None:
    Path("locked").mkdir(mode=0o500)
    ended = summarize("a.txt", "--out", "locked/sums")
    assert ended.code == 2
    assert "is not writable" in ended.sentence()


# ---------------------------------------------------------------- the real process


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["nope.txt"], 3, "nope.txt does not exist"),
        (["a.txt", "-p", "nope"], 2, "there is no profile 'nope'"),
        (
            ["a.txt", "-p", "hub.yaml"],
            4,
            "The target no-such-org/no-such-model is not complete in ",
        ),
    ],
)
def test_the_real_process(tmp_path: Path, arguments: list[str], code: int, sentence: str) -> None:
    write_profile(tmp_path, "hub", target={"model": "no-such-org/no-such-model"})
    ended = Ended(*in_a_process(*arguments))
    assert ended.code == code
    assert ended.sentence().startswith(sentence)


def test_failures_that_are_allowed_stay_in_the_index(summarize: Run) -> None:
    Path("folder").mkdir()
    Path("folder/a.txt").write_text(TEXT)
    Path("folder/b.pdf").write_text("no pdf")
    Path("folder/c.txt").write_text("")
    Path("known").write_text("folder/b.pdf\nfolder/c*\n")
    for allowed in ("2", "known"):
        ended = summarize("folder", "--out", "sums", "--allow-failures", allowed)
        assert ended.code == 0
        assert "specx: folder/b.pdf has the extension .pdf but is not a PDF" in ended.err
        index = Path("sums/index.html").read_text()
        assert "folder/c.txt" in index
        told = {"2": "Failed: 2 documents", "known": "<h2>2 known failures</h2>"}
        assert told[allowed] in index  # a number names none
    assert summarize("folder", "--allow-failures", "1").code == 7
    assert summarize("folder", "--allow-failures", "2", "--workers", "2").code == 0


def test_files_of_a_folder_that_nothing_can_read_are_failures(
    summarize: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("folder").mkdir()
    Path("folder/a.txt").write_text(TEXT)
    Path("folder/b.docx").write_bytes(b"PK\x03\x04")
    Path("folder/c.html").write_text("<html><p>x")
    monkeypatch.setattr(formats, "find_pandoc", lambda: None)
    ended = summarize("folder", "--out", "sums")
    assert ended.code == 7
    assert "specx: folder/b.docx needs pandoc and selectolax, which are not installed" in ended.err
    assert "2 of 3 documents failed; the other is done" in ended.err
    index = Path("sums/index.html").read_text()
    assert "folder/b.docx" in index
    assert "folder/c.html" in index
