import json
import re
import time
from typing import Any

import pytest

from specx.documents.document import Document
from specx.documents.jsonl import _KEYED, LineError, looks_like_json, parse_jsonl, require_documents
from specx.documents.read import ReadOptions, read_documents
from specx.errors import DocumentError

from .conftest import SaveFile


def test_one_document_per_line(save: SaveFile) -> None:
    path = save("a.jsonl", b'{"text": "One.", "id": "x"}\n\n{"text": "Two.\\n\\nMore."}\n')
    first, second = require_documents(read_documents(path))
    assert (first.name, first.text, first.kind) == (f"{path}#x", "One.", "jsonl")
    assert (second.name, second.text) == (f"{path}#3", "Two.\n\nMore.")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b"{nonsense",
            "is not valid JSON (expecting property name enclosed in double quotes at column 2)",
        ),
        (b'{"text": "open', "is not valid JSON (unterminated string starting at column 10)"),
        (b'{"text": "\\q"}', "is not valid JSON (invalid \\escape at column 11)"),
        (b"[" * 200_000, "is not valid JSON (too deeply nested)"),
        (b"9" * 5000, "is not valid JSON (a number is too long)"),
        (b'["text"]', 'has no text; each line must be an object such as {"text": "..."}'),
        (b'{"text": 3}', 'has no text; each line must be an object such as {"text": "..."}'),
        (b'{"text": " ", "id": "x"}', "has an empty text"),
    ],
)
def test_the_line_of_an_error_is_named(save: SaveFile, line: bytes, message: str) -> None:
    path = save("a.jsonl", b'{"text": "One."}\n' + line)
    with pytest.raises(DocumentError, match=f"^{re.escape(f'{path} line 2 {message}')}$"):
        require_documents(read_documents(path))


def test_a_bad_line_costs_no_other_one() -> None:
    good = b'{"text": "One."}\n'
    first, bad, last = parse_jsonl(good + b"\n{nonsense\n" + good, "a.jsonl")
    assert isinstance(first, Document)
    assert isinstance(bad, LineError)
    assert isinstance(last, Document)
    assert [each.name for each in (first, bad, last)] == ["a.jsonl#1", "a.jsonl#3", "a.jsonl#4"]


def test_a_file_that_is_no_text_has_no_lines() -> None:
    with pytest.raises(DocumentError, match="looks like a PNG image"):
        parse_jsonl(b"\x89PNG\r\n\x1a\n....", "a.jsonl")


def test_separators_inside_a_string_are_no_line_ends() -> None:
    line = '{"text": "One sentence.\u2028Another sentence."}'
    (document,) = parse_jsonl(f"{line}\n".encode(), "a.jsonl")
    assert isinstance(document, Document)
    assert "Another sentence." in document.text


def test_tags_in_a_text_are_no_text() -> None:
    line = '{"text": "<p>One <b>sentence</b> of 5 < 7 &amp; 8.</p><ul><li>An item.</ul>"}'
    (document,) = parse_jsonl(line.encode(), "a.jsonl")
    assert isinstance(document, Document)
    assert document.text == "One sentence of 5 < 7 & 8.\n\nAn item."


def test_styles_and_comments_of_a_text_are_no_text() -> None:
    head = "<head><title>A</title><style>p { }</style></head>"
    page = f"<html>{head}<body><!-- <p>B</p> --><p>A sentence.<script>c < d</script></body>"
    (document,) = parse_jsonl(json.dumps({"text": page}).encode(), "a.jsonl")
    assert isinstance(document, Document)
    assert document.text == "A sentence."


@pytest.mark.timeout(20)
@pytest.mark.parametrize("opened", ["<style ", "<style>", "<script>", "<!--"])
def test_what_is_not_closed_hides_nothing_and_takes_no_time(opened: str) -> None:
    text = f"<p>{opened * 100_000}</p><p>A sentence.</p>"
    (document,) = parse_jsonl(json.dumps({"text": text}).encode(), "a.jsonl")
    assert isinstance(document, Document)
    assert document.text.endswith("A sentence.")


def test_line_ends_of_windows_inside_a_string_separate_lines_and_no_paragraphs() -> None:
    line = '{"text": "One sentence\\r\\ngoes on.\\r\\n\\r\\nAnother."}'
    (document,) = parse_jsonl(line.encode(), "a.jsonl")
    assert isinstance(document, Document)
    assert document.text == "One sentence goes on.\n\nAnother."
    assert [paragraph.lines for paragraph in document.paragraphs] == [None, None]


def test_a_line_without_words_costs_no_other_one() -> None:
    bad, good = parse_jsonl(b'{"text": "%s"}\n{"text": "One."}' % (b"x" * 5000), "a.jsonl")
    assert isinstance(bad, LineError)
    assert isinstance(good, Document)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize("indent", [None, 2])
