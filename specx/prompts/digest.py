"""The prompt kind ``digest``: paragraphs with markers in, sentences with their markers out.

Prompt: ``<p0> paragraph <p1> paragraph … <sum> <n8>``. Output: for each chosen paragraph its marker
and its lead sentence, in document order (``docs/embedded-pair.md``).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from specx.documents.document import Document
from specx.documents.sentences import sentence_spans
from specx.errors import ModelError
from specx.prompts.prompt import Output, Prompt, Quote, Unit, make_units, pack, too_little_room
from specx.prompts.quotable import quotable
from specx.prompts.quotation import QuoteJudge
from specx.prompts.tokens import decode_whole, encode_text, first_words, token_counter

_LONGEST_REST = 400  # characters of a sentence that the model broke off
_FEWEST_ASKED = 4  # sentences; the embedded pair was never asked for fewer


class Digest:
    """Prompts for a digest of ``sentences`` sentences a part.

    Raises ModelError for a tokenizer without markers, the request or as many sentences.
    """

    final = True  # a sentence is handed on once it is whole and checked

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
        """Return what may be quoted of a document, as prompts of at most ``room`` tokens each.

        Raises UsageError when ``room`` is too small for anything of it.
        """
        room -= 2  # the request
        if room < 2:  # a marker and a token
            raise too_little_room(room)
        read = quotable(document, self._sentences)
        units = make_units(document, token_counter(self.tokenizer), longest=room - 1, pieces=read)
        units = [replace(unit, tokens=unit.tokens + 1) for unit in readable(units)]  # its marker
        parts = pack(units, room, most=len(self._markers))
        return [self._prompt(part, self._sentences) for part in parts]

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
            return [self._prompt(parts[0], self._sentences)]
        share = self._share(parts)
        return [self._prompt(part, min(share, len(part) - len(part) // 4)) for part in parts]

    def reader(self, prompt: Prompt) -> "DigestReader":
        """Return a reader for the output that answers ``prompt``."""
        return DigestReader(self.tokenizer, self._markers, prompt.units, self.stop(prompt))

    def stop(self, prompt: Prompt) -> QuoteJudge:
        """Return what ends an output that is no digest of ``prompt`` any more."""
        ids = np.array(prompt.token_ids[:-2])  # without the request
        begins = np.flatnonzero(np.isin(ids, self._markers)).tolist()
        paragraphs = [ids[begin + 1 : end] for begin, end in pairwise([*begins, len(ids)])]
        return QuoteJudge(self._markers, paragraphs, prompt.sentences)

    def _share(self, parts: Sequence[object]) -> int:
        return max(_FEWEST_ASKED, -(-2 * self._sentences // len(parts)))

    def _prompt(self, part: list[Unit], sentences: int) -> Prompt:
        """Return the prompt that asks for ``sentences``, or for as many as there are units.

        The model is never asked for fewer than it was trained to write; its output ends earlier.
        """
        rows = encode_text(self.tokenizer, [unit.text for unit in part])
        ids = [i for n, row in enumerate(rows) for i in (self._markers[n], *row)]
        asked = min(max(sentences, _FEWEST_ASKED), len(part), len(self._lengths))
        request = (self._request, self._lengths[asked - 1])
        return Prompt((*ids, *request), tuple(part), sentences=min(sentences, asked))


def readable(units: list[Unit]) -> list[Unit]:
    """Return the units without those in letters that the tokenizer has only as bytes.

    Sentences of such letters break off. They stay where they are most of the text.
    """
    known = [unit for unit in units if unit.tokens <= len(unit.text)]
    enough = 2 * sum(len(unit.text) for unit in known) >= sum(len(unit.text) for unit in units)
    return known if enough else units


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
        """Take more token ids, and return the text they add, ready to be shown."""
        before = len(self._text)
        for token in ids:
            if self._judge.ended:  # nothing behind is read
                break
            if token in self._markers:
                self._close()
            else:
                self._sentence.append(token)
            self._judge(token)
        return self._text[before:]

    def finish(self) -> tuple[str, Output]:
        """End the output, and return the text still to be shown, and the whole."""
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
        quote = quoted(sentence, unit)
        self._completed += quote.sentence.split() != sentence.split()
        self._quotes.append(quote)
        gap = "\n\n" if self._text else ""
        self._text += f"{gap}{quote.sentence} [{quote.citation}]"


def quoted(sentence: str, unit: Unit) -> Quote:
    """Return a sentence as a quote from its unit, to the end of the sentence that it begins.

    The model breaks off for the length of a sentence, at an abbreviation, or behind direct speech.
    Nothing is added to what does not stand there word for word, nor a very long rest: there it is
    rather a list without full stops.
    """
    place, text = vars(unit) | {"sentence": sentence}, unit.text
    del place["tokens"]
    found = re.search(r"\s+".join(map(re.escape, sentence.split())), text)
    if found:
        start, broken = found.span()
        end = next(end for _, end in sentence_spans(text) if end >= broken)
        end = end if end - broken <= _LONGEST_REST else broken
        place["sentence"] = " ".join(text[start:end].split())
        place |= {"start": unit.start + start, "end": unit.start + end}
    return Quote(**place)


def _numbered(vocabulary: dict[str, int], pattern: str, first: int) -> list[int]:
    """Return the ids of the tokens ``<p0>``, ``<p1>``, … as far as they go."""
    ids: list[int] = []
    while (token := vocabulary.get(pattern.format(first + len(ids)))) is not None:
        ids.append(token)
    return ids


_FEWEST = 8  # paragraphs a prompt holds on average, or they are shortened: few leave no choice


class Selection:
    """Chooses a digest level by level: from the paragraphs that the digests of parts have quoted.

    They keep their places, so the last digest cites the document. ``prompts``: those of its parts.
    """

    def __init__(self, kind: Digest, prompts: list[Prompt], room: int) -> None:
        """``prompts``: those of the parts, each as if it were all. ``room``: the most tokens."""
        self._kind, self._tokenizer, self._room = kind, kind.tokenizer, room
        self.prompts = kind.candidates(prompts)
        self.shortened = 0  # no output is left out

    def reduce(self, prompts: Sequence[Prompt], outputs: Sequence[Output]) -> list[Prompt]:
        """Return the prompts that choose from the paragraphs quoted; none if nothing is."""
        pairs = zip(prompts, outputs, strict=True)
        chosen = dict(each for pair in pairs for each in _chosen(*pair))
        if not chosen:
            return []
        units = [replace(unit, tokens=self._count(unit.text)) for unit in chosen]
        again = self._kind.of_units(units, self._room)
        if len(again) > 1 and len(units) < _FEWEST * len(again):
            again = self._kind.of_units([self._short(*each) for each in chosen.items()], self._room)
        return again

    def _short(self, unit: Unit, quote: Quote) -> Unit:
        """Return a long paragraph from the chosen sentence on, as far as there is room."""
        text = unit.text[quote.start - unit.start :]
        text = first_words(text, self._room // (2 * _FEWEST), self._tokenizer)
        end = quote.start + len(text)
        return replace(unit, start=quote.start, end=end, tokens=self._count(text))

    def _count(self, text: str) -> int:
        return token_counter(self._tokenizer)([text])[0]


def _chosen(prompt: Prompt, output: Output) -> Iterator[tuple[Unit, Quote]]:
    """Yield each quote of a digest behind its unit."""
    for quote in output.quotes:
        for unit in prompt.units:
            if unit.paragraph == quote.paragraph and unit.start <= quote.start < unit.end:
                yield unit, quote
