"""``specx summarize``: documents in, summaries out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from specx.cli.options import (
    Draft,
    Model,
    Ocr,
    Pages,
    Password,
    ProfileName,
    changed_profile,
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
    OnLoop,
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
    from_file: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Read names from LIST, one a line or NUL-separated; - is stdin."
        ),
    ] = None,
    profile: ProfileName = None,
    model: Model = None,
    draft: Draft = None,
    method: Annotated[
        Method | None,
        typer.Option(
            help="How to decode; the output is the same. Without it: lookup for digests and where "
            "there is no draft, otherwise specextend."
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
    allow_failures: Annotated[
        str | None,
        typer.Option(
            metavar="N|FILE",
            help="Exit with 0 after N failures, or those of documents that FILE lists.",
        ),
    ] = None,
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
    jsonl_keys: Annotated[
        str | None,
        typer.Option(
            metavar="KEYS", help="Keys of --jsonl between commas, such as input.name,summary."
        ),
    ] = None,
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
    think: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Let a reasoning model reason first, for at most N tokens."
        ),
    ] = None,
    on_loop: Annotated[
        OnLoop | None,
        typer.Option(
            help="What becomes of a text that repeats itself: it is written on from there with a "
            "repetition penalty, ends before its repeats, or goes on. Without it: as the profile "
            "says, which is retry."
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
    min_p: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Sample from tokens with this share of the likeliest one's chance."
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(min=0, help="More than 1: fewer tokens that prompt or output have already."),
    ] = None,
    presence_penalty: Annotated[
        float | None,
        typer.Option(min=-2, max=2, help="Taken off the logits of tokens that the output has."),
    ] = None,
    frequency_penalty: Annotated[
        float | None,
        typer.Option(min=-2, max=2, help="Taken off for each time that the output has a token."),
    ] = None,
    no_repeat_ngram: Annotated[
        int | None,
        typer.Option(min=0, help="So many tokens in a row are written once at most; 0: no limit."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the sampling.")] = None,
    fallback: Annotated[
        bool,
        typer.Option("--fallback/--no-fallback", help="Decode plainly when drafting does not pay."),
    ] = True,
    check_lossless: Annotated[
        bool,
        typer.Option("--check-lossless", help="Decode plainly too and compare; exit 6 if unlike."),
    ] = False,
    no_sources: Annotated[
        bool,
        typer.Option(
            "--no-sources", help="Do not tell which passages sentences in own words are from."
        ),
    ] = False,
    strict_numbers: Annotated[
        bool,
        typer.Option(
            "--strict-numbers",
            help="Exit 8 if a number, date or name of a summary is nowhere in its document.",
        ),
    ] = False,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="Where the models run.")
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads on a CPU. Without it: what the machine has free."),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto|ray",
            help="Processes that summarize at a time. Without it: one for each GPU; on a CPU, of "
            "at least four documents, one for each core. ray: actors of Ray (extra ray).",
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Cluster of --workers ray; or set RAY_ADDRESS."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Nothing on stderr but warnings and errors.")
    ] = False,
) -> None:
    """Summarize documents: the summary goes to stdout, progress to stderr."""
    prompt: dict[str, object] = {
        "sentences": sentences,
        "words": words,
        "style": style,
        "language": language,
        "instruction": instruction,
        "on_loop": on_loop,
        "think": think,
    }
    generation: dict[str, object] = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "no_repeat_ngram": no_repeat_ngram,
        "seed": seed,
    }
    settings = changed_profile(
        profile_for(profile, model, draft),
        prompt,
        generation,
        parts=parts,
        fallback=fallback,
        sources=not no_sources,
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
        asked=frozenset(key for key, value in generation.items() if value is not None),
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
