"""``specx summarize``: documents in, summaries out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from specx.cli.options import (
    CHECKS,
    INPUT,
    MANY,
    MODEL,
    OUTPUT,
    SUMMARY,
    Draft,
    Model,
    Ocr,
    Pages,
    Password,
    ProfileName,
    SetKey,
    changed_profile,
    parse_settings,
)
from specx.cli.summary_run import SummaryRun
from specx.documents.discover import read_names
from specx.documents.read import ReadOptions
from specx.errors import UsageError
from specx.profile import (
    FEWEST_SENTENCES,
    MOST_SENTENCES,
    AutoTree,
    DigestPrompt,
    Profile,
    profile_for,
)
from specx.records import Method
from specx.reports.json_lines import parse_keys
from specx.runs.destination import Destination
from specx.runs.inputs import parse_shard
from specx.runs.job import JobOptions
from specx.runs.outcome import AllowedFailures

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from specx.cli.main import RootOptions


def summarize(
    context: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders or patterns; - is stdin."),
    ] = None,
    profile: ProfileName = None,
    model: Model = None,
    draft: Draft = None,
    method: Annotated[
        Method | None,
        typer.Option(
            metavar="METHOD",
            help="plain, tree, streaming, specextend, lookup or specextend+lookup. "
            "Default: lookup for digests and without a draft, else specextend.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    set_: SetKey = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option(
            metavar="DEVICE",
            help="auto, cpu or cuda.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="CPU threads. Default: the free cores.", rich_help_panel=MODEL
        ),
    ] = None,
    words: Annotated[
        int | None,
        typer.Option(metavar="N", help="Maximum words of a summary.", rich_help_panel=SUMMARY),
    ] = None,
    sentences: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help=f"Maximum sentences of a digest, {FEWEST_SENTENCES} to {MOST_SENTENCES}.",
            rich_help_panel=SUMMARY,
        ),
    ] = None,
    style: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="bullets, paragraphs, abstract, or a profile's style.",
            rich_help_panel=SUMMARY,
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Language of the summary, such as German.",
            rich_help_panel=SUMMARY,
        ),
    ] = None,
    instruction: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Replace the request; @FILE reads it from a file.",
            rich_help_panel=SUMMARY,
        ),
    ] = None,
    think: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Token budget for reasoning before the summary.",
            rich_help_panel=SUMMARY,
        ),
    ] = None,
    parts: Annotated[
        bool,
        typer.Option(
            "--parts",
            help="Summarize each part of a long document separately.",
            rich_help_panel=SUMMARY,
        ),
    ] = False,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Maximum tokens of a summary.", rich_help_panel=SUMMARY
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="X",
            help="Sampling temperature; 0 is greedy.",
            rich_help_panel=SUMMARY,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Seed of sampling.", rich_help_panel=SUMMARY),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="A .md or .txt file, or a folder for many documents.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the report (.json, .md or .html).", rich_help_panel=OUTPUT
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the report as one object.", rich_help_panel=OUTPUT),
    ] = False,
    jsonl: Annotated[
        bool,
        typer.Option("--jsonl", help="Print one report per line.", rich_help_panel=OUTPUT),
    ] = False,
    jsonl_keys: Annotated[
        str | None,
        typer.Option(
            metavar="KEYS",
            help="Keys for --jsonl, such as input.name,summary.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Overwrite files that specx did not write.", rich_help_panel=OUTPUT
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Print only warnings and errors on stderr.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    from_file: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Read input names from a file; - is stdin.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    pages: Pages = None,
    password: Password = None,
    ocr: Ocr = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything",
            help="Keep title pages, licences, contents and references.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    field: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Text key of JSON lines; stdin is then JSON lines.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    skip_existing: Annotated[
        bool,
        typer.Option(
            "--skip-existing", help="Keep complete outputs in --out.", rich_help_panel=MANY
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue an earlier run in --out FOLDER.", rich_help_panel=MANY
        ),
    ] = False,
    fail_fast: Annotated[
        bool,
        typer.Option(
            "--fail-fast", help="Stop at the first document that fails.", rich_help_panel=MANY
        ),
    ] = False,
    allow_failures: Annotated[
        str | None,
        typer.Option(
            metavar="N|FILE",
            help="Tolerate N failures, or those listed in FILE.",
            rich_help_panel=MANY,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="Maximum time per document.",
            rich_help_panel=MANY,
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Process shard I of N, for example 2/8.",
            rich_help_panel=MANY,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto|ray",
            help="Worker processes. Default: one per GPU, or per core for 4 documents or more.",
            rich_help_panel=MANY,
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Ray cluster; or set RAY_ADDRESS.",
            rich_help_panel=MANY,
        ),
    ] = None,
    check_lossless: Annotated[
        bool,
        typer.Option(
            "--check-lossless",
            help="Compare with plain decoding; exit 6 if it differs.",
            rich_help_panel=CHECKS,
        ),
    ] = False,
    strict_numbers: Annotated[
        bool,
        typer.Option(
            "--strict-numbers",
            help="Exit 8 if a number, date or name is not in the document.",
            rich_help_panel=CHECKS,
        ),
    ] = False,
) -> None:
    """Summarize documents: the summary goes to stdout, progress to stderr."""
    prompt: dict[str, object] = {
        "sentences": sentences,
        "words": words,
        "style": style,
        "language": language,
        "instruction": instruction,
        "think": think,
    }
    generation: dict[str, object] = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    changes = parse_settings(set_ or [])
    settings = changed_profile(
        profile_for(profile, model, draft), prompt, generation, changes, parts=parts
    )
    chosen = method or _usual_method(settings, names_draft=draft is not None)
    if json and jsonl:
        raise UsageError("--json and --jsonl exclude each other")

    if jsonl_keys is not None and not jsonl:
        raise UsageError("--jsonl-keys needs --jsonl")

    format_: Literal["text", "json", "jsonl"] = "json" if json else "jsonl" if jsonl else "text"
    streamed = sys.stdout.isatty() and out is None and format_ == "text"
    options: RootOptions = context.obj
    run = SummaryRun(
        options=options,
        sources=_names(sources or [], from_file),
        reading=ReadOptions(
            password=password, pages=pages, ocr=ocr, everything=everything, field=field
        ),
        job=JobOptions(
            skip_existing=skip_existing,
            resume=resume,
            allowed=AllowedFailures.parse(allow_failures),
            fail_fast=fail_fast,
            timeout=timeout,
            shard=parse_shard(shard),
        ),
        destination=Destination(
            sys.stdout,
            out=out,
            report=report,
            format=format_,
            keys=None if jsonl_keys is None else parse_keys(jsonl_keys),
            streamed=streamed,
            force=force,
        ),
        profile=settings,
        cli_overrides=frozenset(
            (
                *(key for key, value in generation.items() if value is not None),
                *changes.get("generation", ()),
            )
        ),
        method=chosen,
        device=device,
        threads=threads,
        workers=workers,
        ray_address=ray_address,
        check=check_lossless,
        strict_numbers=strict_numbers,
        quiet=quiet,
    )
    run.run()


def _names(sources: list[str], from_file: str | None) -> list[str]:
    """Return all names that the user gives. Raises UsageError if there is none."""
    if from_file is not None:
        return [*sources, *read_names(from_file, sources)]
    if not sources:
        raise UsageError("no documents are named; see specx summarize --help")
    return sources


def _usual_method(profile: Profile, *, names_draft: bool) -> Method:
    """Return the fastest method (``docs/results.md``): a digest copies, so lookup guesses well.

    ``names_draft``: the user does, and wants it to be used.
    """
    if profile.draft is None:
        return "lookup"
    chosen = isinstance(profile.tree, AutoTree)  # which only the model's own trees can be
    copies = isinstance(profile.prompt, DigestPrompt)
    return "lookup" if copies and not chosen and not names_draft else "specextend"
