"""``specx ask`` and ``specx cache``: questions about documents, and what is kept of these."""

import builtins
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specx.bench.cases import generated_documents
from specx.cache_folder import kept_files, prompts_folder
from specx.cli.main import run
from specx.prompts.instruct import OPENING, Instruct
from specx.records import PrefillProgress
from specx.reports.live import LiveLine
from specx.reports.report import UNSAID
from specx.runs import summarizer
from tests.cli.processes import Ended, Run, own_cache
from tests.runs.pairs import TEXT, saying, write_profile

ANSWER = "A report about the ships. It was long."


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    Path("a.txt").write_text(f"{TEXT}\n\n" * 6)
    Path("b.txt").write_text(f"{TEXT} The clerk has copied it.\n\n" * 5)
    write_profile(tmp_path, target={"window": 1500})


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``specx ask`` in this process."""

    def do(*arguments: str) -> Ended:
        capsys.readouterr()
        code = run(["ask", *arguments, "-p", "tiny.yaml", "--device", "cpu", "--threads", "1"])
        return Ended(code, *capsys.readouterr())

    return do


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The contents of prompts, in order; each answer is the same."""
    contents: list[str] = []
    real = Instruct.prompts

    def prompts(self: Instruct, *arguments: Any, **options: Any) -> Any:
        made = real(self, *arguments, **options)
        contents.extend(prompt.content for prompt in made)
        return made

    monkeypatch.setattr(Instruct, "prompts", prompts)
    monkeypatch.setattr(summarizer, "decode", saying(ANSWER))
    return contents


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the target's chunks of prompts end."""
    ends: list[int] = []
    real = LiveLine.on

    def on(self: LiveLine, event: Any) -> None:
        if isinstance(event, PrefillProgress) and event.model == "target":
            ends.append(event.done)
        real(self, event)

    monkeypatch.setattr(LiveLine, "on", on)
    return ends


def test_each_question_has_an_answer_with_its_source(ask: Run, asked: list[str]) -> None:
    ended = ask("a.txt", "Who wrote it?", "How long is it?")
    assert ended.code == 0
    first, second = ended.out.split("# How long is it?\n")
    assert first.startswith(f"# Who wrote it?\n\n{ANSWER}\n")
    assert second.strip().startswith(ANSWER)
    for content, question in zip(asked, ("Who wrote it?", "How long is it?"), strict=True):
        assert content.startswith(f"{OPENING}\n\n<document>\n")
        assert content.rstrip().endswith(f"Question: {question}\n\nAnswer:")


def test_sources_are_the_documents_own_sentences(ask: Run) -> None:
    ended = ask("a.txt", "Who?")
    assert not ended.out.startswith("#")  # one answer needs no heading
    sources = [line for line in ended.out.splitlines() if line.startswith("  [")]
    assert sources
    for line in sources:
        place, _, quote = line.strip().partition("] ")
        assert place.startswith("[l. ")
        assert quote.strip("“”") in TEXT


def test_what_the_document_does_not_say_has_no_source(
    ask: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summarizer, "decode", saying(UNSAID))
    assert ask("a.txt", "Who?").out == f"{UNSAID}\n"
    assert json.loads(ask("a.txt", "Who?", "--json").out)["answered"] is False


def test_json(ask: Run) -> None:
    found = json.loads(ask("a.txt", "Who?", "--json").out)
    assert (found["question"], found["answered"]) == ("Who?", True)
    assert found["sentences"][0]["sources"][0]["place"].startswith("l. ")
    lines = [json.loads(line) for line in ask("a.txt", "One?", "Two?", "--jsonl").out.splitlines()]
    assert [line["question"] for line in lines] == ["One?", "Two?"]
    assert lines[0]["summary"] != "" != lines[1]["summary"]


def test_a_document_is_read_once(ask: Run, read: list[int]) -> None:
    answers = ask("a.txt", "One?", "And what is two?", "--jsonl").out.splitlines()
    first, second, *more = read  # up to the question, then the question itself
    assert first < second
    assert len(more) == 1
    read.clear()
    alone = json.loads(ask("a.txt", "And what is two?", "--json").out)
    assert alone["summary"] == json.loads(answers[1])["summary"]
    assert len(read) == 2