def test_records_of_arrays_and_over_several_lines(
    save: SaveFile, name: str, indent: int | None
) -> None:
    records = [{"id": "x", "text": "One."}, {"text": "Two.", "more": {"a": [1]}}]
    for text in (
        json.dumps(records, indent=indent),
        "\n".join(json.dumps(each, indent=indent) for each in records),
    ):
        found = read_documents(save(name, text.encode()))
        assert [each.text for each in found if isinstance(each, Document)] == ["One.", "Two."]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"type": "FeatureCollection", "features": []}, 'the keys "type", "features", without'),
        ({"name": "x", "version": "1"}, 'a JSON object with the keys "name", "version", without'),
        ([1, 2], "a JSON array of 2 values, without"),
    ],
)
def test_json_without_texts_says_what_it_is(save: SaveFile, value: object, told: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(told)):
        read_documents(save("a.json", json.dumps(value, indent=1).encode()))


def test_broken_json_is_told_once(save: SaveFile) -> None:
    with pytest.raises(DocumentError, match="is not valid JSON"):
        read_documents(save("a.json", b'{\n "text": "One."\n'))


@pytest.mark.parametrize("name", ["a.ndjson", "a.data", "a"])
def test_json_is_known_by_its_content(save: SaveFile, name: str) -> None:
    rows = b'{"text": "It turns."}\n{"text": "It fell."}\n'
    texts = [each.text for each in read_documents(save(name, rows)) if isinstance(each, Document)]
    assert texts == ["It turns.", "It fell."]


def test_strings_without_objects_need_no_key(save: SaveFile) -> None:
    with pytest.raises(DocumentError, match=r'put each text into \{"text": "\.\.\."\}'):
        read_documents(save("a.json", b'["It turns.", "It fell."]'))


@pytest.mark.parametrize("key", ["segments", None])
def test_the_segments_of_a_transcript_are_speech(save: SaveFile, key: str | None) -> None:
    said = [
        {"start": 61.5 * n, "end": 9.0, "text": f" The mill fell in {1911 + n}.", "speaker": "Ann"}
        for n in range(3)
    ]
    value = {key: said, "text": "All."} if key else said
    (document,) = require_documents(read_documents(save("a.json", json.dumps(value).encode())))
    assert document.kind == "subtitles"
    told = "Ann: The mill fell in 1911. The mill fell in 1912. The mill fell in 1913."
    assert [(each.label, each.text) for each in document.paragraphs] == [("0:00:00", told)]


def test_texts_in_an_array_of_an_object(save: SaveFile) -> None:
    value = {"count": 2, "data": [{"body": "It turns."}, {"body": "It fell."}], "more": [1]}
    options = ReadOptions(field="body")
    found = require_documents(read_documents(save("a.json", json.dumps(value).encode()), options))
    assert [each.text for each in found] == ["It turns.", "It fell."]


def test_texts_that_no_key_reaches_are_told(save: SaveFile) -> None:
    deep = [{"title": "A mill", "map": {"x": {"id": 7, "parts": ["It turns, and it fell."]}}}]
    with pytest.raises(DocumentError, match='deeper inside, under "parts"; put each text into'):
        read_documents(save("a.json", json.dumps(deep).encode()))
    flat = [{"body": "It turns, and it fell.", "note": "a b"}]
    with pytest.raises(DocumentError, match="with --field, such as body"):
        read_documents(save("a.json", json.dumps(flat).encode()))


def test_messages_of_a_chat_are_one_document(save: SaveFile) -> None:
    said = ["It turns.", ["It ", {"type": "bold", "text": "fell"}, "."], "", "So be it."]
    messages = [{"date": f"2021-05-03T10:0{n}:00", "from": "Ann", "text": each}
                for n, each in enumerate(said)]  # fmt: skip
    chat = {"name": "Mill", "messages": [{"type": "service", "text": ""}, *messages]}
    [document] = require_documents(read_documents(save("a.json", json.dumps(chat).encode())))
    assert [(p.label, p.text) for p in document.paragraphs] == [
        ("2021-05-03 10:00:00", "Ann: It turns."),
        ("2021-05-03 10:01:00", "Ann: It fell."),
        ("2021-05-03 10:03:00", "Ann: So be it."),
    ]


@pytest.mark.parametrize(
    "records",
    [
        [{"start": 1911 + n, "text": f"The mill fell in {1911 + n}."} for n in range(3)],  # years
        [{"start": n, "end": float("nan"), "text": f"The mill fell in {n}."} for n in range(3)],
    ],
)
def test_other_records_with_a_start_are_a_document_each(
    save: SaveFile, records: list[dict[str, Any]]
) -> None:
    found = require_documents(read_documents(save("a.json", json.dumps(records).encode())))
    assert [each.text for each in found] == [each["text"] for each in records]


