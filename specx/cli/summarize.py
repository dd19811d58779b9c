"""``specx summarize``: documents in, summaries out."""

import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from specx.cli.console import is_file, make_console
from specx.documents.read import ReadOptions
from specx.errors import ProfileError, SpecxError, UsageError
from specx.jobs.inputs import find_sources, read_inputs
from specx.jobs.queue import Queue
from specx.jobs.results import Destination, Results
from specx.jobs.short import as_it_is
from specx.profile import (
    EMBEDDED,
    FEWEST_SENTENCES,
    MOST_SENTENCES,
    AutoTree,
    DigestPrompt,
    Profile,
    load_profile,
)
from specx.records import Method
from specx.reports.live import LiveLine
from specx.reports.remarks import remarks
from specx.reports.report import Report

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from specx.jobs.summarizer import Summarizer

_MINI_NOTICE = (
    "mini copies a document's own sentences (an extractive digest); for a summary in new words "
    "choose a profile with a larger model: specx profiles ls"
)


def summarize(
    context: typer.Context,
    sources: Annotated[
        list[str], typer.Argument(help="Files or folders (.pdf .txt .md .jsonl); - is stdin.")
    ],
    profile: Annotated[
        str, typer.Option("--profile", "-p", help="Name of a profile, or a YAML file.")
    ] = "mini",
    method: Annotated[
        Method | None,
        typer.Option(
            help="How to decode; the output is the same. Without it: specextend, for digests "
            "specextend+lookup, and plain where the profile has no draft."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .md or .txt file, or a folder for many documents."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the report there (.json, .md or .html).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one object.")] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one report a line as documents end.")
    ] = False,
    pages: Annotated[str | None, typer.Option(help="Pages of a PDF, such as 1-10,15.")] = None,
    password: Annotated[
        str | None, typer.Option(help="Password of a PDF; or set SPECX_PDF_PASSWORD.")
    ] = None,
    sentences: Annotated[
        int | None,
        typer.Option(
            help="Most sentences of a digest, or of each part: "
            f"{FEWEST_SENTENCES} to {MOST_SENTENCES}."
        ),
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of a summary, or of each part.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="0: the most probable token; more: sampling.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0, max=1, help="Sample from this share of probability.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Sample from so many tokens.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the sampling.")] = None,
    fallback: Annotated[
        bool,
        typer.Option("--fallback/--no-fallback", help="Decode plainly when drafting does not pay."),
    ] = True,
    check_lossless: Annotated[
        bool,
        typer.Option("--check-lossless", help="Decode plainly too and compare; exit 6 if unlike."),
    ] = False,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="Where the models run.")
    ] = "auto",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")
    ] = False,
) -> None:
    """Summarize documents: the summary goes to stdout, progress to stderr."""
    settings = _override(
        load_profile(profile),
        {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "seed": seed,
        },
        sentences=sentences,
        fallback=fallback,
    )
    chosen = method or _usual_method(settings)
    if json and jsonl:
        raise UsageError("--json and --jsonl exclude each other")

    format_: Literal["text", "json", "jsonl"] = "json" if json else "jsonl" if jsonl else "text"
    streamed = sys.stdout.isatty() and out is None and format_ == "text"
    _run(
        SummarizeRequest(
            sources=sources,
            reading=ReadOptions(password=password, pages=pages),
            destination=Destination(
                sys.stdout, out=out, report=report, format=format_, streamed=streamed
            ),
            profile=settings,
            method=chosen,
            device=device,
            check=check_lossless,
            quiet=quiet,
            debug=context.obj.debug,
        )
    )


def _usual_method(profile: Profile) -> Method:
    """Return the fastest method (``docs/results.md``): a digest copies, so lookup helps."""
    if profile.draft is None:
        return "plain"
    copies = isinstance(profile.prompt, DigestPrompt)
    chosen = isinstance(profile.tree, AutoTree)  # which only the model's own trees can be
    return "specextend+lookup" if copies and not chosen else "specextend"


@dataclass(frozen=True, kw_only=True)
class SummarizeRequest:
    """Everything that the options ask for."""

    sources: list[str]
    reading: ReadOptions
    destination: Destination
    profile: Profile
    method: Method
    device: str
    check: bool
    quiet: bool
    debug: bool


def _run(request: SummarizeRequest) -> None:
    """Connect the rooms: documents are read, summarized, written; progress goes to stderr."""
    destination, console = request.destination, make_console(quiet=request.quiet)
    errors = make_console() if request.quiet else console  # the live line makes room for these
    found = find_sources(request.sources)
    destination.check(len(found), request.sources)

    def on_error(error: SpecxError) -> None:
        errors.print(f"specx: {error}", soft_wrap=True)

    def on_done(report: Report) -> None:
        for remark in remarks(report, debug=request.debug):
            console.print(f"specx: {report.input.name}: {remark}", soft_wrap=True)

    results = Results(destination, headings=False)
    with LiveLine(
        console,
        stream_to=sys.stdout if destination.streamed else None,
        pass_on=results.write if destination.piped else None,
        steps_aside=not is_file(sys.stdout),
    ) as live:
        live.start(request.sources[0])
        live.phase("reading")
        inputs, documents = read_inputs(found, request.reading)
        destination.check(documents)
        results.headings = documents > 1
        prepare = partial(_prepare, request, console, live)
        as_they_are = partial(as_it_is, request.profile, request.method)
        queue = Queue(prepare, results, live, on_done, on_error, as_they_are)
        try:
            queue.run(inputs, alone=documents == 1)
        finally:
            results.finish()


def _prepare(request: SummarizeRequest, console: Console, live: LiveLine) -> "Summarizer":
    """Load the models. torch, which takes seconds to import, comes with them."""
    from specx.jobs.pair import choose_device, load_pair
    from specx.jobs.summarizer import Summarizer

    if request.profile.target.model.startswith(EMBEDDED):
        console.print(f"specx: {_MINI_NOTICE}", soft_wrap=True)
    device = choose_device(request.device)
    profile = request.profile.on("cuda" if device.type == "cuda" else "cpu")
    pair = load_pair(profile, request.method, device)
    return Summarizer(profile, request.method, pair, live, check=request.check)


def _override(
    profile: Profile, generation: dict[str, object], *, sentences: int | None, fallback: bool
) -> Profile:
    """Return the profile with the settings of the command line. Raises UsageError for bad ones."""
    changes: dict[str, object] = {
        "generation": {name: value for name, value in generation.items() if value is not None}
    }
    if sentences is not None:
        _check_sentences(profile, sentences)
        changes["prompt"] = {"sentences": sentences}
    if not fallback:
        changes["fallback"] = {"below": None}
    try:
        return profile.changed(**changes)
    except ProfileError as error:
        raise UsageError(_in_options("; ".join(str(error).splitlines()))) from error


def _check_sentences(profile: Profile, sentences: int) -> None:
    """Raise UsageError for a number that no digest has, and for a prompt that asks for none."""
    if not FEWEST_SENTENCES <= sentences <= MOST_SENTENCES:
        raise UsageError(
            f"--sentences is {sentences}; it must be from {FEWEST_SENTENCES} to {MOST_SENTENCES}"
        )
    if not isinstance(profile.prompt, DigestPrompt):
        raise UsageError(
            f"--sentences is for digests, and the prompt of the profile {profile.name} is of the "
            "kind instruct; say in prompt.instruction how long the summary is to be"
        )


def _in_options(sentence: str) -> str:
    """Name options in place of the profile's keys that they set."""
    return re.sub(r"`generation\.(\w+)`", lambda key: "--" + key[1].replace("_", "-"), sentence)
