"""One document after the other, from text to report, with models that stay loaded."""

import resource
import time
from dataclasses import dataclass, field

import torch

from specx.documents.document import Document
from specx.engine.decode import context_window, decode
from specx.engine.forward import cache_shape
from specx.engine.methods import Pair
from specx.errors import DocumentError, UsageError
from specx.jobs import warnings
from specx.jobs.calibration import resolve_layer
from specx.jobs.listener import Listener
from specx.jobs.lossless import check_lossless
from specx.jobs.pair import facts
from specx.models.memory import check_memory
from specx.profile import DigestPrompt, Profile
from specx.prompts.digest import Digest
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Output, Prompt, PromptKind, refuse_if_longer
from specx.records import FellBack, Finished, FinishReason, Method, Speedup, Step, Tally, Timings
from specx.reports.report import Citation, InputFacts, LosslessCheck, Report


@dataclass
class _Run:
    """What accumulates while one document is summarized."""

    tally: Tally = field(default_factory=Tally)
    timings: Timings = field(default_factory=Timings)
    warnings: list[str] = field(default_factory=list)
    lossless: LosslessCheck | None = None
    prompt_tokens: int = 0
    fell_back: list[FellBack] = field(default_factory=list)
    reasons: list[FinishReason] = field(default_factory=list)
    speedup: Speedup = field(default_factory=Speedup)
    check_s: float = 0.0  # --check-lossless; not part of what the summary cost


