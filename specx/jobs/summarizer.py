"""Summarizing one document after the other with models that stay loaded."""

import resource
import time
from dataclasses import replace

import torch

from specx.documents.document import Document
from specx.engine.decode import context_window, decode
from specx.engine.forward import cache_shape
from specx.engine.methods import Pair
from specx.errors import DocumentError, UsageError
from specx.jobs import warnings
from specx.jobs.calibration import resolve_layer
from specx.jobs.document_run import DocumentRun
from specx.jobs.listener import Listener
from specx.jobs.lossless import check_lossless
from specx.jobs.neighbours import Neighbours
from specx.jobs.pair import facts
from specx.models.memory import check_memory
from specx.profile import DigestPrompt, Profile
from specx.prompts.digest import Digest
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Output, Prompt, PromptKind, refuse_if_longer
from specx.records import Method, Step, Timings
from specx.reports.report import Citation, InputFacts, Report


class Summarizer:
    """Summarizes documents with the models of one profile.

    ``partial``: the text written so far of the current document, for an early stop. It contains
    the summaries of parts until these are summarized once more. ``neighbours``: gives way to other
    processes between steps.
    """

    def __init__(
        self,
        profile: Profile,
        method: Method,
        pair: Pair,
        listener: Listener,
        *,
        check: bool = False,
        neighbours: Neighbours | None = None,
    ) -> None:
        self.method, self.pair = method, pair
        self._listener = listener
        self._check, self._neighbours = check, neighbours
        self._kind = _prompt_kind(profile, pair)
        self._room = _room(profile, pair)
        self.profile = profile.changed(generation={"max_new_tokens": profile.output_limit})
        if method in ("specextend", "specextend+lookup"):
            window = context_window(pair, profile)
            self.profile = resolve_layer(self.profile, pair, self._kind, listener, window)
        self.partial = ""

    def summarize(self, document: Document, before: Timings) -> Report:
        """Summarize one document. ``before``: seconds already spent on it (reading, loading).

        Raises DocumentError when it has no text, or is too long and parts are refused;
        OutOfMemoryError when its caches do not fit.
        """
        _reset_peak_memory(self.pair.target.device)
        run = DocumentRun(timings=replace(before))
        self.partial = ""
        prompts = self._prompts(document, run)
        outputs, summary = self._summarize_parts(prompts, run)
        found = [
            *document.warnings,
            *warnings.unread(document, prompts),
            *warnings.fallback(run.fell_back),
            *warnings.cut(run.reasons, self.profile.output_limit),
            *warnings.not_verbatim(outputs),
        ]
        run.end()
        return Report(
            input=_input_facts(document, run.prompt_tokens, len(prompts)),
            profile=self.profile.name,
            method=self.method,
            summary=summary,
            tally=run.tally,
            timings=run.timings,
            peak_memory_bytes=_peak_memory(self.pair.target.device),
            environment=facts(self.pair),
            settings=self.profile.model_dump(mode="json"),
            citations=_citations(outputs),
            warnings=found,
            lossless=run.lossless,
            speedup=run.speedup,
        )

    def _prompts(self, document: Document, run: DocumentRun) -> list[Prompt]:
        if not document.text.strip():
            raise DocumentError(f"{document.name} has no text; there is nothing to summarize")
        prompts = self._kind.prompts(document, self._room)
        if self.profile.long_documents == "refuse":
            refuse_if_longer(document, prompts, self._room)
        run.timings.tokenize = time.perf_counter() - run.started
        longest = max(len(prompt.token_ids) for prompt in prompts)
        self._check_memory(longest + self.profile.output_limit)
        return prompts

    def _summarize_parts(self, prompts: list[Prompt], run: DocumentRun) -> tuple[list[Output], str]:
        """Return the outputs of all prompts, and the summary they make together."""
        outputs, shown = self._write_all(prompts, run)
        while len(outputs) > 1:
            again = self._kind.reduce(outputs, self._room)
            if not again or len(again) >= len(outputs):
                break  # the parts' summaries follow each other
            outputs, shown = self._write_all(again, run)
        summary = "\n\n".join(output.text for output in outputs if output.text)
        if not shown:
            self._listener.write(summary)
        return outputs, summary

    def _write_all(self, prompts: list[Prompt], run: DocumentRun) -> tuple[list[Output], bool]:
        """Return an output for each prompt, and True if the user saw them while they were written.

        Outputs that will be summarized once more are not shown.
        """
        shown = len(prompts) == 1 or isinstance(self._kind, Digest)
        self.partial = ""
        outputs = []
        for number, prompt in enumerate(prompts, start=1):
            self._listener.part(number, len(prompts))
            outputs.append(self._write(prompt, run, shown=shown))
        return outputs, shown

    def _write(self, prompt: Prompt, run: DocumentRun, *, shown: bool) -> Output:
        reader = self._kind.reader(prompt)
        ends = self.pair.target.eos_token_ids
        ids: list[int] = []
        run.prompt_tokens += len(prompt.token_ids)
        gap = "\n\n" if self.partial else ""
        events = decode(self.pair, self.profile, self.method, prompt.token_ids)
        for event in self._neighbours.between(events) if self._neighbours else events:
            self._listener.on(event)
            run.on(event)
            if isinstance(event, Step):
                ids += event.tokens
                text = reader.feed([i for i in event.tokens if i not in ends])
                gap = self._add(text, gap, shown=shown)
        text, output = reader.finish()
        self._add(text, gap, shown=shown)
        if self._check and (run.lossless is None or run.lossless.identical):
            self._check_lossless(prompt, ids, run)
        return output

    def _check_lossless(self, prompt: Prompt, written: list[int], run: DocumentRun) -> None:
        started = time.perf_counter()
        self._listener.phase("checking against plain decoding")
        run.lossless = check_lossless(self.pair, self.profile, prompt.token_ids, written)
        run.check_s += time.perf_counter() - started

    def _add(self, text: str, gap: str, *, shown: bool) -> str:
        """Append new text behind ``gap``; return the gap that the next text needs."""
        if not text:
            return gap
        self.partial += gap + text
        if shown:
            self._listener.write(gap + text)
        return ""

    def _check_memory(self, tokens: int) -> None:
        """Raise OutOfMemoryError, before any work, for a prompt whose caches cannot fit."""
        models = [self.pair.target, *([self.pair.draft] if self.pair.draft else [])]
        needed = sum(cache_shape(model).bytes_per_token() for model in models) * tokens
        device = self.pair.target.device
        if device.type == "cuda":
            torch.cuda.empty_cache()  # memory that torch keeps of earlier documents is free
        check_memory(needed, device, f"The KV cache of a prompt of {tokens} tokens")


