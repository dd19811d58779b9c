"""Workbenches of tiny random pairs, and runs made by hand."""

from typing import Any

from specx.bench.methods import find_methods
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench
from specx.documents.document import Document, Paragraph
from specx.profile import Profile
from tests.bench.tiny_benches import made_up
from tests.decoding.pairs import loaded, make_profile, pair_of


def short_paragraphs(count: int = 40) -> Document:
    """The tests' tokenizer makes 200 tokens of a paragraph of a generated report."""
    texts = [f"In year {n} a ship came. Nobody saw {3 * n} of them." for n in range(count)]
    return Document("report", "text", (), tuple(Paragraph(text, None) for text in texts))


def tiny_profile(**changes: Any) -> Profile:
    cache = {"chunk": 8, "top_k": 4, "every": 2, "window": 64}
    return make_profile(cache={**cache, **changes.pop("cache", {})}, max_new_tokens=12, **changes)


def tiny_bench(*lengths: int, profile: Profile | None = None) -> Workbench:
    profile = profile or tiny_profile()
    return Workbench(
        pair=pair_of(loaded(peak=5.0), loaded(peak=5.0, noise=0.02)),
        profile=profile,
        documents=(short_paragraphs(),),
        lengths=lengths,
        methods=tuple(find_methods("plain,specextend", profile)),
    )


def made_run(method: str, length: int = 1024, **facts: Any) -> Measurement:
    """A run of 101 tokens in a second, on one document. ``facts``: what is different, by field."""
    given = {"case": "report", "length": length, "prompt_tokens": length, "steps": 50}
    return made_up(method, **{**given, **facts})
