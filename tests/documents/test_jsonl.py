import pytest

from specx.documents.jsonl import read_jsonl
from specx.errors import DocumentError

from .conftest import SaveFile


def test_one_document_per_line(save: SaveFile) -> None:
    path = save("a.jsonl", b'{"text": "One.", "id": "x"}\n\n{"text": "Two.\\n\\nMore."}\n')
    first, second = read_jsonl(path)
    assert (first.name, first.text, first.kind) == (f"{path}#x", "One.", "jsonl")
    assert (second.name, second.text) == (f"{path}#3", "Two.\n\nMore.")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{nonsense", "a.jsonl#2 is not valid JSON"),
        (b'["text"]', "a.jsonl#2 has no text"),
        (b'{"text": 3}', "a.jsonl#2 has no text"),
        (b'{"text": " "}', "a.jsonl#2 has an empty text"),
    ],
)
def test_the_line_of_an_error_is_named(save: SaveFile, line: bytes, message: str) -> None:
    path = save("a.jsonl", b'{"text": "One."}\n' + line)
    with pytest.raises(DocumentError, match=message):
        read_jsonl(path)
