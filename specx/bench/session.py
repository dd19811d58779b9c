"""A benchmark from what was asked for to what was found."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch

from specx.bench.cases import generated_documents
from specx.bench.experiments.experiment import Experiment
from specx.bench.experiments.registry import find_experiments
from specx.bench.lengths import label
from specx.bench.methods import find_methods
from specx.bench.report.report import BenchReport, ReportSection
from specx.bench.request import BenchListener, Request
from specx.bench.runs import Run, run_from_raw
from specx.bench.scaled import scaled_pair, scaled_profile
from specx.bench.workbench import Workbench, with_output, without_fallback
from specx.engine.decode import context_window
from specx.engine.methods import Pair
from specx.errors import UsageError
from specx.jobs.pair import choose_device, load_pair
from specx.models.compat import check_pair
from specx.models.load import ModelSpec, load_model
from specx.profile import DigestPrompt, Profile
from specx.records import Timings


def prepare(request: Request, listener: BenchListener) -> Workbench:
    """Load the models, and see that everything asked for can be measured.

    Raises UsageError for what cannot, before anything is measured.
    """
    find_methods(request.methods, request.profile)  # wrong ones are told before models load
    _check_tasks(request)
    device = choose_device(request.device)
    profile = without_fallback(request.profile.on("cuda" if device.type == "cuda" else "cpu"))
    if request.tokens is not None:
        profile = with_output(profile, request.tokens)
    longest = max(request.lengths)
    documents = request.documents or tuple(generated_documents(request.most, longest, request.seed))
    listener.phase("loading the models")
    started = time.perf_counter()
    profile, pair = _models(request, profile, device, longest)
    loaded = time.perf_counter() - started
    bench = Workbench(
        pair=pair,
        profile=profile,
        documents=documents,
        lengths=request.lengths,
        methods=tuple(find_methods(request.methods, profile)),
        tasks=request.tasks,
        repeats=request.repeats,
        most=request.most,
        larger=_larger(request, pair),
        before=Timings(read=request.read_s, load=loaded),
        listener=listener,
    )
    _check_window(bench)
    bench.all_cases()
    return bench


def _models(
    request: Request, profile: Profile, device: torch.device, longest: int
) -> tuple[Profile, Pair]:
    if request.scale is None:
        return profile, load_pair(
            profile, "plain" if profile.draft is None else "specextend", device
        )
    if not profile.target.model.startswith("embedded:"):
        raise UsageError("--scale enlarges the embedded pair; leave --profile out")
    pair = scaled_pair(request.scale.target, request.scale.draft, device)
    # A scaled model has no window of its own: beyond the embedded one it runs, and forgets.
    window = max(pair.target.window, longest + profile.output_limit)
    pair = replace(pair, target=replace(pair.target, window=window))
    return scaled_profile(profile, request.scale.target), pair


def _larger(request: Request, pair: Pair) -> Pair | None:
    """Return the pair with the larger draft, if there is one."""
    model = request.larger_draft
    if model is None and request.scale is None and request.profile.draft is not None:
        ours = request.profile.draft.model == "embedded:draft"
        model = "embedded:draft-large" if ours else None
    return None if model is None else with_draft(pair, model)


def with_draft(pair: Pair, model: str) -> Pair:
    """Return the target of ``pair`` with the draft ``model`` (a folder or hub id), in the same
    dtype.
    Raises ModelError when it cannot be loaded or does not share the target's vocabulary.
    """
    target = pair.target
    dtype = str(target.dtype).removeprefix("torch.")
    draft = load_model(ModelSpec(model, dtype=dtype), target.device, "draft")
    facts = check_pair(target, draft)
    return Pair(target, facts.target_allowed, draft, facts.draft_allowed)


def _check_tasks(request: Request) -> None:
    digest = isinstance(request.profile.prompt, DigestPrompt)
    if digest == ("instruct" in request.tasks):
        kind = "digest" if digest else "instruct"
        raise UsageError(
            f"the prompt of the profile {request.profile.name} is of the kind {kind}, so it cannot "
            f"do the task {' or '.join(request.tasks)}"
        )


def _check_window(bench: Workbench) -> None:
    window, limit = context_window(bench.pair, bench.profile), bench.profile.output_limit
    longest = max(bench.lengths)
    if longest + limit > window:
        raise UsageError(
            f"{label(longest)} tokens and an output of {limit} do not fit into the window of "
            f"{window} tokens; ask for less with --length or --tokens"
        )


def carry_out(
    bench: Workbench, experiments: Sequence[Experiment], sections: list[ReportSection]
) -> list[str]:
    """Run the experiments; each one's section is added to ``sections`` when it ends, also when it
    is interrupted. What of several cannot be measured here is left out: a sentence for each."""
    left_out = []
    for experiment in experiments:
        bench.listener.section(experiment.title)
        runs: list[Run] = []
        try:
            for run in experiment.measure(bench):
                runs.append(run)
        except UsageError as error:
            if len(experiments) == 1:
                raise
            left_out.append(f"{experiment.name} was left out: {error}")
        finally:
            if runs:
                sections.append(_section(experiment, runs))
    return left_out


def _section(experiment: Experiment, runs: Sequence[Run]) -> ReportSection:
    return ReportSection(
        experiment.name,
        experiment.title,
        experiment.about,
        experiment.conclude(runs),
        tuple(asdict(run) | {"tokens_per_second": run.tokens_per_second} for run in runs),
    )


def concluded_again(report: BenchReport) -> BenchReport:
    """Return the same report, everything in it concluded from its raw runs once more.

    Raises UsageError for an experiment that there is not, and for runs whose output was left out.
    """
    sections = []
    for section in report.sections:
        (experiment,) = find_experiments(section.name)
        sections.append(_section(experiment, [run_from_raw(raw) for raw in section.runs]))
    return replace(report, sections=tuple(sections))


def warnings(bench: Workbench) -> list[str]:
    """Return the sentences that a reader of the tables has to know."""
    found = []
    if bench.pair.target.source.startswith("scaled"):
        found.append(
            "The models are the embedded pair inside models of public sizes (scaled mini): what a "
            "step costs is that of the large models, what is accepted that of the small ones."
        )
    longest = max(bench.lengths)
    trained = bench.pair.target.model.config.max_position_embeddings
    if longest > trained:  # only a scaled pair is measured there
        found.append(f"{label(longest)} tokens are more than the {trained} it was trained on.")
    return found
