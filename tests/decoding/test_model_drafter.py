"""What the draft proposes and remembers, against transformers' own forwards."""

from itertools import pairwise
from statistics import mean

import pytest
import torch

from specx.decoding.cost import TreePlan
from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.model_drafter import LAYOUTS, DraftPlan, ModelDrafter
from specx.decoding.target import Target
from specx.models.call import TreeCall
from specx.models.decoder import Decoder
from specx.ops.chunks import Grid
from specx.ops.trees import Path, TokenTree
from specx.profile.schema import DraftCacheSettings, TreeSettings
from tests.decoding.pairs import allowed, loaded, make_prompt, pair_of, run
from tests.decoding.pairs import make_profile as profile_of
from tests.ops.test_trees import assert_is_tree, paths_of
from tests.pairwise import pairwise as all_pairs
from tests.tiny import VOCAB, make_model

ROOT = 50  # the token behind the prompt
FULL = {"policy": "full", "window": None}


def make_drafter(model, tree, cache, layer=None, ids=range(VOCAB)) -> ModelDrafter:
    settings = DraftCacheSettings(**cache)
    plan = DraftPlan(tree=TreeSettings(**tree), cache=settings, layer=layer, copied=0)
    return ModelDrafter(model, allowed(model, ids), plan, max_tokens=200)


def prefilled(drafter: ModelDrafter, prompt, target_model=None) -> Target:
    model = target_model or drafter.model
    target = Target(model, 300, drafter.retrieval_layer)
    list(target.prefill(torch.tensor(prompt)))
    list(drafter.prefill(torch.tensor(prompt), target))
    drafter.commit(Path.of(torch.tensor([ROOT])))
    return target


def emit(drafter: ModelDrafter, tokens: list[int]) -> None:
    """As after a step that accepted all but the last of ``tokens``."""
    padded = torch.tensor(tokens + tokens[-1:] * (drafter.levels + 1 - len(tokens)))
    drafter.commit(Path(torch.zeros_like(padded), padded, torch.tensor(len(tokens))))


def best_paths(
    model, text, nodes, depth, ids=range(VOCAB), width=None
) -> dict[tuple[int, ...], float]:
    """The best nodes by log-probability, each level by one forward over every path of it.

    Only the best ``width`` paths of a level go on (None: all).
    """
    mask = torch.full((model.config.vocab_size,), -torch.inf)
    mask[list(ids)] = 0.0
    level, found = {(): 0.0}, {}
    for _ in range(depth):
        level = dict(list(level.items())[:width])
        batch = torch.tensor([[*text, *path] for path in level])
        with torch.no_grad():
            logits = model(input_ids=batch, use_cache=False).logits[:, -1]
        logprobs = (logits + mask).log_softmax(-1)
        children = {
            (*path, token): weight + float(logprobs[i, token])
            for i, (path, weight) in enumerate(level.items())
            for token in logprobs[i].topk(nodes).indices.tolist()
        }
        level = dict(sorted(children.items(), key=lambda item: -item[1])[:nodes])
        found |= level
    return dict(sorted(found.items(), key=lambda item: -item[1])[:nodes])


def assert_best(tree: TokenTree, expected: dict[tuple[int, ...], float]) -> None:
    assert set(paths_of(tree)) == set(expected)


SHAPES = [(1, 1, None), (6, 1, None), (6, 3, None), (20, 4, None), (8, 8, 1), (6, 3, 2), (5, 2, 5)]


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("family", "shape", "shared"), all_pairs(["llama", "qwen3", "mistral"], SHAPES, [False, True])
)
def test_the_tree_is_the_best_of_the_drafts_own_probabilities(family, shape, shared, monkeypatch):
    """After the prompt, and after steps that emitted one token and several.

    Also where passes are filled up, as on a GPU.
    """
    monkeypatch.setattr(ModelDrafter, "_shares_passes", shared)
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 16)
    model, plain = loaded(family), make_model(family)
    nodes, depth, width = shape
    tree = {"nodes": nodes, "depth": depth, "threshold": 0.0, "width": width}
    drafter = make_drafter(model, tree, FULL)
    text = make_prompt(40)
    prefilled(drafter, text)
    emitted = [50]
    for following in ([60], [61, 62, 63, 64, 65][: depth + 1], [66, 67][: depth + 1], [70]):
        text = [*text, *emitted]
        tree = drafter.grow(torch.tensor(text[-1:]))
        assert int(tree.tokens[0]) == text[-1]
        assert_is_tree_behind(tree, nodes, depth)
        assert_best(tree, best_paths(plain, text, nodes, depth, width=width))
        emit(drafter, following)
        emitted = following
    assert drafter.cache.store.committed == len(text)


