"""The prompt kind ``digest``: paragraphs with markers in, sentences with their markers out.

Prompt: ``<p0> paragraph <p1> paragraph … <sum> <n8>``. Output: for each chosen paragraph its marker
and its lead sentence, in document order (``docs/embedded-pair.md``).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from specx.documents.document import Document, Paragraph
from specx.documents.duplicates import first_places
from specx.documents.layout import ENDS_SENTENCE
from specx.documents.sentences import sentence_spans, split_sentences
from specx.errors import ModelError
from specx.profile import FEWEST_SENTENCES, MOST_SENTENCES
from specx.prompts.detokenize import decode_whole
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
from specx.prompts.quotation import LONGEST, QuoteJudge

SHORTEST_PASSAGE = 60  # characters, as in the paragraphs that the embedded pair was trained on
_QUOTED = ("text", "item")
_LONGEST_REST = 400  # characters of a sentence that the model broke off


class Digest:
    """Prompts for a digest of ``sentences`` sentences a part.

    Raises ModelError for a tokenizer without markers, the request or as many sentences.
    """

    def __init__(self, tokenizer: Any, sentences: int) -> None:
        self.tokenizer, self._sentences = tokenizer, sentences
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
        units = make_units(document, token_counter(self.tokenizer), longest=room - 1)
        units = [
            replace(unit, tokens=unit.tokens + 1)  # and its marker
            for unit in readable([unit for unit in units if unit.paragraph in read])
        ]
        parts = pack(units, room, most=len(self._markers))
        return [self._prompt(part) for part in parts]

    def candidates(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompts of parts whose digests are chosen from once more.

        Together they ask for about twice the sentences of the digest: with more to choose from, the
        last choice is worse (docs/notes/2026-11-23-parts.md).
        """
        return [self._prompt(list(prompt.units), self._share(prompts)) for prompt in prompts]

    def of_units(self, units: Sequence[Unit], room: int) -> list[Prompt]:
        """Return prompts for a digest of paragraphs that were chosen before.

        One of several prompts asks for less than it holds, so that each level chooses.
        """
        counted = [replace(unit, tokens=unit.tokens + 1) for unit in units]
        parts = pack(counted, room - 2, most=len(self._markers))
        if len(parts) == 1:
            return [self._prompt(parts[0])]
        share = self._share(parts)
        return [self._prompt(part, min(share, len(part) - len(part) // 4)) for part in parts]

    def reader(self, prompt: Prompt) -> "DigestReader":
        return DigestReader(self.tokenizer, self._markers, prompt.units, self.stop(prompt))

    def stop(self, prompt: Prompt) -> QuoteJudge:
        ids = np.array(prompt.token_ids[:-2])  # without the request
        begins = np.flatnonzero(np.isin(ids, self._markers)).tolist()
        paragraphs = [ids[begin + 1 : end] for begin, end in pairwise([*begins, len(ids)])]
        return QuoteJudge(self._markers, paragraphs)

    def _share(self, parts: Sequence[object]) -> int:
        return max(FEWEST_SENTENCES, -(-2 * self._sentences // len(parts)))

    def _prompt(self, part: list[Unit], most: int = MOST_SENTENCES) -> Prompt:
        rows = encode_text(self.tokenizer, [unit.text for unit in part])
        ids = [i for n, row in enumerate(rows) for i in (self._markers[n], *row)]
        sentences = min(self._sentences, most, len(part))  # no more than there are paragraphs
        return Prompt((*ids, self._request, self._lengths[sentences - 1]), tuple(part))


def readable(units: list[Unit]) -> list[Unit]:
    """Return the units without those in letters that the tokenizer has only as bytes.

    Sentences of such letters break off. They stay where they are most of the text.
    """
    known = [unit for unit in units if unit.tokens <= len(unit.text)]
    enough = 2 * sum(len(unit.text) for unit in known) >= sum(len(unit.text) for unit in units)
    return known if enough else units


def passages(paragraphs: Sequence[Paragraph]) -> list[int]:
    """Return the places of the paragraphs that a digest may quote, in document order.

    Running text of the body is quoted; headings, footnotes, labels, tables, code, sentences that
    only announce what follows, and what begins with a sentence that an earlier paragraph began with
    are not. Short paragraphs are returned, too, where running text is less than half (lists,
    notes).
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
    found = running if enough else texts
    leads = ["".join(split_sentences(paragraphs[place].text)[:1]) for place in found]
    return [found[index] for index in first_places(leads)]


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

    A sentence is handed out once it is whole and the ``judge`` has kept it. The pieces add up to
    the text: sentences with their citations, blank lines between.
    """

    def __init__(
        self, tokenizer: Any, markers: Sequence[int], units: Sequence[Unit], judge: QuoteJudge
    ) -> None:
        self._tokenizer, self._markers = tokenizer, frozenset(markers)
        self._units, self._judge = units, judge
        self._sentence: list[int] = []  # the open one's token ids
        self._quotes: list[Quote] = []
        self._dropped = self._completed = 0
        self._text = ""

    def feed(self, ids: Sequence[int]) -> str:
        before = len(self._text)
        for token in ids:
            if self._judge.strayed:  # nothing behind is read
                break
            if token in self._markers:
                self._close()
            else:
                self._sentence.append(token)
            self._judge(token)
        return self._text[before:]

    def finish(self) -> tuple[str, Output]:
        before = len(self._text)
        self._close()
        output = Output(self._text, tuple(self._quotes), self._dropped, self._completed)
        return self._text[before:], output

    def _close(self) -> None:
        """End the open sentence: with its citation, or dropped."""
        place, ids = self._judge.close(), self._sentence
        self._sentence = []
        sentence = decode_whole(self._tokenizer, ids)
        if not sentence:
            return
        if place is None:
            self._dropped += 1
            return
        unit = self._units[place]
        rest = _rest(sentence, unit.text) if len(ids) >= LONGEST else ""
        sentence += rest
        self._completed += bool(rest)
        quote = _quote(sentence, unit)
        self._quotes.append(quote)
        gap = "\n\n" if self._text else ""
        self._text += f"{gap}{sentence} [{quote.citation}]"


def _rest(sentence: str, text: str) -> str:
    """Return the rest of a sentence that the model broke off for its length, from its paragraph.

    Return nothing of a very long rest: there it is rather a list without full stops.
    """
    sentence, text = " ".join(sentence.split()), " ".join(text.split())
    start = text.find(sentence)
    if start < 0:
        return ""
    broken = start + len(sentence)
    end = next(end for _, end in sentence_spans(text) if end >= broken)
    return text[broken:end] if end - broken <= _LONGEST_REST else ""


def _quote(sentence: str, unit: Unit) -> Quote:
    return Quote(
        paragraph=unit.paragraph,
        page=unit.page,
        lines=unit.lines,
        column=unit.column,
        heading=unit.heading,
        sentence=sentence,
        verbatim=" ".join(sentence.split()) in " ".join(unit.text.split()),
    )


def _numbered(vocabulary: dict[str, int], pattern: str, first: int) -> list[int]:
    """Return the ids of the tokens ``<p0>``, ``<p1>``, … as far as they go."""
    ids: list[int] = []
    while (token := vocabulary.get(pattern.format(first + len(ids)))) is not None:
        ids.append(token)
    return ids
