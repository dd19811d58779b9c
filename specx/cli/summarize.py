"""``specx summarize``: documents in, summaries out."""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from specx.cli.console import is_file, make_console
from specx.cli.importing import without_collecting
from specx.cli.options import Wishes, changed_profile
from specx.cli.reading import Ocr, Pages, Password
from specx.cli.teller import Teller
from specx.cores import choose_threads, usable_cores
from specx.documents.formats import passed_over
from specx.documents.name_list import read_names
from specx.documents.read import ReadOptions
from specx.errors import SpecxError, UsageError
from specx.jobs.deadline import Deadline
from specx.jobs.inputs import find_sources, read_inputs, takes_a_while
from specx.jobs.job import Earlier, JobOptions, settings_of
from specx.jobs.queue import Queue
from specx.jobs.results import Destination, Results
from specx.jobs.shard import parse_shard
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
from specx.reports.job_progress import JobProgress
from specx.reports.live import LiveLine
from specx.reports.writers import remove_unfinished

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from specx.cli.main import RootOptions
    from specx.jobs.summarizer import Summarizer

_MINI_NOTICE = (
    "mini copies a document's own sentences (an extractive digest); for a summary in new words "
    "choose a profile with a larger model: specx profiles ls"
)


def summarize(
    context: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders (.pdf .txt .md .jsonl) or patterns; - is stdin."),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Read names from LIST, one a line or NUL-separated; - is stdin."
        ),
    ] = None,
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
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that specx did not write.")
    ] = False,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Leave complete outputs in --out as they are.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on in --out FOLDER where an earlier run has ended."),
    ] = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop at the first document that fails.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="SECONDS", help="Give a document up that takes longer than this."
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Do the I-th of N shares of the documents (1/N to N/N)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one object.")] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one report a line as documents end.")
    ] = False,
    field: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Key of JSON lines with the text; stdin is then JSON lines."
        ),
    ] = None,
    pages: Pages = None,
    password: Password = None,
    ocr: Ocr = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything",
            help="Read title, licence, contents, index and references as text, too.",
        ),
    ] = False,
    sentences: Annotated[
        int | None,
        typer.Option(help=f"Most sentences of a digest: {FEWEST_SENTENCES} to {MOST_SENTENCES}."),
    ] = None,
    words: Annotated[int | None, typer.Option(help="Most words of a summary.")] = None,
    style: Annotated[
        str | None,
        typer.Option(help="bullets, paragraphs, abstract, or a style of the profile's own."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(metavar="NAME", help="Language of the summary, such as German.")
    ] = None,
    instruction: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Ask this instead of a summary; @FILE reads it from a file."
        ),
    ] = None,
    parts: Annotated[
        bool,
        typer.Option(
            "--parts",
            help="Of a document longer than the window, print each part's summary.",
        ),
    ] = False,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of a summary.")
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
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads on a CPU. Without it: what the machine has free."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")
    ] = False,
) -> None:
    """Summarize documents: the summary goes to stdout, progress to stderr."""
    settings = changed_profile(
        load_profile(profile),
        Wishes(
            sentences=sentences,
            words=words,
            style=style,
            language=language,
            instruction=instruction,
        ),
        {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "seed": seed,
        },
        parts=parts,
        fallback=fallback,
    )
    chosen = method or _usual_method(settings)
    if json and jsonl:
        raise UsageError("--json and --jsonl exclude each other")

    format_: Literal["text", "json", "jsonl"] = "json" if json else "jsonl" if jsonl else "text"
    streamed = sys.stdout.isatty() and out is None and format_ == "text"
    options: RootOptions = context.obj
    options.quiet = quiet
    _run(
        SummarizeRequest(
            sources=_names(sources or [], from_file),
            reading=ReadOptions(
                password=password, pages=pages, ocr=ocr, everything=everything, field=field
            ),
            job=JobOptions(
                skip_existing=skip_existing,
                resume=resume,
                fail_fast=fail_fast,
                timeout=timeout,
                shard=parse_shard(shard),
            ),
            destination=Destination(
                sys.stdout,
                out=out,
                report=report,
                format=format_,
                streamed=streamed,
                force=force,
            ),
            profile=settings,
            method=chosen,
            device=device,
            threads=threads,
            check=check_lossless,
            quiet=quiet,
            debug=options.debug,
        ),
        options,
    )


