"""Writing the summary of a document that takes several prompts."""

from typing import Protocol

from specx.jobs.listener import Listener
from specx.prompts.digest import Digest
from specx.prompts.prompt import Output, Prompt, PromptKind


class Write(Protocol):
    """Write the output of one prompt.

    ``shown``: the user sees it while it is written. ``anew``: what was written before it is
    forgotten.
    """

    def __call__(self, prompt: Prompt, *, shown: bool, anew: bool) -> Output: ...


class PartWriter:
    """Writes all prompts of a document, with ``write`` for each."""

    def __init__(self, kind: PromptKind, room: int, listener: Listener, write: Write) -> None:
        self._kind, self._room, self._listener, self._write = kind, room, listener, write

    def summarize(self, prompts: list[Prompt]) -> tuple[list[Output], str]:
        """Return the outputs of all prompts, and the summary they make together."""
        outputs, shown = self._write_all(prompts)
        while len(outputs) > 1:
            again = self._kind.reduce(outputs, self._room)
            if not again or len(again) >= len(outputs):
                break  # the parts' summaries follow each other
            outputs, shown = self._write_all(again)
        summary = "\n\n".join(output.text for output in outputs if output.text)
        if not shown:
            self._listener.write(summary)
        return outputs, summary

    def _write_all(self, prompts: list[Prompt]) -> tuple[list[Output], bool]:
        """Return an output for each prompt, and True if the user saw them while they were written.

        Outputs that will be summarized once more are not shown.
        """
        shown = len(prompts) == 1 or isinstance(self._kind, Digest)
        outputs = []
        for number, prompt in enumerate(prompts, start=1):
            self._listener.part(number, len(prompts))
            outputs.append(self._write(prompt, shown=shown, anew=number == 1))
        return outputs, shown