def test_texts_of_segments_stand_under_any_key_and_have_no_tags(save: SaveFile) -> None:
    said = [{"start": n, "end": n + 1, "body": f"Say p < {n} and q > 3."} for n in range(3)]
    options = ReadOptions(field="body")
    path = save("a.json", json.dumps(said).encode())
    (transcript,) = require_documents(read_documents(path, options))
    assert "p < 2 and q > 3" in transcript.text
    article = {"text": "The mill fell in 1911.", "segments": [{"start": 0, "end": 1}] * 3}
    path = save("b.json", json.dumps(article).encode())
    assert [each.text for each in require_documents(read_documents(path))] == [article["text"]]


def test_a_bad_byte_concerns_its_record_alone() -> None:
    good = b'{"text": "It turns, says Andr\xc3\xa9."}\n'
    found = require_documents(parse_jsonl(good * 9 + b'{"text": "It f\xe9ll."}\n' + good, "a"))
    assert [bool(each.warnings) for each in found] == [False] * 9 + [True, False]


def test_a_text_in_parts_is_one_text() -> None:
    parts = ["It fell on ", {"type": "bold", "text": "Monday"}, "."]
    (document,) = require_documents(parse_jsonl(json.dumps({"text": parts}).encode(), "a"))
    assert document.text == "It fell on Monday."


def test_a_deleted_account_has_said_something(save: SaveFile) -> None:
    messages = [
        {"date": f"2021-05-03T10:0{n}:00", "type": "message", "from": who, "text": f"It is {n}."}
        for n, who in enumerate(("Ann", None, "Ann"))
    ]
    chat = {"text": "Of the mill", "messages": [*messages, {**messages[0], "type": "service"}]}
    [document] = require_documents(read_documents(save("a.json", json.dumps(chat).encode())))
    texts = ["Of the mill", "Ann: It is 0.", "Deleted account: It is 1.", "Ann: It is 2."]
    assert [each.text for each in document.paragraphs] == texts
    assert document.paragraphs[1].speaker == "Ann"


def test_spaces_behind_a_key_take_no_time() -> None:
    started = time.process_time()
    assert not looks_like_json(b'{"a":' + b" " * 100_000 + b"1}]")
    list(_KEYED.finditer('{"a":' + " " * 100_000 + "1}"))
    assert time.process_time() - started < 1


def test_messages_of_slack_are_one_document(save: SaveFile) -> None:
    who = {"user_profile": {"real_name": "Ann Vik"}}
    said = [
        {
            "ts": "1620000000.0001",
            "subtype": "channel_join",
            "text": "<@U3> has joined",
            "user": "U3",
        },
        {
            "ts": "1620000100.0002",
            "text": "The gate &amp; the chain of <@U1> are gone.",
            "user": "U1",
        }
        | who,
        {"ts": "1620000101.0002", "text": "See <https://x.example|the list> first.", "user": "U2"},
        {"ts": "1620000161.0002", "text": "I can be there at noon.", "user": "U1"} | who,
    ]
    (document,) = read_documents(save("general.json", json.dumps(said).encode()))
    assert isinstance(document, Document)
    assert [each.text for each in document.paragraphs] == [
        "Ann Vik: The gate & the chain of Ann Vik are gone.",
        "U2: See the list first.",
        "Ann Vik: I can be there at noon.",
    ]
    assert document.paragraphs[0].label == "2021-05-03 00:01"


@pytest.mark.parametrize(
    "of_a_log",
    [
        {"ts": "1620000100.0002", "user": {"name": "ann"}},
        {"ts": 1620000100.25, "level": "info"},
        {"ts": "1620000100.0002", "level": "info"},
    ],
)
def test_records_with_a_time_are_no_chat(save: SaveFile, of_a_log: dict[str, Any]) -> None:
    data = json.dumps([of_a_log | {"text": f"The mill fell {n} times."} for n in range(4)])
    assert len(require_documents(read_documents(save("a.json", data.encode())))) == 4


def test_arrays_in_lines_hold_a_document_each(save: SaveFile) -> None:
    data = b'[{"text": "One."}, {"text": "Two."}]\n[{"text": "Three."}]\n'
    found = require_documents(read_documents(save("a.json", data)))
    assert [each.text for each in found] == ["One.", "Two.", "Three."]


def test_a_line_of_json_is_one_record_though_it_holds_a_list_of_texts(save: SaveFile) -> None:
    lines = [{"parts": [{"text": "One."}, {"text": "Two."}]}, {"text": "Three."}]
    found = read_documents(save("a.jsonl", "\n".join(map(json.dumps, lines)).encode()))
    assert [type(each).__name__ for each in found] == ["LineError", "Document"]
