"""The prompt kind ``instruct``: an instruction and the document, for instruction-tuned models."""

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from specx.documents.document import Document
from specx.errors import ModelError, harmless
from specx.prompts.letters import Letters, enclosed
from specx.prompts.prompt import (
    Output,
    Prompt,
    Unit,
    make_units,
    pack,
    token_counter,
    too_little_room,
)
from specx.prompts.reasoning import CHANNEL, Answer, begun_by, marks_of

_UNFINISHED = re.compile(r"\x1b[\]PX^_][^\n]*\Z")  # a terminal's sequence, such as its title
_LEFT_OUT = ("contents", "index")  # parts without sentences
JOINT = 2  # tokens between paragraphs, at most
_PLACE = "\ue000"  # stands for the content in a rendered template; no text has it


class Instruct:
    """Prompts that make the same request about any text.

    ``think``: the tokens that the model may reason for before it answers; None: it is asked not
    to. ``thinks``: an output may begin with reasoning all the same.
    """

    def __init__(self, tokenizer: Any, request: str, think: int | None = None) -> None:
        self.tokenizer, self._request, self._think = tokenizer, request, think
        self._chats = bool(getattr(tokenizer, "chat_template", None))
        before, place, after = self._render(_PLACE).partition(_PLACE) if self._chats else [""] * 3
        if self._chats and not place:
            raise ModelError(
                "the model's chat template leaves out the user's message; choose another model"
            )
        self._before, self._after = before, after
        self._letters = Letters(tokenizer, before + after)
        # Some templates begin the model's reasoning themselves: the output has only its end.
        self._begun = begun_by(self._render("")) if self._chats else None
        self._marks = marks_of(tokenizer)
        self.thinks = bool(think or self._begun or CHANNEL in self._marks.values())

    def asking(self, request: str) -> "Instruct":
        """Return prompts for the same model that make another request."""
        other = copy(self)
        other._request = request
        return other

    def prompts(self, document: Document, room: int) -> list[Prompt]:
        count = token_counter(self.tokenizer)
        space = room - len(self.encode(""))
        while space > JOINT:
            units = make_units(document, count, longest=space - JOINT)
            units = [
                replace(unit, tokens=unit.tokens + JOINT)
                for unit in units
                if document.paragraphs[unit.paragraph].part not in _LEFT_OUT
            ]
            whole = self._prompt(units)
            if len(whole.token_ids) <= room:
                return [whole]
            prompts = [self._prompt(part) for part in pack(units, space, most=len(units))]
            longest = max(len(prompt.token_ids) for prompt in prompts)
            if longest <= room:
                return prompts
            space -= longest - room  # tokens can differ where paragraphs meet
        raise too_little_room(space)

    def reader(self, prompt: Prompt) -> "InstructReader":  # noqa: ARG002
        return InstructReader(self.answer())

    def answer(self) -> Answer:
        """Return what tells the answer in an output from the model's reasoning."""
        return Answer(self.tokenizer, self._marks, self._begun)

    def stop(self, prompt: Prompt) -> None:
        """Return None: the model's own words are ended by nothing but itself."""

    def _prompt(self, part: Sequence[Unit]) -> Prompt:
        return Prompt(tuple(self.encode("\n\n".join(unit.text for unit in part))), tuple(part))

    def encode(self, text: str) -> list[int]:
        """Return the whole prompt, in the tokenizer's chat template where it has one.

        The document stands between tags. A token in it that ends the user's turn is text: only the
        template may give commands.
        """
        content = f"{self._request}\n\n{enclosed(text)}"
        if not self._chats:
            content = f"{content}\n\nSummary:"
        whole = self._encode(self._render(content) if self._chats else content)
        before, after = self._frame()
        same = self._letters.commands(whole) == self._letters.commands([*before, *after])
        if same and not self._letters.holds_mark(content):
            return whole
        return [*before, *self._letters.encode(content), *after]

    def _frame(self) -> tuple[list[int], list[int]]:
        """Return what stands before and behind the content of every prompt."""
        if self._chats:
            return self._encode(self._before), self._encode(self._after)
        return self._encode(""), []

    def _encode(self, text: str) -> list[int]:
        """Return the token ids of a rendered template, or of a prompt without one."""
        how = {"add_special_tokens": False} if self._chats else {"split_special_tokens": True}
        ids: list[int] = self.tokenizer(text, verbose=False, **how)["input_ids"]
        return ids

    def _render(self, content: str) -> str:
        thinks = self._think is not None
        # Templates of reasoning models know some of these; the others ignore them.
        wish: dict[str, Any] = {"enable_thinking": thinks, "thinking": thinks}
        wish["thinking_budget"] = self._think or 0
        if CHANNEL in str(self.tokenizer.chat_template):  # others have other efforts
            wish["reasoning_effort"] = "medium" if thinks else "low"
        try:
            rendered: str = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": content}],
                tokenize=False,
                add_generation_prompt=True,
                **wish,
            )
        except Exception as error:  # of jinja, or of what a template calls
            raise ModelError(
                f"the model's chat template cannot be used ({' '.join(str(error).split())}); "
                "choose a model whose template needs nothing but a user's message"
            ) from error
        return rendered


class InstructReader:
    """Hand the output on as it comes, without the reasoning of a model that thinks first.

    The pieces handed out add up to the text.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer, self._shown = answer, ""

    def feed(self, ids: Sequence[int]) -> str:
        for token in ids:
            self._answer.add(token)
        return self._show(harmless(_UNFINISHED.sub("", self._answer.text)))

    def finish(self) -> tuple[str, Output]:
        shown = self._show(harmless(self._answer.end()))
        return shown, Output(self._shown, reasoning_tokens=self._answer.reasoning_tokens)

    def _show(self, text: str) -> str:
        """Return the new part of ``text``; white space waits for the word behind it."""
        text = text.strip()
        new = text[len(self._shown) :]
        self._shown = text
        return new
