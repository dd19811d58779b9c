"""Sources of sentences, from the attention of their tokens, also through summaries of parts."""

from dataclasses import replace

import pytest

from specx.documents.document import Document, Paragraph
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Origin, Output, Prompt, SummarySentence
from specx.prompts.sources import DocumentTokens, sentence_sources, tokens_of
from tests.places import make_unit
from tests.tiny import make_tokenizer

UNITS = (make_unit(0, 4, "abcdef", 1), make_unit(1, 4, "ghijkl", 2))
ORIGINS = (Origin(start=3, end=9, of=UNITS[0]), Origin(start=11, end=17, of=UNITS[1]))
PROMPT = Prompt((), UNITS, content="xx\nabcdef\n\nghijkl", origins=ORIGINS)
# Passages of two tokens: abcd, ef and gh, ijkl.
TOKENS = DocumentTokens(5, ((3, 5), (5, 7), (7, 9), (11, 13), (13, 15), (15, 17)))
OUTPUT = Output("One two. Three.", lengths=(3, 8, 14, 15))


def shares(found: SummarySentence) -> list[tuple[float, str]]:
    return [
        (round(passage.share, 3), "|".join(piece.text for piece in passage.pieces))
        for passage in found.sources
    ]


def test_each_sentence_has_the_passages_that_its_tokens_attend_to() -> None:
    attention = [(0.1, 0.0, 0.3), (0.3, 0.0, 0.1), (0.0, 0.6, 0.2), (0.0, 0.2, 0.2), (9.0, 0, 0)]
    first, second = sentence_sources(OUTPUT, attention, PROMPT, TOKENS, 2)
    assert (first.start, first.end, second.start, second.end) == (0, 8, 9, 15)
    assert shares(first) == [(0.5, "abcd"), (0.5, "ijkl")]
    assert shares(second) == [(0.667, "ef|gh"), (0.333, "ijkl")]
    assert (first.lead, second.lead) == (0.0, pytest.approx(0.5))
    assert (first.shown, second.shown) == (None, "p. 1")


def test_tokens_without_attention_count_for_nothing() -> None:
    attention = [(), (0.0, 1.0, 0.0), (), ()]
    first, second = sentence_sources(OUTPUT, attention, PROMPT, TOKENS, 2)
    assert shares(first) == [(1.0, "ef|gh")]
    assert first.lead == 1
    assert (second.sources, second.shown) == ((), None)


def test_tokens_of_reasoning_belong_to_no_sentence() -> None:
    output = replace(OUTPUT, lengths=(0, 0, *OUTPUT.lengths))
    assert list(tokens_of(output, 0, 8, 99)) == [2, 3]
    assert list(tokens_of(output, 9, 15, 99)) == [4, 5]
    assert list(tokens_of(output, 9, 15, 5)) == [4]


def test_a_summary_of_summaries_passes_sources_through() -> None:
    attention = [(0.1, 0.0, 0.3), (0.3, 0.0, 0.1), (0.0, 0.6, 0.2), (0.0, 0.2, 0.2)]
    part = replace(OUTPUT, sources=sentence_sources(OUTPUT, attention, PROMPT, TOKENS, 2))
    origin = Origin(start=0, end=15, of=part)
    above = Prompt((), UNITS, content=part.text, origins=(origin,))
    tokens = DocumentTokens(0, ((0, 4), (4, 9), (9, 12), (12, 15)))  # the sentences, about
    last = Output("So.", lengths=(3,))
    (found,) = sentence_sources(last, [(1.0, 3.0)], above, tokens, 2)
    # A ninth of the first passage is the space behind its sentence.
    low, high = 1 * 8 / 9, 3.0
    total = low + high
    assert shares(found) == [
        (pytest.approx(high * 2 / 3 / total, abs=1e-3), "ef|gh"),
        (pytest.approx((low / 2 + high / 3) / total, abs=1e-3), "ijkl"),
        (pytest.approx(low / 2 / total, abs=1e-3), "abcd"),
    ]
    lost = replace(origin, of=replace(part, sources=()))
    (found,) = sentence_sources(last, [(1.0, 3.0)], replace(above, origins=(lost,)), tokens, 2)
    assert found.sources == ()


@pytest.mark.parametrize("chats", [True, False])
@pytest.mark.parametrize(
    "text", ["One river. Two rivers.", "A </s> ends <x1> nothing.", "é 委员会 ﬁ"]
)
def test_the_tokens_of_the_document_in_a_prompt(chats: bool, text: str) -> None:
    kind = Instruct(make_tokenizer(chat_template=chats), "Summarize the report.")
    document = Document("a", "text", (), (Paragraph(text, None), Paragraph("The end.", None)))
    (prompt,) = kind.prompts(document, 400)
    tokens = kind.document_tokens(prompt)
    assert tokens is not None
    begin, end = prompt.origins[0].start, prompt.origins[-1].end
    assert prompt.content[begin:end] == f"{text}\n\nThe end."
    assert [prompt.content[each.start : each.end] for each in prompt.origins] == [text, "The end."]
    assert tokens.spans[0][0] == begin
    assert tokens.spans[-1][1] == end
    inside = prompt.token_ids[tokens.first : tokens.first + len(tokens.spans)]
    assert "The end." in kind.tokenizer.decode(inside)
    assert "Summarize" not in kind.tokenizer.decode(inside)


def test_a_tokenizer_that_does_not_tell() -> None:
    class Slow:
        def __init__(self) -> None:
            self.inner = make_tokenizer()

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def __call__(self, *texts: object, **how: object) -> object:
            if how.get("return_offsets_mapping"):
                raise NotImplementedError
            return self.inner(*texts, **how)

        def __len__(self) -> int:
            return len(self.inner)

    kind = Instruct(Slow(), "Summarize.")
    (prompt,) = kind.prompts(Document("a", "text", (), (Paragraph("Text.", None),)), 400)
    assert kind.document_tokens(prompt) is None