def _names(sources: list[str], from_file: str | None) -> list[str]:
    """Return all names that the user gives. Raises UsageError if there is none."""
    if from_file is not None:
        return [*sources, *read_names(from_file, sources)]
    if not sources:
        raise UsageError("no documents are named; see specx summarize --help")
    return sources


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
    job: JobOptions
    profile: Profile
    method: Method
    device: str
    threads: int | None
    check: bool
    quiet: bool
    debug: bool

    @property
    def settings(self) -> str:
        """Return what tells runs apart whose outputs differ."""
        return settings_of(self.profile, self.method, self.reading, check=self.check)


def _run(request: SummarizeRequest, options: "RootOptions") -> None:
    """Connect the rooms: documents are read, summarized, written; progress goes to stderr."""
    interruption = options.interruption
    destination, job, console = request.destination, request.job, make_console(quiet=request.quiet)
    errors = make_console() if request.quiet else console  # the live line makes room for these
    if skipped := passed_over(request.sources):
        console.print(f"specx: {skipped}", soft_wrap=True)
    found = find_sources(request.sources)
    destination.check(len(found), [each.name for each in found])
    job.check(destination)
    # What OpenMP reads when torch is imported.
    threads = choose_threads(request.threads, os.environ, options.others)
    threads.set(os.environ)
    if takes_a_while(found):
        options.importing.begin()
    results = Results(destination, headings=len(found) > 1)
    teller = Teller(console, errors, results, debug=request.debug)

    live_line = LiveLine(
        console,
        stream_to=sys.stdout if destination.streamed else None,
        pass_on=results.write if destination.piped else None,
        steps_aside=not is_file(sys.stdout),
    )
    with Earlier(job, destination, request.settings) as earlier, live_line as live:
        interruption.tidy += [live.abandon, remove_unfinished]

        def on_source(number: int, name: str, total: int | None) -> None:
            live.start(name, number=number, total=total)
            live.phase("reading")

        # One document is read beside the models, where there is a second core for it.
        ahead = min(1, usable_cores() - 1)
        reading = job.reading(request.reading, on_source, earlier.is_done, ahead=ahead)
        inputs = read_inputs(found, reading)
        destination.check(inputs.least)
        results.headings = several = max(len(found), inputs.least) > 1
        if several:
            live.job = teller.job = JobProgress(inputs.total)
        deadline = job.deadline()
        queue = Queue(
            partial(
                _prepare, request, options, console, live, deadline, gives_way=not threads.fixed
            ),
            results,
            live,
            teller.done,
            teller.failed,
            partial(as_it_is, request.profile, request.method),
            on_skipped=teller.skipped,
            total=inputs.total,
            journal=earlier.journal,
            deadline=deadline,
            fail_fast=job.fail_fast,
        )
        interruption.sentence = queue.interrupted
        try:
            queue.run(teller.before(inputs.items, request.profile), alone=not several)
        except BaseException:
            with suppress(SpecxError):  # the first error is the one to tell
                results.finish()
            raise
        else:
            results.finish()
        finally:
            teller.end(several=several)


def _prepare(
    request: SummarizeRequest,
    options: "RootOptions",
    console: Console,
    live: LiveLine,
    deadline: Deadline | None,
    *,
    gives_way: bool,
) -> "Summarizer":
    """Load the models. torch, which takes seconds to import, comes with them.

    ``gives_way``: on a CPU, to other processes.
    """
    options.importing.wait()
    with without_collecting():
        return _load(request, console, live, deadline, gives_way=gives_way)


def _load(
    request: SummarizeRequest,
    console: Console,
    live: LiveLine,
    deadline: Deadline | None,
    *,
    gives_way: bool,
) -> "Summarizer":
    from specx.jobs.neighbours import Neighbours
    from specx.jobs.pair import choose_device, load_pair
    from specx.jobs.summarizer import Summarizer

    if request.profile.target.model.startswith(EMBEDDED):
        console.print(f"specx: {_MINI_NOTICE}", soft_wrap=True)
    device = choose_device(request.device)
    profile = request.profile.on("cuda" if device.type == "cuda" else "cpu")
    pair = load_pair(profile, request.method, device)
    neighbours = Neighbours() if gives_way and device.type == "cpu" else None
    return Summarizer(
        profile,
        request.method,
        pair,
        live,
        check=request.check,
        neighbours=neighbours,
        deadline=deadline,
    )
