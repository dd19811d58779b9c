"""Prompts that begin alike: the beginning is read once, and no bit tells that it was."""

import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from specx.cache_folder import KEPT, drop_oldest, kept_files
from specx.decoding import kept_prompts
from specx.decoding.decode import decode
from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.kept_prompts import KeptPrompts
from specx.decoding.methods import Pair
from specx.decoding.stopwatch import Laps
from specx.decoding.workspace import WorkspacePool
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.profile import resolve
from specx.records import METHODS, WITHOUT_DRAFT, Method
from tests.decoding.pairs import Run, collect, loaded, make_profile, make_prompt, pair_of
from tests.decoding.test_head_lossless import apt_pair
from tests.models.families import CELLS
from tests.models.families import make_pair as make_oracle
from tests.pairwise import every_other
from tests.tiny import VOCAB, make_tokenizer

SHARED = 150  # tokens: more than a window, and no multiple of a chunk
DOCUMENT = make_prompt(SHARED + 1, seed=3)
QUESTIONS = [DOCUMENT + make_prompt(length, seed=length) for length in (9, 23, 40)]
GB = 10**9


@pytest.fixture(autouse=True)
def _every_step_takes_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who drafts, and for how long, is decided by measured times."""
    monkeypatch.setattr(Laps, "until", lambda *_: 1.0)
    monkeypatch.setattr(Laps, "seconds", lambda *_: 1.0)
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 64)  # so that rings are gone around


def on_disk(pair: Pair) -> Pair:
    draft = pair.draft and replace(pair.draft, weights_from="draft")
    return replace(pair, target=replace(pair.target, weights_from="target"), draft=draft)


@cache
def full() -> Pair:
    return on_disk(pair_of(loaded(peak=5.0), loaded(peak=5.0, noise=0.02)))


@cache
def windows() -> Pair:
    kinds = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]
    settings: dict[str, Any] = {
        "num_hidden_layers": 4,
        "layer_types": kinds,
        "use_sliding_window": True,
        "sliding_window": 24,
    }
    make = loaded.__wrapped__  # lists cannot be keys of a cache
    target = make("qwen3", peak=5.0, **settings)
    return on_disk(pair_of(target, make("qwen3", peak=5.0, noise=0.02, **settings)))


@cache
def in_bytes() -> Pair:
    """Keys and values in 8 bits, in rings, too."""
    return replace(windows(), target=replace(windows().target, cache_dtype=torch.int8))


@cache
def states() -> Pair:
    """Layers with a delta rule beside those with attention, as target and as draft."""
    (cell,) = (each for each in CELLS if str(each) == "qwen3_5_text: a delta rule")
    settings = cell.settings | {"vocab_size": VOCAB, "max_position_embeddings": 512}
    with tempfile.TemporaryDirectory() as folder:
        make_oracle(replace(cell, settings=settings), Path(folder))
        make_tokenizer().save_pretrained(folder)
        spec = ModelSpec(folder)
        return on_disk(pair_of(*(load_model(spec, "cpu", role) for role in ("target", "draft"))))


@cache
def head() -> Pair:
    return on_disk(apt_pair("eagle"))


def answer(
    pair: Pair,
    method: Method,
    prompt: list[int],
    pool: WorkspacePool | None,
    shared: int = SHARED,
    **generation: Any,
) -> Run:
    memory = {"chunk": 8, "top_k": 3, "every": 2, "layer": 0, "window": 16}
    profile = make_profile(cache=memory, **{"max_new_tokens": 20, **generation})
    settings = resolve(profile, method, pair.facts)
    return collect(decode(pair, settings, prompt, shared=shared, pool=pool))


def figures(run: Run) -> tuple[Any, ...]:
    return run.tokens, [asdict(step) | {"seconds": 0} for step in run.steps], run.reason


def read(run: Run, model: str = "target") -> int:
    """Tokens that a model read before the first chunk ended."""
    return next(each.done for each in run.progress if each.model == model)


PAIRS = [full, windows, in_bytes, states, head]


@pytest.mark.every(3)
@pytest.mark.parametrize(("make", "method"), every_other(PAIRS, METHODS))
def test_a_question_is_answered_as_alone(make: Callable[[], Pair], method: Method) -> None:
    """The same tokens by the same steps: drafts and what is retrieved are as they were."""
    pair, pool = make(), WorkspacePool()
    for number, prompt in enumerate(QUESTIONS if make is full else QUESTIONS[:2]):
        run = answer(pair, method, prompt, pool)
        assert figures(run) == figures(answer(pair, method, prompt, None))
        assert (read(run) > SHARED) == (number > 0)
        if method not in WITHOUT_DRAFT and make is not head:
            assert (read(run, "draft") > SHARED) == (number > 0)


@pytest.mark.parametrize("make", [full, windows, states])
def test_a_text_that_is_decoded_otherwise_takes_the_caches_over(make: Callable[[], Pair]) -> None:
    """As one that goes on under a penalty, or behind its reasoning."""
    pair, pool = make(), WorkspacePool()
    answer(pair, "specextend", QUESTIONS[0], pool)
    penalized = {"repetition_penalty": 1.2}
    run = answer(pair, "specextend", QUESTIONS[1], pool, **penalized)
    assert figures(run) == figures(answer(pair, "specextend", QUESTIONS[1], None, **penalized))
    assert read(run) > SHARED
    run = answer(pair, "plain", QUESTIONS[2], pool)
    assert figures(run) == figures(answer(pair, "plain", QUESTIONS[2], None))
    assert read(run) > SHARED


def test_another_document_shares_nothing() -> None:
    pool = WorkspacePool()
    answer(full(), "specextend", QUESTIONS[0], pool)
    for prompt in (make_prompt(180, seed=8), [*DOCUMENT[:-1], 5, *QUESTIONS[0]]):
        run = answer(full(), "specextend", prompt, pool)
        assert figures(run) == figures(answer(full(), "specextend", prompt, None))
        assert read(run) <= SHARED


# ---------------------------------------------------------------- on disk


def ask(folder: Path, number: int = 0, pair: Pair | None = None, method: Method = "plain") -> Run:
    """An answer as in a new process, in front of which others have kept what is in ``folder``."""
    kept = KeptPrompts(GB, folder)
    pool = WorkspacePool(kept, "a.txt")
    run = answer(pair or full(), method, QUESTIONS[number], pool)
    run.events.append(pool.keep())
    return run


def warnings(run: Run) -> list[str]:
    return run.events[-1]


@pytest.mark.every(3)
@pytest.mark.parametrize(("make", "method"), every_other(PAIRS, METHODS, odd=True))
def test_a_new_process_reads_what_another_kept(
    tmp_path: Path, make: Callable[[], Pair], method: Method
) -> None:
    pair = make()
    ask(tmp_path, 0, pair, method)
    run = ask(tmp_path, 1, pair, method)
    assert figures(run) == figures(answer(pair, method, QUESTIONS[1], None))
    assert read(run) > SHARED
    assert not warnings(run)
    drafts = method not in WITHOUT_DRAFT
    assert len(kept_files(tmp_path)) == (2 if drafts else 1)
    if drafts:
        assert read(run, "draft") > SHARED


def test_what_plain_decoding_kept_serves_a_method_that_drafts(tmp_path: Path) -> None:
    ask(tmp_path, 0, method="plain")
    run = ask(tmp_path, 1, method="specextend")
    assert figures(run) == figures(answer(full(), "specextend", QUESTIONS[1], None))
    assert read(run) > SHARED >= read(run, "draft")


@pytest.mark.parametrize("make", PAIRS)
def test_rows_are_kept_to_the_bit(tmp_path: Path, make: Callable[[], Pair]) -> None:
    pools = [WorkspacePool(KeptPrompts(GB, tmp_path)) for _ in range(2)]
    for pool in pools:
        answer(make(), "specextend", QUESTIONS[0], pool)
        pool.keep()
    made, from_disk = (pool._kept for pool in pools)
    assert made is not None
    assert from_disk is not None
    assert from_disk.kept_tokens == SHARED
    for role, store in made.beginning[2].items():
        rows = zip(store.marked_rows(), from_disk.beginning[2][role].marked_rows(), strict=True)
        assert all(torch.equal(one, other) for one, other in rows)


def test_other_models_formats_and_settings_share_no_file(tmp_path: Path) -> None:
    pair = full()
    target = pair.target
    others = [
        replace(target, weights_from="others"),
        replace(target, cache_dtype=torch.float16),
        replace(target, cache_dtype=torch.int8),
        replace(target, activations="int8"),
        replace(target, config={**target.config, "rope_theta": 5.0}),
    ]
    ask(tmp_path, 0)
    for number, other in enumerate(others, start=2):
        run = ask(tmp_path, 0, replace(pair, target=other))
        assert read(run) <= SHARED
        assert len(kept_files(tmp_path)) == number


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _one_bit(place: float) -> Callable[[Path], None]:
    def flip(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[int(place * (len(content) - 1))] ^= 1
        file.write_bytes(content)

    return flip


def _of_another(file: Path) -> None:
    ask(file.parent, 0, replace(full(), target=replace(full().target, weights_from="other")))
    other = next(each.path for each in kept_files(file.parent) if each.path != file)
    other.replace(file)


HARM: dict[str, Callable[[Path], Any]] = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": _cut,
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "a bit of the header": _one_bit(0.005),
    "a bit of the rows": _one_bit(0.5),
    "a bit of the hash": _one_bit(1.0),
    "no header": lambda file: file.write_text("a note\n"),
    "another model's": _of_another,
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("harm", HARM)
def test_what_is_not_whole_is_ignored_with_one_line(tmp_path: Path, harm: str) -> None:
    ask(tmp_path, 0)
    (kept,) = kept_files(tmp_path)
    HARM[harm](kept.path)
    run = ask(tmp_path, 1)
    assert figures(run) == figures(answer(full(), "plain", QUESTIONS[1], None))
    assert read(run) <= SHARED
    assert len(warnings(run)) == 1
    assert warnings(run)[0].startswith(f"the kept prompt {kept.path} was not used: ")
    if harm != "a folder":  # a whole one takes its place
        assert read(ask(tmp_path, 2)) > SHARED


# ---------------------------------------------------------------- the folder


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    for number in range(3):
        pair = replace(full(), target=replace(full().target, weights_from=f"{number}"))
        ask(tmp_path, 0, pair)
    files = kept_files(tmp_path)
    for place, each in enumerate(files):
        os.utime(each.path, (place, place))
    ask(tmp_path, 1, replace(full(), target=replace(full().target, weights_from="0")))
    size = files[0].bytes
    dropped = drop_oldest(tmp_path, 2 * size)
    assert len(dropped) == 1
    assert dropped[0].used == 1  # what was used again is the youngest
    assert sum(each.bytes for each in kept_files(tmp_path)) <= 2 * size


def test_a_prompt_beyond_the_limit_is_not_kept(tmp_path: Path) -> None:
    pool = WorkspacePool(KeptPrompts(1000, tmp_path), "a.txt")
    answer(full(), "plain", QUESTIONS[0], pool)
    (warning,) = pool.keep()
    assert warning.startswith("the prompt of a.txt was not kept: it takes ")
    assert warning.endswith(" GB, more than --keep-limit allows")
    assert not kept_files(tmp_path)


def test_a_full_disk_costs_a_line(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        run = ask(tmp_path, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert figures(run) == figures(answer(full(), "plain", QUESTIONS[0], None))
    assert warnings(run) == ["the prompt of a.txt was not kept: File too large"]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_costs_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len(warnings(ask(tmp_path / "file" / "prompts", 0))) == 1


def _write(folder: Path, half_written: Connection | None = None) -> None:
    store = kept_prompts._store

    def slowly(write: Callable[[Any], None], header: bytes, rows: Any) -> None:
        def some(content: Any) -> None:
            write(content)
            if half_written is not None:
                half_written.send("half")
                time.sleep(60)

        store(some, header, rows)

    kept_prompts._store = slowly
    ask(folder, 0)


def _writer(*arguments: Any) -> BaseProcess:
    """Start a process that writes; a copy of this one, which has imported what it needs."""
    process = get_context("fork").Process(target=_write, args=arguments)
    process.start()
    return process


def test_a_process_that_is_killed_leaves_nothing_to_read(tmp_path: Path) -> None:
    written, to_tell = Pipe(duplex=False)
    process = _writer(tmp_path, to_tell)
    assert written.poll(60)
    process.kill()
    process.join()
    assert [each.suffix for each in tmp_path.iterdir()] != [KEPT]
    assert not kept_files(tmp_path)
    assert read(ask(tmp_path, 0)) <= SHARED
    assert [each.suffix for each in tmp_path.iterdir()] == [KEPT]  # the rest of it is gone


def test_two_processes_at_once(tmp_path: Path) -> None:
    for process in [_writer(tmp_path), _writer(tmp_path)]:
        process.join()
        assert process.exitcode == 0
    run = ask(tmp_path, 1)
    assert read(run) > SHARED
    assert figures(run) == figures(answer(full(), "plain", QUESTIONS[1], None))
    assert [each.suffix for each in tmp_path.iterdir()] == [KEPT]
