"""The prompt kind ``digest``: paragraphs with markers in, sentences with their markers out.

Prompt: ``<p0> paragraph <p1> paragraph … <sum> <n8>``. Output: for each chosen paragraph its marker
and its lead sentence, in document order (``docs/embedded-pair.md``).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specx.documents.document import Document, Paragraph
from specx.documents.layout import ENDS_SENTENCE
from specx.documents.sentences import split_sentences
from specx.errors import ModelError
from specx.prompts.detokenize import Detokenizer
from specx.prompts.prompt import (
    Output,
    Prompt,
    Quote,
    Unit,
    encode_text,
    make_units,
    pack,
    token_counter,
    too_little_room,
)

SHORTEST_PASSAGE = 60  # characters, as in the paragraphs that the embedded pair was trained on
_QUOTED = ("text", "item")


class Digest:
    """Prompts for a digest of ``sentences`` sentences a part.

    Raises ModelError for a tokenizer without markers, the request or as many sentences.
    """

    def __init__(self, tokenizer: Any, sentences: int) -> None:
        self._tokenizer, self._sentences = tokenizer, sentences
        vocabulary = tokenizer.get_vocab()
        self._markers = _numbered(vocabulary, "<p{}>", first=0)
        self._request = vocabulary.get("<sum>")
        self._lengths = _numbered(vocabulary, "<n{}>", first=1)
        if not self._markers or self._request is None or len(self._lengths) < sentences:
            raise ModelError(
                "the prompt kind digest needs a model with paragraph markers such as the embedded "
                "one; use kind: instruct for this model"
            )

    def prompts(self, document: Document, room: int) -> list[Prompt]:
        room -= 2  # the request
        if room < 2:  # a marker and a token
            raise too_little_room(room)
        read = set(passages(document.paragraphs))
        units = make_units(document, token_counter(self._tokenizer), longest=room - 1)
        units = [
            replace(unit, tokens=unit.tokens + 1)  # and its marker
            for unit in units
            if unit.paragraph in read
        ]
        parts = pack(units, room, most=len(self._markers))
        return [self._prompt(part) for part in parts]

    def reduce(self, outputs: Sequence[Output], room: int) -> list[Prompt]:  # noqa: ARG002
        return []

    def reader(self, prompt: Prompt) -> "DigestReader":
        return DigestReader(self._tokenizer, self._markers, prompt.units)

    def _prompt(self, part: list[Unit]) -> Prompt:
        rows = encode_text(self._tokenizer, [unit.text for unit in part])
        ids = [i for n, row in enumerate(rows) for i in (self._markers[n], *row)]
        sentences = min(self._sentences, len(part))  # no more than there are paragraphs
        return Prompt((*ids, self._request, self._lengths[sentences - 1]), tuple(part))


def passages(paragraphs: Sequence[Paragraph]) -> list[int]:
    """Return the places of the paragraphs that a digest may quote, in document order.

    Running text of the body is quoted; headings, footnotes, labels, tables, code and sentences that
    only announce what follows are not. Short paragraphs are returned, too, where running text is
    less than half (lists, notes).
    """
    body = [place for place, each in enumerate(paragraphs) if each.part == "body"]
    texts = [place for place in body if _is_text(paragraphs, place)] or body
    running = [
        place
        for place in texts
        if len(paragraphs[place].text) >= SHORTEST_PASSAGE
        and ENDS_SENTENCE.search(paragraphs[place].text)
    ]
    enough = 2 * _size(paragraphs, running) >= _size(paragraphs, texts)
    return running if enough else texts


def _is_text(paragraphs: Sequence[Paragraph], place: int) -> bool:
    """Return True for text that is not just one sentence in front of a list, a table or code."""
    paragraph = paragraphs[place]
    if paragraph.kind not in _QUOTED:
        return False
    announces = paragraph.text.endswith((":", "：")) and len(split_sentences(paragraph.text)) == 1
    return not announces or all(
        below.kind == "text" and ENDS_SENTENCE.search(below.text)
        for below in paragraphs[place + 1 : place + 2]
    )


def _size(paragraphs: Sequence[Paragraph], places: Sequence[int]) -> int:
    return sum(len(paragraphs[place].text) for place in places)


class DigestReader:
    """Cut the output at its markers and cite the paragraph of each sentence.

    The pieces handed out add up to the text: sentences with their citations, blank lines between.
    """

    def __init__(self, tokenizer: Any, markers: Sequence[int], units: Sequence[Unit]) -> None:
        self._tokenizer, self._units = tokenizer, units
        self._marked = {token: index for index, token in enumerate(markers)}
        self._unit: Unit | None = None
        self._sentence = Detokenizer(tokenizer)
        self._shown = 0  # characters of the open sentence that are in the text
        self._quotes: list[Quote] = []
        self._text = ""

    def feed(self, ids: Sequence[int]) -> str:
        before = len(self._text)
        for token in ids:
            if token in self._marked:
                self._close()
                index = self._marked[token]
                self._unit = self._units[index] if index < len(self._units) else None
            else:
                self._sentence.feed([token])
                self._write()
        return self._text[before:]

    def finish(self) -> tuple[str, Output]:
        before = len(self._text)
        self._close()
        return self._text[before:], Output(self._text, tuple(self._quotes))

    def _write(self) -> str:
        """Add what is new of the open sentence; white space waits for the word behind it."""
        sentence = self._sentence.text.strip()
        if sentence and not self._shown and self._text:
            self._text += "\n\n"
        self._text += sentence[self._shown :]
        self._shown = len(sentence)
        return sentence

    def _close(self) -> None:
        """End the open sentence with its citation."""
        self._sentence.finish()
        sentence = self._write()
        self._sentence, self._shown = Detokenizer(self._tokenizer), 0
        unit, self._unit = self._unit, None
        if not sentence or unit is None:  # without a paragraph the text stays, uncited
            return
        verbatim = " ".join(sentence.split()) in " ".join(unit.text.split())
        self._quotes.append(
            Quote(paragraph=unit.paragraph, page=unit.page, sentence=sentence, verbatim=verbatim)
        )
        page = "" if unit.page is None else f", p. {unit.page}"
        self._text += f" [¶{unit.paragraph + 1}{page}]"


def _numbered(vocabulary: dict[str, int], pattern: str, first: int) -> list[int]:
    """Return the ids of the tokens ``<p0>``, ``<p1>``, … as far as they go."""
    ids: list[int] = []
    while (token := vocabulary.get(pattern.format(first + len(ids)))) is not None:
        ids.append(token)
    return ids
