"""Speculative decoding writes what plain decoding writes, and that is what the model writes."""

from dataclasses import replace
from itertools import zip_longest

import pytest
import torch

from specx.bench.generated import generate_report
from specx.decoding import forward
from specx.decoding.decode import decode
from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.model_drafter import ModelDrafter
from specx.profile import load_profile, resolve
from specx.prompts.digest import Digest
from specx.runs.pair import load_pair
from tests.decoding.pairs import allowed, check, loaded, make_profile, make_prompt, pair_of, run
from tests.pairwise import every_other, pairwise
from tests.tiny import VOCAB, make_model

FAMILIES = ["llama", "qwen3", "mistral", "smollm3"]
DRAFTS = {"smollm3": "llama"}  # the same weights; SmolLM3 is refused as a draft
DRAFTING = ["tree", "streaming", "specextend", "specextend+lookup"]
SMALL_CACHE = {"chunk": 4, "top_k": 3, "every": 2, "window": 8}
SURE = {"seed": 0, "peak": 5.0, "attention": 0.04}  # a target with clear winners
LIKE_IT = {**SURE, "noise": 0.02}  # a draft that is right more often than not


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("length", "seed"), [(1, 0), (50, 1)])
def test_plain_decoding_writes_what_generate_writes(family, length, seed):
    prompt, profile = make_prompt(length), make_profile(max_new_tokens=60)
    theirs = make_model(family, seed).generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, length, dtype=torch.int64),
        do_sample=False,
        max_new_tokens=60,
    )
    ours = run(pair_of(loaded(family, seed)), profile, "plain", prompt)
    assert ours.tokens == theirs[0, length:].tolist()
    assert ours.reason == ("length" if len(ours.tokens) == 60 else "end")


@pytest.mark.parametrize("method", DRAFTING)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_on_every_family(family, method):
    draft = loaded(DRAFTS.get(family, family), **LIKE_IT)
    pair = pair_of(loaded(family, **SURE), draft)
    result = check(
        pair, method, make_profile(cache=SMALL_CACHE, max_new_tokens=40), make_prompt(60)
    )
    assert len(set(result.accepted)) > 1  # some drafts were right and some were not


# Passes in machine code, in torch, and of transformers.
PASSES = ({"head_dim": 32}, {"head_dim": 24}, {"modules": True})


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("method", "settings", "dtype"),
    pairwise([*DRAFTING, "lookup"], PASSES, [torch.float16, torch.int8]),
)
def test_keys_and_values_in_half_the_bytes_or_less(method, settings, dtype, monkeypatch):
    """All passes read the same rounded rows, a prompt in chunks among them."""
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 32)
    target = replace(loaded(**settings, **SURE), cache_dtype=dtype)
    draft = None if method == "lookup" else loaded(**LIKE_IT)
    check(pair_of(target, draft), method, make_profile(cache=SMALL_CACHE), make_prompt(70))


@pytest.mark.parametrize(
    "tree",
    [
        {"nodes": 1, "depth": 1},
        {"nodes": 2, "depth": 1},
        {"nodes": 4, "depth": 4},
        {"nodes": 12, "depth": 6, "threshold": 0.3},
        {"nodes": 63, "depth": 10, "threshold": 0.0},
    ],
)
@pytest.mark.parametrize("method", ["tree", "specextend"])
def test_trees_of_every_shape(method, tree):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    profile = make_profile(tree=tree, cache=SMALL_CACHE)
    assert sum(check(pair, method, profile, make_prompt(60)).accepted) > 0


@pytest.mark.parametrize(("chunk", "top_k", "every"), pairwise([1, 4, 32], [1, 2, 50], [1, 3]))
def test_working_caches_of_every_size(chunk, top_k, every):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    cache = {"chunk": chunk, "top_k": top_k, "every": every, "sink": 0, "window": 16}
    for method in ("streaming", "specextend"):
        check(pair, method, make_profile(cache=cache), make_prompt(70))


@pytest.mark.parametrize(("window", "layer"), every_other([None, 1, 7, 200], [0, 1, "last"]))
def test_layers_and_draft_windows(layer, window):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    profile = make_profile(cache={**SMALL_CACHE, "layer": layer, "window": window})
    check(pair, "specextend", profile, make_prompt(60))


