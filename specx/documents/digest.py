"""The prompt kind ``digest``: paragraphs with markers in, sentences with their markers out.

Prompt: ``<p0> paragraph <p1> paragraph … <sum> <n8>``. Output: for each chosen paragraph its marker
and its lead sentence, in document order (``docs/embedded-pair.md``).
"""

from collections.abc import Sequence
from typing import Any

from specx.documents.detokenize import Detokenizer
from specx.documents.document import Document
from specx.documents.prompt import (
    Output,
    Prompt,
    Quote,
    Unit,
    make_units,
    pack,
    token_counter,
)
from specx.errors import ModelError


class Digest:
    """Prompts for a digest of ``sentences`` sentences a part."""

    def __init__(self, tokenizer: Any, sentences: int) -> None:
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab()
        self._markers = _numbered(vocabulary, "<p{}>", first=0)
        self._request = [vocabulary.get("<sum>"), vocabulary.get(f"<n{sentences}>")]
        if not self._markers or None in self._request:
            raise ModelError(
                "the prompt kind digest needs a model with paragraph markers such as the embedded "
                "one; use kind: instruct for this model"
            )

    def prompts(self, document: Document, room: int) -> list[Prompt]:
        room -= len(self._request)
        units = make_units(document, token_counter(self._tokenizer), longest=room - 1)
        units = [Unit(u.paragraph, u.page, u.text, u.tokens + 1) for u in units]  # its marker
        parts = pack(units, room, most=len(self._markers))
        return [self._prompt(part) for part in parts]

    def reduce(self, outputs: Sequence[Output], room: int) -> list[Prompt]:  # noqa: ARG002
        return []

    def reader(self, prompt: Prompt) -> "DigestReader":
        return DigestReader(self._tokenizer, self._markers, prompt.units)

    def _prompt(self, part: list[Unit]) -> Prompt:
        rows = self._tokenizer([unit.text for unit in part], add_special_tokens=False)["input_ids"]
        ids = [i for n, row in enumerate(rows) for i in (self._markers[n], *row)]
        return Prompt((*ids, *self._request), tuple(part))


class DigestReader:
    """Cuts the output at its markers and cites the paragraph of each sentence."""

    def __init__(self, tokenizer: Any, markers: Sequence[int], units: Sequence[Unit]) -> None:
        self._tokenizer, self._units = tokenizer, units
        self._marked = {token: index for index, token in enumerate(markers)}
        self._unit: Unit | None = None
        self._sentence = Detokenizer(tokenizer)
        self._quotes: list[Quote] = []
        self._text = ""

    def feed(self, ids: Sequence[int]) -> str:
        shown = ""
        for token in ids:
            if token in self._marked:
                shown += self._close()
                index = self._marked[token]
                self._unit = self._units[index] if index < len(self._units) else None
            else:
                shown += self._sentence.feed([token])
        self._text += shown
        return shown

    def finish(self) -> tuple[str, Output]:
        shown = self._close().rstrip()
        self._text += shown
        return shown, Output(self._text.strip(), tuple(self._quotes))

    def _close(self) -> str:
        """End the open sentence: its citation, and a blank line."""
        rest = self._sentence.finish()
        sentence = self._sentence.text.strip()
        self._sentence = Detokenizer(self._tokenizer)
        unit, self._unit = self._unit, None
        if not sentence:
            return rest
        if unit is None:  # a marker that stands for no paragraph: the text stays, uncited
            return f"{rest}\n\n"
        verbatim = " ".join(sentence.split()) in " ".join(unit.text.split())
        self._quotes.append(Quote(unit.paragraph, unit.page, sentence, verbatim))
        page = "" if unit.page is None else f", p. {unit.page}"
        return f"{rest} [¶{unit.paragraph + 1}{page}]\n\n"


def _numbered(vocabulary: dict[str, int], pattern: str, first: int) -> list[int]:
    """Ids of the tokens ``<p0>``, ``<p1>``, … as far as they go."""
    ids: list[int] = []
    while (token := vocabulary.get(pattern.format(first + len(ids)))) is not None:
        ids.append(token)
    return ids
