"""The digest of a document in parts: chosen, level by level, from the parts' own digests."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from specx.prompts.digest import Digest
from specx.prompts.prompt import Output, Prompt, Unit, first_words, token_counter

_FEWEST = 8  # paragraphs a prompt holds on average, or they are shortened: few leave no choice


class Selection:
    """The levels of one document: the paragraphs that were chosen are chosen from once more.

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
        chosen = dict(each for pair in pairs for each in _quoted(*pair))
        if not chosen:
            return []
        units = [replace(unit, tokens=self._count(unit.text)) for unit in chosen]
        again = self._kind.of_units(units, self._room)
        if len(again) > 1 and len(units) < _FEWEST * len(again):
            again = self._kind.of_units([self._short(*each) for each in chosen.items()], self._room)
        return again

    def _short(self, unit: Unit, sentence: str) -> Unit:
        """Return a long paragraph from the chosen sentence on, as far as there is room."""
        text = unit.text[max(unit.text.find(sentence), 0) :]
        text = first_words(text, self._room // (2 * _FEWEST), self._tokenizer)
        return replace(unit, text=text, tokens=self._count(text))

    def _count(self, text: str) -> int:
        return token_counter(self._tokenizer)([text])[0]


def _quoted(prompt: Prompt, output: Output) -> Iterator[tuple[Unit, str]]:
    """Yield the paragraph of each sentence of a digest, and the sentence."""
    for quote in output.quotes:
        units = [unit for unit in prompt.units if unit.paragraph == quote.paragraph]
        holding = [unit for unit in units if quote.sentence in unit.text]
        yield (holding or units)[0], quote.sentence
