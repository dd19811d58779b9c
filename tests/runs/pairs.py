"""A tiny random pair on disk, a profile for it, and decoding that says what we like."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import yaml

from specx.records import Event, Finished, PrefillProgress, Step, Stop, Timings
from specx.runs import summarizer, worker
from specx.runs.worker import Deadline
from tests.tiny import make_checkpoint, make_tokenizer

TOKENIZER = make_tokenizer()
TEXT = "The harbour master wrote a report about the ships. It was long and full of numbers."
_FOLDER = TemporaryDirectory(prefix="specx-pair-")


@cache
def checkpoints() -> tuple[Path, Path]:
    """The folders of a target and of a draft, made once for all tests."""
    target = make_checkpoint(Path(_FOLDER.name) / "target", seed=1)
    draft = make_checkpoint(Path(_FOLDER.name) / "draft", seed=2, num_hidden_layers=1)
    return target, draft


def write_profile(folder: Path, name: str = "tiny", **changes: Any) -> str:
    """The path of a profile with a window of 300 tokens; ``changes`` replace keys, or parts of
    sections: ``write_profile(folder, target={"window": 600})``."""
    target, draft = checkpoints()
    profile: dict[str, Any] = {
        "name": name,
        "prompt": {"kind": "instruct", "instruction": "Summarize."},
        "target": {"model": str(target), "dtype": "float32", "window": 300},
        "draft": {"model": str(draft), "trained_context": 512},
        "tree": {"nodes": 8, "depth": 4, "threshold": 0.3},
        "draft_cache": {"policy": "cross-model", "chunk": 8, "top_k": 8, "every": 2, "window": 64},
        "generation": {"max_new_tokens": 24},
        "fallback": {"below": None},
    }
    for key, value in changes.items():
        section = profile.get(key)
        both = isinstance(section, dict) and isinstance(value, dict)
        profile[key] = {**section, **value} if both else value
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(profile), encoding="utf-8")
    return str(path)


def encode(text: str) -> list[int]:
    ids: list[int] = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return ids


def saying(*texts: str, then: BaseException | None = None) -> Callable[..., Iterator[Event]]:
    """A stand-in for ``decode`` that writes these texts, one a call, the last over and over.

    ``then``: raised in place of the end.
    """
    left = list(texts)

    def decode(*arguments: Any, stop: Stop | None = None, **_: Any) -> Iterator[Event]:
        prompt = arguments[-1]
        yield PrefillProgress("target", len(prompt), len(prompt))
        ids = encode(left.pop(0) if len(left) > 1 else left[0])
        for token in ids:
            reason = stop(token) if stop is not None else None
            yield Step((token,), drafted=2, accepted=0, seconds=0.001)
            if reason:
                yield Finished(reason, Timings(target_prefill=0.001))
                return
        if then is not None:
            raise then
        yield Step((1,), drafted=2, accepted=0, seconds=0.001)  # end of text
        yield Finished("end", Timings(target_prefill=0.001))

    return decode


def take_too_long(monkeypatch: Any) -> None:
    """Let half a sentence of the first document take 40 s by the clock of deadlines."""
    clock, write, calls = SimpleNamespace(now=0.0), saying("Half a sentence."), []

    def decode(*arguments: Any, **options: Any) -> Iterator[Event]:
        calls.append(1)
        for number, event in enumerate(write(*arguments, **options)):
            clock.now += 40 if len(calls) == 1 and number == 3 else 0
            yield event

    monkeypatch.setattr(summarizer, "decode", decode)
    monkeypatch.setattr(worker, "Deadline", partial(Deadline, clock=lambda: clock.now))
