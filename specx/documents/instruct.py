"""The prompt kind ``instruct``: an instruction and the document, for instruction-tuned models."""

import re
from collections.abc import Sequence
from typing import Any

from specx.documents.detokenize import Detokenizer
from specx.documents.document import Document, Page, Paragraph
from specx.documents.prompt import Output, Prompt, Unit, make_units, pack, token_counter
from specx.errors import DocumentError

_REASONING = re.compile(r"<think>.*?</think>", re.DOTALL)
_JOINT = 2  # tokens between paragraphs, at most


class Instruct:
    """Prompts that ask for a summary in words; parts are summarized once more."""

    def __init__(self, tokenizer: Any, instruction: str) -> None:
        self._tokenizer, self._instruction = tokenizer, instruction

    def prompts(self, document: Document, room: int) -> list[Prompt]:
        space = room - len(self._ids(""))
        if space < 1:
            raise DocumentError(
                f"the window leaves room for {room} prompt tokens, and the instruction alone has "
                f"{room - space}"
            )
        units = make_units(document, token_counter(self._tokenizer), longest=max(1, space - _JOINT))
        units = [Unit(u.paragraph, u.page, u.text, u.tokens + _JOINT) for u in units]
        while True:
            prompts = [self._prompt(part) for part in pack(units, space, most=len(units))]
            longest = max(len(prompt.token_ids) for prompt in prompts)
            if longest <= room:
                return prompts
            space -= longest - room  # tokens can differ where paragraphs meet

    def reduce(self, outputs: Sequence[Output], room: int) -> list[Prompt]:
        text = tuple(Paragraph(p, None) for o in outputs for p in o.text.split("\n\n") if p.strip())
        joined = "\n\n".join(paragraph.text for paragraph in text)
        return self.prompts(Document("summaries", "text", (Page(1, joined),), text), room)

    def reader(self, prompt: Prompt) -> "InstructReader":  # noqa: ARG002
        return InstructReader(self._tokenizer)

    def _prompt(self, part: Sequence[Unit]) -> Prompt:
        return Prompt(tuple(self._ids("\n\n".join(unit.text for unit in part))), tuple(part))

    def _ids(self, text: str) -> list[int]:
        """The whole prompt, in the tokenizer's chat template where it has one."""
        content = f"{self._instruction}\n\n{text}"
        if not getattr(self._tokenizer, "chat_template", None):
            return list(self._tokenizer(f"{content}\n\nSummary:")["input_ids"])
        chat = [{"role": "user", "content": content}]
        # Templates of reasoning models know enable_thinking; the others ignore it.
        rendered = self._tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return list(self._tokenizer(rendered, add_special_tokens=False)["input_ids"])


class InstructReader:
    """Plain text as it comes, without what a reasoning model thinks before it answers."""

    def __init__(self, tokenizer: Any) -> None:
        self._text = Detokenizer(tokenizer)
        self._shown = ""

    def feed(self, ids: Sequence[int]) -> str:
        self._text.feed(ids)
        return self._show(finished=False)

    def finish(self) -> tuple[str, Output]:
        shown = self._show(finished=True)
        return shown, Output(self._shown.strip())

    def _show(self, *, finished: bool) -> str:
        text = _REASONING.sub("", self._text.text).lstrip()
        if text.startswith("<think>"):
            text = ""
        if not finished:  # a tag or a character may be half written
            text = re.sub(r"(<[a-z/]*|\ufffd)$", "", text)
        if not text.startswith(self._shown):
            text = self._shown
        new = text[len(self._shown) :]
        self._shown = text
        return new