def _prompt_kind(profile: Profile, pair: Pair) -> PromptKind:
    prompt, tokenizer = profile.prompt, pair.target.tokenizer
    if isinstance(prompt, DigestPrompt):
        return Digest(tokenizer, prompt.sentences)
    return Instruct(tokenizer, prompt.instruction)


def _room(profile: Profile, pair: Pair) -> int:
    """Return the most tokens of a prompt. Raises UsageError when the output fills the window."""
    window, limit = context_window(pair, profile), profile.output_limit
    if limit < window:
        return window - limit
    output, advice = f"max_new_tokens is {limit}", "lower it"
    if profile.generation.max_new_tokens is None and isinstance(profile.prompt, DigestPrompt):
        output = f"{profile.prompt.sentences} sentences may take {limit} tokens"
        advice = "ask for fewer sentences"
    raise UsageError(
        f"{output}, which leaves no room for a document in a window of {window} tokens; {advice}"
    )


def _input_facts(document: Document, prompt_tokens: int, parts: int) -> InputFacts:
    return InputFacts(
        name=document.name,
        pages=len(document.pages) if document.kind == "pdf" else 0,
        characters=document.characters,
        prompt_tokens=prompt_tokens,
        parts=parts,
    )


def _citations(outputs: list[Output]) -> list[Citation]:
    return [
        Citation(paragraph=quote.paragraph + 1, page=quote.page, sentence=quote.sentence)
        for output in outputs
        for quote in output.quotes
    ]


def _reset_peak_memory(device: torch.device) -> None:
    """Reset the peak of a GPU for each document. The peak of a process on a CPU only grows."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes.

    On a GPU: of all tensors during this document, the models' included. On a CPU: of the process
    so far, loading and earlier documents included.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
