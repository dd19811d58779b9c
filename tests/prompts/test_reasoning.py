"""Reasoning of every family is told from the answer, by text and by token ids."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Prompt
from specx.prompts.reasoning import CLOSING, FAMILIES, Answer, Thinking, begun_by, marks_of
from specx.records import FinishReason
from tests.tiny import CHAT_TEMPLATE, make_tokenizer

HARMONY = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")
THOUGHT = "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant"
OUTPUTS = {  # as the models of a family write them; the answer is "One. Two."
    "Qwen3": ("<think>\nLet me see.\n</think>\n\nOne. Two.", ("<think>", "</think>")),
    "Seed-OSS": (
        "<seed:think>Let<seed:cot_budget_reflect>me</seed:cot_budget_reflect> see.</seed:think>"
        "One. Two.",
        ("<seed:think>", "</seed:think>", "<seed:cot_budget_reflect>"),
    ),
    "gpt-oss": (f"{THOUGHT}<|channel|>final<|message|>One. Two.", HARMONY),
    "gpt-oss with a format": (
        f"{THOUGHT}<|channel|>final <|constrain|>text<|message|>One. Two.",
        HARMONY,
    ),
    "gpt-oss with a preamble": (
        f"{THOUGHT}<|channel|>commentary<|message|>I will.<|end|><|start|>assistant"
        "<|channel|>final<|message|>One. Two.",
        HARMONY,
    ),
    "gpt-oss without reasoning": ("<|channel|>final<|message|>One. Two.", HARMONY),
    "Gemma 4": ("<|channel>thought\nLet me see.<channel|>One. Two.", ("<|channel>", "<channel|>")),
    "Magistral": ("[THINK]Let me see.[/THINK]One. Two.", ("[THINK]", "[/THINK]")),
    "Command A": (
        "<|START_THINKING|>Let me see.<|END_THINKING|><|START_RESPONSE|>One. Two.",
        ("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>"),
    ),
    "Apertus": (
        "<|inner_prefix|>Let me see.<|inner_suffix|>One. Two.",
        ("<|inner_prefix|>", "<|inner_suffix|>"),
    ),
    "EXAONE Deep": ("<thought>\nLet me see.\n</thought>\n\nOne. Two.", ()),
    "Kimi": ("◁think▷Let me see.◁/think▷One. Two.", ()),
}


def tokenizer_with(tags: tuple[str, ...], *, special: bool, template: str = CHAT_TEMPLATE) -> Any:
    """A tokenizer whose tags are tokens, special or not."""
    tokenizer = make_tokenizer(chat_template=True)
    tokenizer.add_tokens([AddedToken(tag, special=special, normalized=False) for tag in tags])
    tokenizer.chat_template = template
    return tokenizer


def encode(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("tokens", ["special", "added", "letters"])
@pytest.mark.parametrize("family", OUTPUTS)
def test_tags_stay_out_of_summaries(family: str, tokens: str, size: int) -> None:
    output, tags = OUTPUTS[family]
    if tokens != "special" and (family.startswith("gpt-oss") or "RESPONSE" in output):
        pytest.skip("tokens of these families are always special")
    used = () if tokens == "letters" else tags
    tokenizer = tokenizer_with(used, special=tokens == "special")
    ids = encode(tokenizer, output)
    reader = Instruct(tokenizer, "Summarize.").reader(Prompt(()))
    pieces = [reader.feed(ids[i : i + size]) for i in range(0, len(ids), size)]
    rest, written = reader.finish()
    assert "".join(pieces) + rest == written.text == "One. Two."
    if size == 1:
        assert all("One. Two.".startswith("".join(pieces[:end])) for end in range(len(pieces)))
    answer = len(encode(tokenizer, "One. Two."))
    spelled = 0 if used else 16  # a tag of several tokens is one when its last has come
    assert answer <= len(ids) - written.reasoning_tokens <= answer + 3 + spelled  # and white space


@pytest.mark.parametrize("tags", FAMILIES, ids=lambda tags: tags.begin)
def test_reasoning_that_never_ends_is_no_summary(tags: Any) -> None:
    tokenizer = tokenizer_with((tags.begin,), special=True)
    reader = Instruct(tokenizer, "Summarize.").reader(Prompt(()))
    assert reader.feed(encode(tokenizer, f"{tags.begin}analysis, and on")) == ""
    assert reader.finish()[1].text == ""


@given(st.text(alphabet="<think>/|[]a ", max_size=40), st.integers(1, 5))
def test_letters_like_tags_are_text(text: str, size: int) -> None:
    if "<think>" in text or "<thought>" in text:
        return
    tokenizer = make_tokenizer(chat_template=True)
    ids = encode(tokenizer, text)
    reader = Instruct(tokenizer, "Summarize.").reader(Prompt(()))
    pieces = [reader.feed(ids[i : i + size]) for i in range(0, len(ids), size)]
    assert "".join(pieces) + reader.finish()[0] == text.strip()


@pytest.mark.parametrize("begun", ["<think>\n", "<seed:think>", "<|START_THINKING|>", "[THINK]"])
def test_reasoning_that_a_template_begins(begun: str) -> None:
    tags = begun_by(f"user\nassistant\n{begun}")
    assert tags is not None
    assert tags.begin == begun.strip()
    assert begun_by(f"assistant\n{begun}\n{tags.closing}") is None  # it has ended it, too


# ---------------------------------------------------------------- templates


TEMPLATES = {
    "Qwen3": (
        "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
        "{% endif %}",
        "",
        "<think>\n\n</think>\n\n",
    ),
    "DeepSeek V3.1": (
        "{% if thinking %}<think>{% else %}</think>{% endif %}",
        "<think>",
        "</think>",
    ),
    "Seed-OSS": (
        "{% if thinking_budget == 0 %}<seed:think></seed:think>{% else %}budget {{ thinking_budget "
        "}}{% endif %}",
        "budget 99",
        "<seed:think></seed:think>",
    ),
    "gpt-oss": (
        "{% if reasoning_effort is not defined %}none{% endif %}{{ reasoning_effort }}"
        "{# <|channel|> #}",
        "medium",
        "low",
    ),
    "R1": ("<think>", "<think>", "<think>"),
    "with efforts of its own": ("{{ reasoning_effort is defined }}", "False", "False"),
}


@pytest.mark.parametrize("family", TEMPLATES)
def test_what_a_template_is_told(family: str) -> None:
    end, with_reasoning, without = TEMPLATES[family]
    tokenizer = tokenizer_with((), special=False, template=CHAT_TEMPLATE + end)
    for think, expected in ((99, with_reasoning), (None, without)):
        kind = Instruct(tokenizer, "Summarize.", think=think)
        assert tokenizer.decode(kind.encode("x")).endswith(f"assistant\n{expected}")
        assert kind.thinks is (think is not None or family == "R1")


def test_a_model_with_channels_always_reasons() -> None:
    assert Instruct(tokenizer_with(HARMONY, special=True), "Summarize.").thinks


# ---------------------------------------------------------------- the budget


def thinking(tokenizer: Any, budget: int, limit: int, stop: Any = None) -> Thinking:
    answer = Answer(tokenizer, marks_of(tokenizer), None)

    def reads(token: int) -> FinishReason | None:
        answer.add(token)
        return stop(token) if stop else None

    return Thinking(tokenizer, answer, budget=budget, limit=limit, stop=reads)


@pytest.mark.parametrize("family", ["Qwen3", "Seed-OSS", "gpt-oss", "Magistral", "Command A"])
def test_past_its_budget_reasoning_is_ended(family: str) -> None:
    output, tags = OUTPUTS[family]
    tokenizer = tokenizer_with(tags, special=True)
    stop = thinking(tokenizer, budget=4, limit=6)
    reasons = [stop(token) for token in encode(tokenizer, output)[:4]]
    assert reasons == [None, None, None, "length"]
    assert stop.is_over
    closing = stop.close()
    assert len(closing) <= CLOSING
    assert (stop.is_over, stop.was_closed) == (False, True)
    answer = encode(tokenizer, "One. Two. Three. Four.")
    assert [stop(token) for token in answer[:6]] == [None] * 5 + ["length"]
    assert not stop.is_over


def test_reasoning_within_its_budget_costs_nothing_of_the_answer() -> None:
    tokenizer = tokenizer_with(("<think>", "</think>"), special=False)
    stop = thinking(tokenizer, budget=50, limit=4)
    thought = encode(tokenizer, "<think>Let me see.</think>")
    answer = encode(tokenizer, "One. Two. Three.")
    assert [stop(token) for token in [*thought, *answer[:4]]][-2:] == [None, "length"]


def test_the_judge_of_an_answer_ends_no_reasoning() -> None:
    tokenizer = tokenizer_with(("<think>", "</think>"), special=False)
    asked: list[int] = []

    def ends(token: int) -> FinishReason | None:
        asked.append(token)
        return "strayed"

    stop = thinking(tokenizer, budget=50, limit=99, stop=ends)
    thought = encode(tokenizer, "<think>Let me see.</think>")
    assert [stop(token) for token in thought] == [None] * len(thought)
    assert stop(encode(tokenizer, "One.")[0]) == "strayed"
    assert asked[:-1] == thought


def test_a_model_that_goes_on_reasoning_is_cut() -> None:
    tokenizer = tokenizer_with(("<think>", "</think>"), special=False)
    stop = thinking(tokenizer, budget=3, limit=99)
    ids = encode(tokenizer, "<think>Let me see.")
    assert [stop(token) for token in ids[:3]][-1] == "length"
    stop.close()
    assert stop(ids[0]) == "length"
    assert not stop.is_over
