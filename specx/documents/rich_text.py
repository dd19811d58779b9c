"""Convert the characters of an RTF to UTF-8, which pandoc reads.

An RTF gives characters in two forms. The first is bytes in the encoding of a font, which pandoc
would decode as Western text. The second is a Unicode number, followed by a replacement for old
programs; pandoc would drop a word together with this replacement.
"""

import codecs
import re

_TOKEN = re.compile(
    rb"\\'([0-9a-fA-F]{2})|\\([a-zA-Z]+)(-?\d{1,9})? ?|(\\[^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)",
    re.DOTALL,
)
_CODE_PAGES = {  # of what a font calls its charset; 0 is the one of the document
    **{77: "mac-roman", 128: "cp932", 129: "cp949", 134: "gb18030", 136: "cp950", 161: "cp1253"},
    **{162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251"},
    **{222: "cp874", 238: "cp1250"},
}
_MARKS = str.maketrans({"\\": r"\\", "{": r"\{", "}": r"\}", "\t": " "})
_SYSTEMS = {b"mac": "mac-roman", b"pc": "cp437", b"pca": "cp850"}


def in_unicode(data: bytes) -> bytes:
    """Return an RTF with UTF-8 in place of encoded bytes, numbers and their replacements."""
    page, default, fonts = "cp1252", 0, dict[int, str]()
    font, replaced, skipped = 0, 1, 0
    unseen = False  # deleted in a revision, or hidden
    above: list[tuple[int, int, bool]] = []  # what a group ends
    out, units = [data[:6]], b""  # the first half of a character of two numbers
    decoder = _decoder(page)
    for found in _TOKEN.finditer(data, 6):
        code, word, number, symbol, brace, text = found.groups()
        if brace or word:
            decoder.reset()
        if brace == b"{":
            above.append((font, replaced, unseen))
        elif brace and above:
            font, replaced, unseen = above.pop()
        if brace or (word and word != b"u"):
            skipped = 0
        value = int(number or 0)
        if code or text:
            raw = bytes([int(code, 16)]) if code else text
            drop = min(skipped, len(raw))
            skipped -= drop
            if unseen:
                continue
            if text and raw.isascii() and not decoder.getstate()[0]:
                out.append(raw[drop:])
            else:
                out.append(_written(decoder.decode(raw[drop:])))
        elif word == b"u":
            units += (value & 0xFFFF).to_bytes(2, "little")
            if value & 0xFC00 != 0xD800:
                out.append(b"" if unseen else _written(units.decode("utf-16-le", "replace")))
                units = b""
            skipped = replaced
        elif word == b"uc":
            replaced = min(max(value, 0), 9)
        elif symbol and skipped:
            skipped -= 1
        elif symbol in (b"\\\n", b"\\\r"):  # as Macs end paragraphs
            out.append(b"\\par ")
        elif word in (b"deleted", b"v"):
            unseen = number != b"0"
        else:
            if word == b"ansicpg":
                page = _known(f"cp{value}", page)
            elif word in _SYSTEMS:
                page = _SYSTEMS[word]
            elif word == b"deff":
                default = font = value
            elif word == b"f":
                font = value
            elif word == b"plain":
                font, unseen = default, False
            elif word == b"fcharset" and value in _CODE_PAGES:
                fonts[font] = _CODE_PAGES[value]
            out.append(found[0] + b" " if word and found[0][-1:] != b" " else found[0])
        if brace or word:
            decoder = _decoder(fonts.get(font, page))
    return b"".join(out)


def _decoder(page: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(page)("replace")


def _known(page: str, other: str) -> str:
    try:
        return codecs.lookup("mac-roman" if page == "cp10000" else page).name
    except LookupError:
        return other


def _written(text: str) -> bytes:
    return text.translate(_MARKS).encode("utf-8", "replace")
