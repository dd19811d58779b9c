"""Chunk size, k and frequency of retrieval, and a fitted model that recommends them (Table 5)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from specx.bench.experiments.experiment import Experiment
from specx.bench.fit import ACCEPTANCE_TERMS, COST_TERMS, Fit, RetrievalSetting, Sample, fit
from specx.bench.grouping import by, by_length
from specx.bench.lengths import label
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.runs import Run
from specx.bench.variants import changed, find_each
from specx.bench.wording import polynomial, times
from specx.bench.workbench import Workbench
from specx.profile import Profile

WORKING = (128, 256, 512, 1024, 2048)
EVERY = (1, 2, 4, 8, 16)
CHUNKS = (8, 16, 32, 64, 128)
FEWEST_SAMPLES = 12  # the acceptance formula has 7 terms; with less the fit says nothing
COLUMNS = (
    "input",
    "chunk",
    "k",
    "every",
    "working cache",
    "acceptance length",
    "fitted acceptance",
    "step ms",
    "fitted step ms",
    "tokens/s",
    "speedup",
)
RECOMMENDED_COLUMNS = (
    "input",
    "fitted on",
    "chunk",
    "k",
    "every",
    "tokens/s",
    "measured best: chunk, k, every",
    "its tokens/s",
    "share of best",
)
NOTE = "Acceptance: mean over documents and repetitions; step: median of decoding time per step."


def measure(bench: Workbench) -> Iterator[Run]:
    settings = {name_of(setting): setting for setting in grid(bench.profile)}
    methods = find_each(tuple(settings), bench.profile)
    own = own_setting(bench.profile)
    for task in bench.tasks:
        for length in bench.lengths:
            for run in bench.alternate(bench.cases(length, task), methods):
                setting = settings[run.method]
                facts = {**vars(setting), "own": setting == own}
                yield replace(run, facts={**run.facts, **facts})


def grid(profile: Profile) -> list[RetrievalSetting]:
    """The profile's setting; every working cache with every frequency at its chunk size; and
    with every chunk size at its frequency, as far as the draft was trained for them."""
    own = own_setting(profile)
    most = profile.draft.trained_context if profile.draft else 0
    working = [size for size in WORKING if size <= most]
    settings = [own]
    for size in working:
        settings += [_setting(size, own.chunk, every) for every in EVERY]
        settings += [_setting(size, chunk, own.every) for chunk in CHUNKS]
    return [s for s in dict.fromkeys(settings) if s.top_k >= 2 or s == own]


def own_setting(profile: Profile) -> RetrievalSetting:
    cache = profile.draft_cache
    return RetrievalSetting(cache.chunk, cache.top_k, cache.every)


def name_of(setting: RetrievalSetting) -> str:
    return changed("specextend", **vars(setting))


def _setting(working: int, chunk: int, every: int) -> RetrievalSetting:
    return RetrievalSetting(chunk, working // chunk, every)


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures, sentences = [], [], []
    for task, of_task in by(runs, "task").items():
        sweep = Sweep(tuple(samples_of(of_task)), own_of(of_task))
        fitted = fit(sweep.samples) if len(sweep.samples) >= FEWEST_SAMPLES else None
        rows = [row for length in sweep.lengths for row in _rows(sweep, length, fitted)]
        baseline = None if sweep.own is None else f"the profile's setting, {_words(sweep.own)}"
        tables.append(Table(f"Retrieval settings, {task}", COLUMNS, tuple(rows), baseline, NOTE))
        figures += [_figure(task, length, sweep) for length in sweep.lengths]
        if fitted is None:
            sentences.append(f"{task.capitalize()}: too few settings were measured to fit a model.")
            continue
        recommended = [row for length in sweep.lengths for row in _recommended(sweep, length)]
        title = f"Recommended settings, {task}"
        tables.append(
            Table(title, RECOMMENDED_COLUMNS, tuple(recommended), "the measured best setting")
        )
        sentences += [f"{task.capitalize()}: {text}" for text in _sentences(sweep, fitted)]
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


@dataclass(frozen=True)
class Sweep:
    """What was measured for a task. ``own``: the profile's setting, if it is among the samples."""

    samples: tuple[Sample, ...]
    own: RetrievalSetting | None

    @property
    def lengths(self) -> list[int]:
        return sorted({sample.length for sample in self.samples})

    def at(self, length: int) -> dict[RetrievalSetting, Sample]:
        """Samples at a length, by setting, ascending."""
        return {s.setting: s for s in sorted(self.samples, key=_order) if s.length == length}

    def best(self, length: int) -> Sample:
        return max(self.at(length).values(), key=lambda sample: sample.speed)

    def without(self, length: int) -> tuple[Sample, ...]:
        return tuple(sample for sample in self.samples if sample.length != length)


def _order(sample: Sample) -> RetrievalSetting:
    return sample.setting


