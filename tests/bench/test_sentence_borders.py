from specx.bench.sentence_borders import sentence_numbers
from tests.tiny import make_tokenizer

TOKENIZER = make_tokenizer(("<p0>", "<p1>"))
LONG = 1000


def pieces(text: str, longest: int = LONG) -> list[str]:
    """The text of each sentence."""
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    numbers = sentence_numbers(TOKENIZER, ids, longest)
    assert len(numbers) == len(ids)
    assert sorted(set(numbers)) == list(range(numbers[-1] + 1))  # ascending, without gaps
    assert numbers == sorted(numbers)
    return [
        TOKENIZER.decode([i for i, number in zip(ids, numbers, strict=True) if number == each])
        for each in range(numbers[-1] + 1)
    ]


def test_a_sentence_begins_with_the_space_in_front_of_it() -> None:
    assert pieces("Dr. Ware rose.  The town\nwaited! It is 3.5 m.") == [
        "Dr. Ware rose.",
        "  The town\nwaited!",
        " It is 3.5 m.",
    ]


def test_added_tokens_begin_sentences() -> None:
    assert pieces("<p0>No end here<p1>One. Two.") == ["<p0>No end here", "<p1>One.", " Two."]
    assert pieces("One. Two<p0><p1>") == ["One.", " Two", "<p0><p1>"]
    assert pieces("<p0><p1>Three.") == ["<p0><p1>Three."]


def test_characters_of_several_tokens() -> None:
    assert pieces("“Wörter – 東京.” Ende 🙂. Ω") == ["“Wörter – 東京.”", " Ende 🙂.", " Ω"]


def test_long_sentences_are_cut() -> None:
    ids = TOKENIZER("no end " * 20, add_special_tokens=False)["input_ids"]
    numbers = sentence_numbers(TOKENIZER, ids, 8)
    assert numbers == [place // 8 for place in range(len(ids))]