def test_questions_are_lines_of_stdin(
    ask: Run, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Who?\n\n  How long?\n"))
    ended = ask("a.txt")
    assert ended.code == 0
    assert [line for line in ended.out.splitlines() if line.startswith("#")] == [
        "# Who?",
        "# How long?",
    ]
    assert len(asked) == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def typing(*lines: str) -> Callable[[str], str]:
    left: Iterator[str] = iter(lines)

    def do(prompt: str) -> str:
        assert prompt == "? "
        for line in left:
            return line
        raise EOFError

    return do


def test_questions_are_typed_and_may_refer_to_the_answer_before(
    ask: Run, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal())
    monkeypatch.setattr(builtins, "input", typing("Who?", "", "And when?", "And why?"))
    ended = ask("a.txt")
    assert ended.code == 0
    assert ended.out.count(ANSWER) == 3
    assert "Earlier question" not in asked[0]
    before = f"Earlier question: Who?\nEarlier answer: {ANSWER}"
    assert before in asked[1]
    assert "Earlier question: Who?" not in asked[2]  # one turn, unless more are wished for
    assert f"Earlier question: And when?\nEarlier answer: {ANSWER}" in asked[2]


@pytest.mark.parametrize(("turns", "seen"), [(0, [0, 0, 0]), (1, [0, 1, 1]), (5, [0, 1, 2])])
def test_turns(ask: Run, asked: list[str], turns: int, seen: list[int]) -> None:
    assert ask("a.txt", "One?", "Two?", "Three?", "--turns", str(turns)).code == 0
    assert [content.count("Earlier question: ") for content in asked] == seen


def test_several_documents_are_asked_one_after_the_other(ask: Run, read: list[int]) -> None:
    ended = ask("*.txt", "Who?", "When?")
    headings = [line for line in ended.out.splitlines() if line.startswith("#")]
    assert headings == ["# a.txt: Who?", "# a.txt: When?", "# b.txt: Who?", "# b.txt: When?"]
    assert len(read) == 2 + 1 + 2 + 1


def test_typed_questions_find_each_document_read(
    ask: Run, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("One?\nTwo?\n"))
    assert ask("*.txt").code == 0
    assert len(read) == 2 + 2 + 1 + 1


def test_one_document_of_several_cannot_be_read(ask: Run) -> None:
    Path("c.txt").write_text("")
    ended = ask("*.txt", "Who?")
    assert ended.code == 7
    assert ended.out.count("# ") == 2
    assert "c.txt" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["missing.txt", "Who?"], 3, "does not exist"),
        (["a.txt", "Who?", "--json", "--jsonl"], 2, "cannot be combined"),
        (["a.txt", "Who?", "When?", "--json"], 2, "use --jsonl"),
        (["-"], 2, "the questions must be arguments"),
        (["a.txt", "Who?", "--keep", "--keep-limit", "much"], 2, "expected a size"),
        (["a.txt", "Who?", "--turns", "-1"], 2, "turns"),
    ],
)
def test_bad_requests(ask: Run, arguments: list[str], code: int, sentence: str) -> None:
    ended = ask(*arguments)
    assert ended.code == code
    assert sentence in ended.err


def test_a_model_that_copies_answers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ask", "a.txt", "Who?"]) == 2
    assert "only copies sentences and cannot answer" in capsys.readouterr().err


def test_an_answer_is_compared_with_plain_decoding(ask: Run) -> None:
    found = json.loads(ask("a.txt", "Who?", "--json", "--check-lossless").out)
    assert found["lossless"]["identical"]


# ---------------------------------------------------------------- kept


def keys(files: Path) -> list[str]:
    return sorted(each.path.name for each in kept_files(files))