class Summarizer:
    """Summarizes documents with the models of one profile.

    ``partial``: what was written of the document at hand, for whoever has to stop early; the
    summaries of parts too, until they are summarized once more.
    """

    def __init__(
        self,
        profile: Profile,
        method: Method,
        pair: Pair,
        listener: Listener,
        *,
        check: bool = False,
    ) -> None:
        self.method, self.pair = method, pair
        self._listener = listener
        self._check = check
        self._kind = _prompt_kind(profile, pair)
        self._room = _room(profile, pair)
        self.profile = _with_limit(profile)
        if method in ("specextend", "specextend+lookup"):
            window = context_window(pair, profile)
            self.profile = resolve_layer(self.profile, pair, self._kind, listener, window)
        self.partial = ""

    def summarize(self, document: Document, before: Timings) -> Report:
        """Summarize one document. ``before``: seconds already spent on it (reading, loading).

        Raises DocumentError when it has no text, or is too long and parts are refused;
        OutOfMemoryError when its caches do not fit.
        """
        started = time.perf_counter()
        _reset_peak_memory(self.pair.target.device)
        run = _Run(warnings=list(document.warnings))
        run.timings.add(before)
        self.partial = ""
        prompts = self._prompts(document, run, started)
        outputs, written = self._summarize_parts(prompts, run)
        citations = [
            Citation(quote.paragraph + 1, quote.page, quote.sentence)
            for output in outputs
            for quote in output.quotes
        ]
        run.warnings += [
            *warnings.unread(document, prompts),
            *warnings.fallback(run.fell_back),
            *warnings.cut(run.reasons, self.profile.output_limit),
            *warnings.not_verbatim(outputs),
        ]
        self._time(run, started, before)
        return Report(
            input=InputFacts(
                document.name,
                len(document.pages) if document.kind == "pdf" else 0,
                document.characters,
                run.prompt_tokens,
                len(prompts),
            ),
            profile=self.profile.name,
            method=self.method,
            summary=written,
            tally=run.tally,
            timings=run.timings,
            peak_memory_bytes=_peak_memory(self.pair.target.device),
            environment=facts(self.pair),
            settings=self.profile.model_dump(mode="json"),
            citations=citations,
            warnings=run.warnings,
            lossless=run.lossless,
            speedup=run.speedup,
        )

    def _prompts(self, document: Document, run: _Run, started: float) -> list[Prompt]:
        if not document.text.strip():
            raise DocumentError(f"{document.name} has no text; there is nothing to summarize")
        prompts = self._kind.prompts(document, self._room)
        if self.profile.long_documents == "refuse":
            refuse_if_longer(document, prompts, self._room)
        run.timings.tokenize = time.perf_counter() - started
        longest = max(len(prompt.token_ids) for prompt in prompts)
        self._check_memory(longest + self.profile.output_limit)
        return prompts

    def _summarize_parts(self, prompts: list[Prompt], run: _Run) -> tuple[list[Output], str]:
        """The outputs of all prompts, and the summary they make together."""
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

    def _write_all(self, prompts: list[Prompt], run: _Run) -> tuple[list[Output], bool]:
        """One output a prompt, and whether the user saw them as they were written.

        What will be summarized once more is not shown.
        """
        shown = len(prompts) == 1 or isinstance(self._kind, Digest)
        self.partial = ""
        outputs = []
        for number, prompt in enumerate(prompts, start=1):
            self._listener.part(number, len(prompts))
            outputs.append(self._write(prompt, run, shown=shown))
        return outputs, shown

    def _write(self, prompt: Prompt, run: _Run, *, shown: bool) -> Output:
        reader = self._kind.reader(prompt)
        ends = self.pair.target.eos_token_ids
        ids: list[int] = []
        run.prompt_tokens += len(prompt.token_ids)
        gap = "\n\n" if self.partial else ""
        for event in decode(self.pair, self.profile, self.method, prompt.token_ids):
            self._listener.on(event)
            match event:
                case Step():
                    run.tally.add(event)
                    ids += event.tokens
                    text = reader.feed([i for i in event.tokens if i not in ends])
                    gap = self._add(text, gap, shown=shown)
                case FellBack():
                    run.fell_back.append(event)
                case Finished():
                    run.timings.add(event.timings)
                    run.reasons.append(event.reason)
                    run.speedup.add(event.speedup)
        text, output = reader.finish()
        self._add(text, gap, shown=shown)
        if self._check and (run.lossless is None or run.lossless.identical):
            started = time.perf_counter()
            self._listener.phase("checking against plain decoding")
            run.lossless = check_lossless(self.pair, self.profile, prompt.token_ids, ids)
            run.check_s += time.perf_counter() - started
        return output

    def _add(self, text: str, gap: str, *, shown: bool) -> str:
        """Take new text; returns the gap that is still to be put in front of the next."""
        if not text:
            return gap
        self.partial += gap + text
        if shown:
            self._listener.write(gap + text)
        return ""

    def _check_memory(self, tokens: int) -> None:
        """Refuse, before any work, a prompt whose caches cannot fit."""
        models = [self.pair.target, *([self.pair.draft] if self.pair.draft else [])]
        needed = sum(cache_shape(model).bytes_per_token() for model in models) * tokens
        device = self.pair.target.device
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what torch keeps of earlier documents is free
        check_memory(needed, device, f"The KV cache of a prompt of {tokens} tokens")

    def _time(self, run: _Run, started: float, before: Timings) -> None:
        """``total`` is wall clock, without checking; ``host`` is what no other part claims."""
        timings = run.timings
        spent = time.perf_counter() - started - run.check_s
        timings.total = spent + before.read + before.load
        parts = sum(v for name, v in vars(timings).items() if name not in ("host", "total"))
        timings.host = max(0.0, timings.total - parts)


def _prompt_kind(profile: Profile, pair: Pair) -> PromptKind:
    prompt, tokenizer = profile.prompt, pair.target.tokenizer
    if isinstance(prompt, DigestPrompt):
        return Digest(tokenizer, prompt.sentences)
    return Instruct(tokenizer, prompt.instruction)


def _room(profile: Profile, pair: Pair) -> int:
    """Tokens that a prompt may have. Raises UsageError when the output takes the whole window."""
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


def _with_limit(profile: Profile) -> Profile:
    """The profile with the number of tokens that its output may have."""
    limit = {"max_new_tokens": profile.output_limit}
    return profile.model_copy(update={"generation": profile.generation.model_copy(update=limit)})


def _reset_peak_memory(device: torch.device) -> None:
    """Let a GPU count every document's peak anew; that of a process on a CPU only grows."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak_memory(device: torch.device) -> int:
    """Bytes. On a GPU: the most that tensors, the models' among them, took during this document.
    On a CPU: the peak of the process so far, with loading and all documents before this one.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