@pytest.mark.parametrize(("method", "length"), every_other(DRAFTING, [1, 2, 3, 4, 5, 16, 17, 100]))
def test_prompts_from_one_token_to_many_prefill_chunks(method, length, monkeypatch):
    whole = run(pair_of(loaded(**SURE)), make_profile(), "plain", make_prompt(length))
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 16)
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    result = check(pair, method, make_profile(cache=SMALL_CACHE), make_prompt(length))
    assert result.tokens == whole.tokens
    read = [(item.model, item.done) for item in result.progress]
    ends = [*range(16, length, 16), length]
    assert read[: len(ends)] == [("target", end) for end in ends]
    assert read[len(ends) :] == [("draft", end) for end in ends]


class LittleMemory:
    """Operations on a device that has memory for the attention of so many tokens at once."""

    def __init__(self, ops, most, error):
        self._ops, self._most, self._error = ops, most, error

    def __getattr__(self, name):
        return getattr(self._ops, name)

    def prefill_attention(self, q, *arguments, **options):
        if q.shape[1] > self._most:
            raise self._error
        return self._ops.prefill_attention(q, *arguments, **options)


@pytest.mark.parametrize("whose", ["target", "draft"])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["torch", "driver", "cpu"],
)
def test_where_memory_is_short_the_prompt_is_read_in_smaller_chunks(whose, error, monkeypatch):
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 64)
    monkeypatch.setattr(forward, "SMALLEST_CHUNK", 4)
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    model = getattr(pair, whose)
    short = replace(pair, **{whose: replace(model, ops=LittleMemory(model.ops, 20, error))})
    # A window that is too long for a draft to read lazily.
    profile, prompt = make_profile(cache={**SMALL_CACHE, "window": 60}), make_prompt(100)
    expected = run(pair, profile, "specextend", prompt)
    result = run(short, profile, "specextend", prompt)
    assert result.tokens == expected.tokens
    ends = {"target": [64, 100], "draft": [64, 100], whose: [*range(16, 100, 16), 100]}
    read = [(item.model, item.done) for item in result.progress]
    assert read == [(name, end) for name in ("target", "draft") for end in ends[name]]


def test_chunks_do_not_shrink_without_end():
    model = loaded()
    error = torch.OutOfMemoryError("CUDA out of memory")
    pair = pair_of(replace(model, ops=LittleMemory(model.ops, 0, error)))
    with pytest.raises(torch.OutOfMemoryError):
        run(pair, make_profile(), "plain", make_prompt(100))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draft_that_is_the_target_is_always_right(family):
    model = loaded(family, **SURE)
    profile = make_profile(tree={"nodes": 12, "depth": 3}, max_new_tokens=29)
    result = check(pair_of(model, model), "tree", profile, make_prompt(60))
    assert result.accepted == [3] * 7
    assert result.lengths == [4] * 7


@pytest.mark.parametrize("method", ["streaming", "specextend"])
def test_a_working_cache_that_holds_everything_drafts_as_the_full_one(method):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    cache = {"chunk": 8, "top_k": 50, "every": 1, "window": None}
    profile = make_profile(cache=cache, max_new_tokens=40)
    full = run(pair, profile, "tree", make_prompt(60))
    assert 0 < sum(full.accepted) < 3 * len(full.accepted)
    assert run(pair, profile, method, make_prompt(60)).accepted == full.accepted


@pytest.mark.parametrize("method", DRAFTING)
def test_the_fullest_caches_hold_what_is_written(method):
    """Everything is accepted, the working view is full and grows as long as it can."""
    model = loaded(**SURE)
    for every in (1, 2, 7):
        cache = {"chunk": 4, "top_k": 2, "every": every, "window": None}
        profile = make_profile(tree={"nodes": 16, "depth": 8}, cache=cache, max_new_tokens=50)
        check(pair_of(model, model), method, profile, make_prompt(33))


def test_a_retrieval_follows_the_prompt_and_every_so_many_steps(monkeypatch):
    calls, commits = [], []
    retrieve, commit = ModelDrafter.retrieve, ModelDrafter.commit

    def counted(self, target):
        calls.append(len(commits))
        retrieve(self, target)

    def counted_commit(self, path):
        commits.append(path)
        commit(self, path)

    monkeypatch.setattr(ModelDrafter, "commit", counted_commit)
    monkeypatch.setattr(ModelDrafter, "retrieve", counted)
    pair = pair_of(loaded(), loaded(seed=5))
    profile = make_profile(cache={**SMALL_CACHE, "every": 3}, max_new_tokens=12)
    result = run(pair, profile, "specextend", make_prompt(30))
    assert len(result.steps) == 11
    assert calls == [0, 1 + 3, 1 + 6, 1 + 9]  # the token behind the prompt is committed, too


