"""Documents that are shorter than a summary of them would be: printed as they are.

Everything here does without a model, and without torch.
"""

import resource
from dataclasses import replace

from specx.documents.document import Document
from specx.documents.sentences import split_sentences
from specx.profile import DigestPrompt, InstructPrompt, Profile
from specx.prompts.quotable import SHORTEST_PIECE
from specx.records import Method, Tally, Timings
from specx.reports.environment import environment
from specx.reports.progress import counted
from specx.reports.report import Report
from specx.runs.document_run import input_facts, removed

CHARACTERS_PER_TOKEN = 4  # of English, about
USUAL_WORDS = 300  # of a summary whose length nobody asked for


def as_it_is(
    profile: Profile, method: Method, document: Document, before: Timings
) -> Report | None:
    """Return the report of a document that needs no summary, None for any other.

    ``before``: seconds already spent on it. The summary is the document's own text.
    """
    summary = _summary(document, profile)
    if summary is None:
        return None
    limits = {"max_new_tokens": profile.output_limit}
    return Report(
        input=input_facts(document, prompt_tokens=0, parts=0),
        profile=profile.name,
        method=method,
        summary=document.text,
        tally=Tally(),
        timings=replace(before, total=before.read),
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        environment=environment(),
        settings=profile.changed(generation=limits).model_dump(mode="json"),
        removed=removed(document),
        warnings=list(document.warnings),
        notes=[f"the document is no longer than {summary}, so it is printed as it is"],
    )


def _summary(document: Document, profile: Profile) -> str | None:
    """Return in words the summary that would be no shorter than the document, None if none is."""
    characters = document.characters
    if not document.text.strip() or characters > CHARACTERS_PER_TOKEN * profile.output_limit:
        return None
    if isinstance(profile.prompt, DigestPrompt):
        asked = profile.prompt.sentences
        sentences = sum(len(split_sentences(p.text)) for p in document.paragraphs)
        short = sentences <= asked or characters <= asked * SHORTEST_PIECE
        return f"a digest of {counted(asked, 'sentence')}" if short else None
    prompt = profile.prompt
    usual = InstructPrompt(words=prompt.words, styles=prompt.styles, on_loop=prompt.on_loop)
    if prompt != usual:
        return None  # anything else that is asked for is done
    words = prompt.words or USUAL_WORDS
    return f"a summary of {words} words" if len(document.text.split()) <= words else None
