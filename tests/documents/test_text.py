import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.documents.text import decode_text
from specx.errors import DocumentError

TEXT = "Grüße from the café.\nA second line.\n"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
    ],
)
def test_known_encodings_need_no_warning(data: bytes) -> None:
    assert decode_text(data, "a.txt") == (TEXT, ())


def test_a_guess_is_reported() -> None:
    text, warnings = decode_text("“Grüße”".encode("cp1252"), "a.txt")
    assert text == "“Grüße”"
    assert "Windows-1252" in warnings[0]
    assert "guess" in warnings[0]
    assert "Latin-1" in decode_text(b"caf\xe9 \x81", "a.txt")[1][0]


def test_utf8_cut_inside_a_character_stays_utf8() -> None:
    text, warnings = decode_text(("ä" * 300).encode()[:-1], "a.txt")
    assert text == "ä" * 299 + "\ufffd"
    assert "1 place is damaged" in warnings[0]


def test_a_few_nul_bytes_are_removed() -> None:
    text, warnings = decode_text(b"word " * 100 + b"\x00", "a.txt")
    assert text == "word " * 100
    assert warnings == ("1 NUL byte was removed from the text.",)


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n ", "\ufeff \n".encode(), b"\xff\xfe \x00"])
def test_nothing_to_read(data: bytes) -> None:
    with pytest.raises(DocumentError, match="nothing to summarize"):
        decode_text(data, "a.txt")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "PNG image"),
        (b"PK\x03\x04\x14\x00", "zip archive"),
        (b"\x7fELF\x02\x01\x01\x00", "program"),
        (b"\xff\xd8\xff\xe0", "JPEG image"),
        (bytes(range(256)) * 20, "binary file"),
        (b"\x00\x01\x02\x03" * 100, "binary file"),
    ],
)
def test_binary_files_are_refused(data: bytes, kind: str) -> None:
    with pytest.raises(DocumentError, match=f"looks like .*{kind}"):
        decode_text(data, "a.txt")


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"])))
def test_utf8_is_read_as_it_is(text: str) -> None:
    text = "word" + text
    assert decode_text(text.encode(), "a.txt")[0] == text


@given(st.binary(max_size=300))
def test_any_bytes_give_text_or_a_refusal(data: bytes) -> None:
    try:
        text, _ = decode_text(data, "a.txt")
    except DocumentError:
        return
    assert text.strip()
    assert "\x00" not in text