@pytest.mark.parametrize("method", DRAFTING)
def test_documents_in_one_process_do_not_know_of_each_other(method):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    profile = make_profile(cache=SMALL_CACHE)

    def outcome(prompt):
        result = run(pair, profile, method, prompt)
        return result.tokens, result.accepted

    long, short = make_prompt(90, seed=1), make_prompt(13, seed=2)
    alone = {}
    for name, prompt in (("long", long), ("short", short)):
        fresh_target, fresh_draft = (
            loaded.__wrapped__(**settings) for settings in (SURE, LIKE_IT)
        )  # models that have read nothing yet
        result = run(pair_of(fresh_target, fresh_draft), profile, method, prompt)
        alone[name] = result.tokens, result.accepted
    assert alone["long"][0] != alone["short"][0]
    assert [outcome(long), outcome(short)] == [alone["long"], alone["short"]]
    assert [outcome(short), outcome(long)] == [alone["short"], alone["long"]]


def test_two_documents_at_the_same_time_do_not_know_of_each_other():
    """Loops are iterators, so a program may run several in turns."""
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    profile = make_profile(cache=SMALL_CACHE)
    prompts = make_prompt(40, seed=1), make_prompt(30, seed=2)
    loops = [decode(pair, resolve(profile, "specextend", pair.facts), prompt) for prompt in prompts]
    tokens = [[], []]
    for events in zip_longest(*loops):
        for written, event in zip(tokens, events, strict=True):
            written += getattr(event, "tokens", ())
    assert tokens == [run(pair, profile, "plain", prompt).tokens for prompt in prompts]


@pytest.fixture(scope="module")
def padded():
    """A target and a draft whose lm heads have 16 rows more than the tokenizer has tokens, and
    those rows win nearly always."""
    models = []
    for settings in (SURE, LIKE_IT):
        model = loaded(**settings, vocab_size=VOCAB + 16)
        with torch.no_grad():
            rows = model.vocabulary_weights[1]
            rows[VOCAB:] = -8 * rows[:16]
            rows[VOCAB + 8 :] *= -1
        models.append(model)
    return models


@pytest.mark.parametrize(("method", "temperature"), every_other(["plain", *DRAFTING], [0.0, 1.0]))
def test_ids_outside_the_tokenizer_are_never_written(method, temperature, padded):
    profile = make_profile(cache=SMALL_CACHE, max_new_tokens=40, temperature=temperature)
    result = check(pair_of(*padded), method, profile, make_prompt(30))
    assert max(result.tokens) < VOCAB

    target, draft = padded
    everything = range(VOCAB + 16)
    pair = replace(
        pair_of(target, draft),
        target_allowed=allowed(target, everything),
        draft_allowed=allowed(draft, everything),
    )
    assert max(run(pair, profile, method, make_prompt(30)).tokens) >= VOCAB  # they would win


@pytest.mark.parametrize("method", DRAFTING)
def test_ids_that_the_draft_lacks_are_written_all_the_same(method):
    """The draft never proposes them; the target's word counts."""
    target, draft = loaded(**SURE), loaded(**LIKE_IT)
    prompt, profile = make_prompt(30), make_profile(cache=SMALL_CACHE)
    expected = run(pair_of(target), profile, "plain", prompt).tokens
    known = [token for token in range(VOCAB) if token not in expected[::2]]
    pair = replace(pair_of(target, draft), draft_allowed=allowed(draft, known))
    assert run(pair, profile, method, prompt).tokens == expected


def test_another_target_writes_another_text():
    """Control: the texts that are compared depend on the weights, even on small changes."""
    prompt, profile = make_prompt(60), make_profile()
    ours = run(pair_of(loaded(**SURE)), profile, "plain", prompt).tokens
    assert ours != run(pair_of(loaded(**LIKE_IT)), profile, "plain", prompt).tokens


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("method", ["tree", "specextend"])
def test_half_precision_on_a_cpu_is_computed_as_such(method, dtype):
    """The embedded pair, weights and caches: digests choose among words that do not tie."""
    profile = load_profile("mini").changed(
        target={"dtype": dtype}, generation={"max_new_tokens": 40}
    )
    pair = load_pair(profile, "specextend", torch.device("cpu"))
    assert pair.target.dtype == pair.draft.dtype == getattr(torch, dtype)
    digest = Digest(pair.target.tokenizer, sentences=3)
    prompt = digest.prompts(generate_report(1500, seed=2), 1500)[0].token_ids
    assert len(set(check(pair, method, profile, prompt).accepted)) > 1