def assert_is_tree_behind(tree: TokenTree, nodes: int, levels: int) -> None:
    rooted = TokenTree(
        torch.cat([torch.tensor([7]), tree.tokens[1:]]),
        tree.parents,
        tree.depths,
        tree.valid,
        tree.levels,
    )
    assert_is_tree(rooted, nodes, levels)


@pytest.mark.parametrize("cache", [FULL, {"chunk": 8, "top_k": 20, "every": 4, "window": None}])
@pytest.mark.parametrize("following", [[60], [61, 62, 63, 64, 65]])
@pytest.mark.parametrize("shared", [False, True])
def test_other_trees_are_grown_from_all_that_was_emitted(cache, following, shared, monkeypatch):
    """More tokens may wait to be read than the new trees have levels; then larger ones again."""
    monkeypatch.setattr(ModelDrafter, "_shares_passes", shared)
    model, plain = loaded(), make_model()
    largest = {"nodes": 20, "depth": 4, "threshold": 0.0}
    cache = {"policy": "streaming", **cache}
    drafter = make_drafter(model, largest, cache)
    text = make_prompt(40)
    prefilled(drafter, text)
    drafter.grow(torch.tensor([50]))
    emit(drafter, following)
    text = [*text, 50, *following]
    for nodes, depth in ((3, 1), (20, 4), (6, 2)):
        tree = TreeSettings(nodes=nodes, depth=depth, threshold=0.0)
        drafter.reshape(TreePlan(tree, every=2))
        grown = drafter.grow(torch.tensor(text[-1:]))
        assert_is_tree_behind(grown, nodes, depth)
        assert_best(grown, best_paths(plain, text, nodes, depth))
        emit(drafter, [70])
        text.append(70)
    assert drafter.cache.store.committed == len(text) - 1
    assert drafter.levels == 2
    assert drafter.retrieve_every == (None if cache["policy"] == "full" else 2)


def test_a_tree_that_was_at_work_works_on_the_same_tensors_again():
    """What was recorded holds for it. Of many layouts all are forgotten but the one in use."""
    drafter = make_drafter(loaded(), {"nodes": 20, "depth": 4, "threshold": 0.0}, FULL)
    prefilled(drafter, make_prompt(40))
    first, layouts = drafter.layout, {}
    for nodes in (3, 5, 3, 5):
        tree = TreeSettings(nodes=nodes, depth=2, threshold=0.1)
        drafter.reshape(TreePlan(tree, every=2))
        assert layouts.setdefault(nodes, drafter.layout) is drafter.layout
    assert len({first, *layouts.values()}) == 3
    with drafter.laid_out(TreePlan(TreeSettings(nodes=7, depth=3), every=1)):
        assert drafter.levels == 3
        assert drafter.layout not in layouts.values()
    assert drafter.layout is layouts[5]
    assert drafter.levels == 2
    assert drafter.begin()
    assert drafter.layout is first
    assert not drafter.forget_layouts()
    for nodes in range(8, 8 + LAYOUTS):
        drafter.reshape(TreePlan(TreeSettings(nodes=nodes, depth=2), every=1))
    last = drafter.layout
    assert drafter.forget_layouts()
    drafter.reshape(TreePlan(TreeSettings(nodes=3, depth=2), every=1))
    assert drafter.layout is not layouts[3]
    drafter.reshape(TreePlan(TreeSettings(nodes=7 + LAYOUTS, depth=2), every=1))
    assert drafter.layout is last


def test_ids_that_are_not_allowed_are_not_proposed():
    ids = [5, 9, 300]
    tree = {"nodes": 30, "depth": 3, "threshold": 0.0}
    drafter = make_drafter(loaded(), tree, FULL, ids=ids)
    prefilled(drafter, make_prompt(20))
    grown = drafter.grow(torch.tensor([50]))
    assert_best(grown, best_paths(make_model(), [*make_prompt(20), 50], 30, 3, ids))
    assert set(grown.tokens[1:][grown.valid[1:]].tolist()) == set(ids)


def test_fewer_ids_than_nodes_leave_padding():
    drafter = make_drafter(loaded(), {"nodes": 10, "depth": 2, "threshold": 0.0}, FULL, ids=[5, 9])
    prefilled(drafter, make_prompt(20))
    assert drafter.grow(torch.tensor([50])).valid.tolist() == [True] * 7 + [False] * 4