def samples_of(runs: Sequence[Run]) -> Iterator[Sample]:
    """One sample for each length and setting."""
    for length, group in by_length(runs):
        for own in by(group, "method").values():
            steps = [run.decode_s / run.steps for run in own if run.steps]
            if steps:
                accepted = mean(run.acceptance_length for run in own)
                yield Sample(setting_of(own[0]), length, accepted, median(steps))


def setting_of(run: Run) -> RetrievalSetting:
    return RetrievalSetting(*(run.facts[key] for key in ("chunk", "top_k", "every")))


def own_of(runs: Sequence[Run]) -> RetrievalSetting | None:
    return next((setting_of(run) for run in runs if run.facts["own"]), None)


def _rows(sweep: Sweep, length: int, fitted: Fit | None) -> Iterator[tuple[Cell, ...]]:
    samples = sweep.at(length)
    base = None if sweep.own is None else samples.get(sweep.own)
    for setting, sample in samples.items():
        yield (
            label(length),
            *(setting.chunk, setting.top_k, setting.every, setting.working),
            sample.acceptance,
            None if fitted is None else fitted.acceptance(setting, length),
            1e3 * sample.step_s,
            None if fitted is None else 1e3 * fitted.step_s(setting, length),
            sample.speed,
            None if base is None else sample.speed / base.speed,
        )


def _recommended(sweep: Sweep, length: int) -> Iterator[tuple[Cell, ...]]:
    """What the fit recommends, with this length among its samples and, where two others tell what
    length does, without it."""
    best, sources = sweep.best(length), {"all lengths": sweep.samples}
    if len(sweep.lengths) > 2:
        sources["others"] = sweep.without(length)
    for name, samples in sources.items():
        if len(samples) >= FEWEST_SAMPLES:
            found = sweep.at(length)[fit(samples).recommend(list(sweep.at(length)), length)]
            yield (
                label(length),
                name,
                *(found.setting.chunk, found.setting.top_k, found.setting.every),
                found.speed,
                _words(best.setting),
                best.speed,
                found.speed / best.speed,
            )


def _sentences(sweep: Sweep, fitted: Fit) -> Iterator[str]:
    a, b = fitted.acceptance_terms, fitted.cost_terms
    yield (
        "with working cache w, chunk c, n steps between retrievals and input L, in tokens, and "
        "binary logarithms, least squares gives acceptance length "
        f"= {polynomial(a, ACCEPTANCE_TERMS)} and "
        f"milliseconds of a step = {polynomial([1e3 * weight for weight in b], COST_TERMS)}."
    )
    accepted = [fitted.acceptance(s.setting, s.length) / s.acceptance - 1 for s in sweep.samples]
    speeds = [fitted.speed(s.setting, s.length) / s.speed - 1 for s in sweep.samples]
    yield f"the fit misses acceptance by {_misses(accepted)} and tokens/s by {_misses(speeds)}."
    for length in sweep.lengths:
        yield _verdict(sweep, length, fitted)
    others = [row for length in sweep.lengths for row in _recommended(sweep, length)]
    unseen = [float(row[-1]) for row in others if row[1] == "others" and row[-1] is not None]
    if unseen:
        yield (
            "for a length that was left out of the fit, the recommended setting reaches at least "
            f"{times(min(unseen))} the speed of the best one there."
        )


def _verdict(sweep: Sweep, length: int, fitted: Fit) -> str:
    best = sweep.best(length)
    found = sweep.at(length)[fitted.recommend(list(sweep.at(length)), length)]
    text = f"at {label(length)}, the fit recommends {_words(found.setting)}, "
    if found == best:
        return text + "which was also measured to be the fastest."
    return text + (
        f"which was measured at {times(found.speed / best.speed)} the speed of the fastest, "
        f"{_words(best.setting)}."
    )


def _words(setting: RetrievalSetting) -> str:
    return f"chunk {setting.chunk}, k {setting.top_k}, every {setting.every}"


def _misses(errors: Sequence[float]) -> str:
    sizes = [100 * abs(error) for error in errors]
    return f"{median(sizes):.2g} % (median; {max(sizes):.2g} % at most)"


def _figure(task: str, length: int, sweep: Sweep) -> Figure:
    """Speed against the working cache, a line for each frequency at the profile's chunk size."""
    samples = sweep.at(length)
    chunk = sweep.own.chunk if sweep.own else next(iter(samples)).chunk
    lines: dict[int, list[tuple[int, float]]] = {}
    for setting, sample in samples.items():
        if setting.chunk == chunk:
            lines.setdefault(setting.every, []).append((setting.working, sample.speed))
    return Figure(
        f"sweep-{task}-{label(length)}",
        f"Speed by working cache, chunks of {chunk} tokens, {task}, {label(length)}",
        "working cache, tokens",
        "tokens/s",
        tuple(
            Series(f"every {every}", *(tuple(axis) for axis in zip(*points, strict=True)))
            for every, points in sorted(lines.items())
        ),
        log_x=True,
    )


EXPERIMENT = Experiment(
    "sweep",
    "Chunk size, k and frequency of retrieval",
    "settings of the working cache, and a model fitted to them that recommends some (Table 5)",
    measure,
    conclude,
)
