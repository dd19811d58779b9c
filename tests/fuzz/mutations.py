"""Damage to bytes: what falls over in a file, and what somebody would change on purpose."""

# ruff: noqa: E501 (tables of bytes)

import random
import re
from collections.abc import Sequence

_NUMBER = re.compile(rb"\d+")
_NUMBERS = (b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"99999999999999999999", b"1e400")
PDF_WORDS = (
    b" obj ", b" endobj ", b" stream\n", b"\nendstream ", b" 1 0 R ", b" 3 0 R ", b"<<", b">>",
    b"[", b"]", b"(", b")", b"<", b">", b"/", b"%", b" null ", b" true ", b"/Kids[2 0 R]",
    b"/Count 1000000", b"/Length 999999999", b"/Length 1 0 R", b"/Filter/FlateDecode",
    b"/Filter[/ASCIIHexDecode/FlateDecode]", b"/Filter/LZWDecode", b"/Filter/RunLengthDecode",
    b"/Prev 0", b"/Type/ObjStm", b"/Type/XRef", b"/Encrypt 1 0 R", b"/Parent 3 0 R", b" trailer ",
    b" startxref\n0\n", b"xref\n0 9999999\n", b"/ToUnicode 1 0 R", b"/Encoding/Identity-H",
    b"/Encoding 3 0 R", b"/Widths[1 0 R]", b"/FirstChar 99999", b"/W[0[1]5 9 1]", b"/MediaBox 1",
    b"/Rotate 45", b" BT ", b" ET ", b" Tj ", b" TJ ", b" Tf ", b" 0 0 0 0 0 0 Tm ", b" q ", b" Q ",
    b" BI /W 9 ID ", b" EI ", b"/Fm0 Do ", b"\x1b[31m", b"\xe2\x80\xae",
)  # fmt: skip
MARKUP_WORDS = (
    b"<", b">", b"</", b"/>", b"<!--", b"]]>", b"<![CDATA[", b"&#0;", b"&#xd800;", b"&x;", b'"', b"'", b"=",
    b"<?xml version='1.0' encoding='utf-16'?>", b"<!DOCTYPE a [<!ENTITY x 'y'>]>", b"<w:p>", b"</w:p>",
    b"<w:r>", b"<w:tbl>", b"<w:txbxContent>", b"<w:sdt>", b"<mc:AlternateContent>", b"<text:p>", b"../",
    b"<table><tr><td>", b"</td>", b"<p>", b"charset=undefined ", b"charset=utf-16 ", b"\n--x\n", b"\n--y--\n",
    b"Content-Type: multipart/alternative; boundary=x\n\n", b"Content-Type: message/rfc822\n\n", b"=?a?b?c?=",
    b"=?utf-8?B?a?=", b"Content-Transfer-Encoding: x-uuencode\n", b"charset*0*=a''%ff", b" --> ", b"00:00:00.000",
    b"<v ", b"\nNOTE ", b"\x00", b"\xff\xfe", b"<div>" * 3000, b"<w:p>" * 2000, b"\n\n",
)  # fmt: skip
TEXT_WORDS = (
    b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n\n\n", b"\t",
    b"\x1b]0;x\x07", b"\x1b[31m", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\x0c", b"\xc2\xad\n", b"|",
    b"```\n", b"~~~", b"# ", b"> ", b"- ", b"1. ", b"---\n", b"===\n", b"[a]: ", b"](", b"<!--",
    b"-->", b"<div>", b"{", b"}", b'"', b"\\u", b"\\ud800", b"[[", b"]]", b": ", b"&a ", b"*a", b"!!x ",
    b"!!python/object ", b"'", b"%YAML 9\n", b"? ", b"<<: ", b"0x", b".inf", b"2024-99-99", b"1_0",
    b"9" * 5000, b"[" * 3000, b"{a: " * 1500, b"((((" * 500, b"- " * 2000, b"> " * 2000, b"*" * 3000,
    b"....." * 1000, b"| " * 2000, b"e\xcc\x81" * 200,
)  # fmt: skip


def mutated(
    chance: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]
) -> bytes:
    """Return ``data`` with one to six damages; ``others`` give pieces, ``words`` are inserted."""
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        data = _damaged(chance, data, others, words)
    return data


def _damaged(
    chance: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]
) -> bytes:
    first = chance.randrange(len(data) + 1)
    last = min(len(data), first + int(chance.expovariate(1 / 40)))
    match chance.randrange(9):
        case 0:
            return data[:first] + bytes([chance.randrange(256)]) + data[first + 1 :]
        case 1:
            return data[:first] + data[last:]
        case 2:
            return data[:last] + data[first:last] * chance.choice((1, 2, 50)) + data[last:]
        case 3 | 4:
            return data[:first] + chance.choice(words) + data[chance.choice((first, last)) :]
        case 5:
            return data[: chance.randrange(len(data) + 1)]
        case 6:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            return data[:first] + other[start : start + chance.randrange(1, 2000)] + data[last:]
        case 7:
            numbers = list(_NUMBER.finditer(data))
            if not numbers:
                return data
            found = chance.choice(numbers)
            value = chance.choice((*_NUMBERS, b"%d" % chance.randrange(30)))
            return data[: found.start()] + value + data[found.end() :]
        case _:
            piece = bytearray(data[first:last])
            chance.shuffle(piece)
            return data[:first] + bytes(piece) + data[last:]