def test_growth_stops_where_a_level_adds_less_than_the_threshold():
    text = make_prompt(20)

    def levels(threshold: float, peak: float) -> int:
        drafter = make_drafter(
            loaded(peak=peak), {"nodes": 12, "depth": 6, "threshold": threshold}, FULL
        )
        prefilled(drafter, text)
        return drafter.grow(torch.tensor([50])).levels

    assert levels(0.0, peak=1.0) == 6
    assert levels(1.01, peak=20.0) == 2  # no level can add more than 1
    assert levels(0.5, peak=200.0) == 6  # a sure draft adds nearly 1 each time
    gains = [gain_at(depth, text) for depth in range(1, 7)]
    added = [after - before for before, after in pairwise(gains)]
    for threshold in (0.02, 0.1, 0.3):
        enough = next((i for i, gain in enumerate(added) if gain < threshold), len(added) - 1)
        assert levels(threshold, peak=1.0) == enough + 2


def gain_at(depth: int, text: list[int]) -> float:
    """The sum of the best 12 path probabilities in ``depth`` levels."""
    weights = best_paths(make_model(), [*text, 50], 12, depth).values()
    return float(torch.tensor(list(weights)).exp().sum())


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize(("chunk", "top_k"), [(4, 3), (8, 2), (2, 6), (32, 1)])
def test_retrieval_takes_the_chunks_that_the_target_attends_to(layer, chunk, top_k):
    prompt, draft = make_prompt(70), loaded(seed=5)
    cache = {"chunk": chunk, "top_k": top_k, "window": None}
    drafter = make_drafter(draft, {"nodes": 4, "depth": 2}, cache, layer=layer)
    prefilled(drafter, prompt, loaded())

    eager = make_model()
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        output = eager(input_ids=torch.tensor([prompt]), output_attentions=True, use_cache=False)
    row = output.attentions[layer][0, :, -1].mean(0).tolist()
    grid = Grid.around(70, chunk)  # the chunk that is kept is the newest, too
    chunks = [(place + grid.short) // chunk for place in range(70)]
    newest = chunks[-1]
    means = [mean(row[i] for i in range(70) if chunks[i] == c) for c in range(newest + 1)]
    best = sorted(range(newest), key=lambda i: -means[i])[: top_k - 1]
    rows = [place for place in range(70) if chunks[place] in (*best, newest)]

    working, store = drafter.cache.working, drafter.cache.store
    assert working.committed == len(rows)
    values = working.storage[:, 1, :, : len(rows)]
    assert torch.equal(values, store.storage[:, 1][:, :, rows])


def test_retrieval_of_everything_leaves_the_drafts_unchanged():
    """All chunks at compact positions are the text at its own."""
    tree = {"nodes": 10, "depth": 3, "threshold": 0.0}
    full = make_drafter(loaded(seed=5), tree, FULL)
    chosen = make_drafter(
        loaded(seed=5), tree, {"chunk": 8, "top_k": 20, "every": 1, "window": None}, layer=0
    )
    target = prefilled(full, make_prompt(60))
    prefilled(chosen, make_prompt(60), loaded())
    for token in (50, 51, 52):
        trees = [drafter.grow(torch.tensor([token])) for drafter in (full, chosen)]
        assert paths_of(trees[0]) == paths_of(trees[1])
        for drafter in (full, chosen):
            emit(drafter, [token + 1])
    assert target.retrieval is None


def test_the_draft_never_sees_more_than_its_working_cache(monkeypatch):
    """Every forward of a tree attends to the working rows and what the step added."""
    seen, model = [], loaded()
    own = Decoder.run

    def watched(decoder, tokens, positions, call, *kept):
        if isinstance(call, TreeCall) and decoder is model.model:
            seen.append((int(call.prefix), int(positions.max())))
        return own(decoder, tokens, positions, call, *kept)

    monkeypatch.setattr(Decoder, "run", watched)
    cache = {"chunk": 4, "top_k": 3, "every": 2, "window": 8}
    tree = {"nodes": 6, "depth": 3, "threshold": 0.0}
    profile = profile_of(tree=tree, cache=cache, max_new_tokens=40)
    run(pair_of(loaded(seed=1), model), profile, "specextend", make_prompt(150))
    most = 12 + 2 * 4  # the chosen chunks, and two steps of at most four tokens
    assert max(prefix for prefix, _ in seen) <= most
    assert max(position for _, position in seen) <= most + 3
    assert len(seen) > 90