def test_a_document_is_kept_for_questions_and_summaries(
    ask: Run, specx: Run, read: list[int]
) -> None:
    """Another question, another length, style and language: all share what was read."""
    alone = ask("a.txt", "When?").out
    read.clear()
    kept = ["--keep", "--method", "plain"]
    ask("a.txt", "Who?", *kept)
    files = keys(prompts_folder())
    assert len(files) == 1
    assert len(read) == 2
    assert ask("a.txt", "When?", *kept).out == alone
    usual = ["a.txt", "-p", "tiny.yaml", "--device", "cpu", "--threads", "1", *kept]
    for wish in ([], ["--words", "20"], ["--style", "bullets"], ["--language", "German"],
                 ["--instruction", "Name the clerk."]):  # fmt: skip
        assert specx(*usual, *wish).code == 0
    assert keys(prompts_folder()) == files
    assert len(read) == 2 + 1 + 5


def test_a_summary_is_the_same_whether_it_was_kept(specx: Run, read: list[int]) -> None:
    usual = ["a.txt", "-p", "tiny.yaml", "--device", "cpu", "--threads", "1", "--keep"]
    first, again = specx(*usual).out, specx(*usual).out
    assert first == again
    assert len(read) == 2 + 1


def test_a_profile_keeps(tmp_path: Path, specx: Run) -> None:
    path = write_profile(tmp_path, name="keeping", keep=True, target={"window": 1500})
    assert specx("a.txt", "-p", path, "--device", "cpu", "--method", "plain").code == 0
    assert len(keys(prompts_folder())) == 1


def test_parts_of_a_long_document_are_kept(tmp_path: Path, ask: Run, read: list[int]) -> None:
    Path("a.txt").write_text("".join(f"{number} ships. {TEXT}\n\n" for number in range(30)))
    write_profile(tmp_path, target={"window": 1000})
    ask("a.txt", "Who?", "--keep", "--method", "plain")
    files, before = keys(prompts_folder()), len(read)
    assert len(files) > 1
    ask("a.txt", "Who else?", "--keep", "--method", "plain")
    assert keys(prompts_folder()) == files
    assert len(read) - before == before - len(files)


def test_a_damaged_file_is_told_in_a_line(ask: Run) -> None:
    alone = ask("a.txt", "Who?").out
    ask("a.txt", "When?", "--keep", "--method", "plain")
    (file,) = kept_files(prompts_folder())
    file.path.write_bytes(file.path.read_bytes()[:-9])
    ended = ask("a.txt", "Who?", "--keep", "--method", "plain")
    assert ended.out == alone
    (line,) = [line for line in ended.err.splitlines() if "kept prompt" in line]
    assert line.endswith("was not used: it is incomplete")


def test_the_same_texts_with_and_without_kept_prompts(ask: Run, tmp_path: Path) -> None:
    """Five documents, three methods."""
    write_profile(tmp_path, target={"window": 2000})
    Path("many").mkdir()
    for number, document in enumerate(generated_documents(5, 120, seed=1)):
        Path(f"many/{number}.txt").write_text(document.text)
    for method in ("plain", "lookup", "specextend"):
        usual = ["many", "Who?", "--jsonl", "--method", method]
        alone = ask(*usual).out.splitlines()
        ask("many", "What?", "--keep", "--method", method)
        texts = [
            [json.loads(line)["summary"] for line in lines]
            for lines in (alone, ask(*usual, "--keep").out.splitlines())
        ]
        assert len(texts[0]) == 5
        assert texts[0] == texts[1]


def test_cache_ls_and_clear(ask: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", "ls"]) == 0
    assert capsys.readouterr().out == ""
    ask("a.txt", "Who?", "--keep", "--method", "plain")
    (file,) = kept_files(prompts_folder())
    (prompts_folder() / "note.prompt").write_text("not ours")
    assert run(["cache", "ls"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["note.prompt", "a.txt"]
    assert int(rows[1][3]) == file.bytes
    assert int(rows[1][2]) > 100
    assert run(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("2 prompts, 0.00 GB, deleted from ")
    assert not kept_files(prompts_folder())
