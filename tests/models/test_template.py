"""Chat templates are rendered as transformers renders them; hostile ones say why they are not."""

from pathlib import Path
from typing import Any

import pytest

from specx.errors import ModelError
from specx.models.tokenizer import Tokenizer
from specx.models.tokenizer_files import read_template
from specx.prompts.instruct import Instruct
from tests.models.chat_templates import TEMPLATES
from tests.tiny import make_tokenizer

THEIRS = make_tokenizer()
SYSTEM = {"role": "system", "content": "  Be brief. "}
USER = {
    "role": "user",
    "content": " Sum <up> \"this\" 'é' 東京 🙂\n\n{{ 1 }} & that.\n",
    "name": None,
}
ANSWER = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\n\nYes. "}
CHATS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "talk": [USER, ANSWER, USER],
    "talk with system": [SYSTEM, USER, ANSWER, USER],
    "answered": [USER, ANSWER],
    "out of turn": [USER, USER],
}
WISHES: tuple[dict[str, Any], ...] = (
    {"add_generation_prompt": True},
    {},
    {"add_generation_prompt": True, "enable_thinking": False, "thinking": True},
    {"add_generation_prompt": True, "thinking_budget": 0, "reasoning_effort": "low"},
    {"add_generation_prompt": True, "thinking_budget": 600, "eos_token": "<mine>"},
)


def ours(template: Any) -> Tokenizer:
    return Tokenizer(
        backend=THEIRS.backend_tokenizer,
        named=THEIRS.special_tokens_map,
        chat_template=template,
    )


def outcome(tokenizer: Any, chat: list[dict[str, Any]], wish: dict[str, Any]) -> str:
    try:
        return str(tokenizer.apply_chat_template(chat, tokenize=False, **wish))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("family", TEMPLATES)
def test_templates_are_rendered_as_transformers_does(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(THEIRS, "chat_template", TEMPLATES[family])
    tokenizer = ours(TEMPLATES[family])
    written = set()
    for chat in CHATS.values():
        for wish in WISHES:
            text = outcome(tokenizer, chat, wish)
            assert text == outcome(THEIRS, chat, wish)
            written.add(text)
    assert sum("Error:" in text for text in written) <= 2 < len(written)


def test_of_several_templates_the_default_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"tool_use": "{{ 1 }}", "default": TEMPLATES["Llama 3"]}
    monkeypatch.setattr(THEIRS, "chat_template", named)
    assert outcome(ours(named), [USER], {}) == outcome(THEIRS, [USER], {})
    assert outcome(ours({"tool_use": "{{ 1 }}"}), [USER], {}).startswith("ValueError")


def test_where_a_folder_keeps_its_templates(tmp_path: Path) -> None:
    listed = [{"name": "default", "template": "a"}, {"name": "rag", "template": "b"}]
    assert read_template(tmp_path, {}) is None
    assert read_template(tmp_path, {"chat_template": "a"}) == "a"
    assert read_template(tmp_path, {"chat_template": listed}) == {"default": "a", "rag": "b"}
    (tmp_path / "chat_template.jinja").write_bytes("é\r\nx".encode())
    assert read_template(tmp_path, {"chat_template": "a"}) == "é\nx"
    (more := tmp_path / "additional_chat_templates").mkdir()
    (more / "rag.jinja").write_text("c")
    assert read_template(tmp_path, {}) == {"default": "é\nx", "rag": "c"}


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages",
        "{% for m in messages %}{{ m.content }}",
        "{% nonsense %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ (messages | attr('append'))(1) }}",
        "{{ messages.append(1) }}",
        "{{ namespace(__class__=1) }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ raise_exception.__globals__.os }}",
        "{% for i in range(10**12) %}x{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 1 // 0 }}",
        "{{ messages[0].content + 1 }}",
        "{{ nothing.at.all }}",
        "{% include 'chat_template.jinja' %}",
        "{{ raise_exception('Give a system message.') }}",
        "{{ 'a' * 10**15 }}",
        {"tool_use": "{{ messages }}"},
        {"default": 7},
        7,
    ],
    ids=str,
)
def test_a_template_that_cannot_be_used_is_one_sentence(template: Any) -> None:
    with pytest.raises(ModelError) as caught:
        Instruct(ours(template), "Summarize.")
    sentence = str(caught.value)
    assert sentence.startswith("the model's chat template cannot be used (")
    assert "()" not in sentence
    assert "\n" not in sentence
