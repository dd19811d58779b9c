"""Trees of one shape: the best there are, and drafted as they are meant."""

from functools import cache
from itertools import product
from math import prod

import pytest
import torch

from specx.bench.baselines.static_tree import (
    StaticDrafter,
    Topology,
    best_shape,
    expanded_shape,
)
from specx.bench.methods import find_methods, fitted
from specx.bench.methods.stock import stock
from specx.decoding.target import Target
from specx.errors import UsageError
from tests.bench.baselines.drafting import check, likely_pair, resolved, small_profile
from tests.bench.tiny_benches import tiny_bench
from tests.decoding.pairs import make_prompt
from tests.ops.test_trees import paths_of

BY_RANK = [0.5, 0.25, 0.125, 0.0]
BY_DEPTH = [[0.6, 0.1, 0.2], [0.5, 0.3, 0.0], [0.9, 0.05, 0.05]]


def worth(chances, shape) -> float:
    return sum(prod(chances[n][rank] for n, rank in enumerate(path)) for path in shape)


def best_by_dynamic_program(chances, nodes: int) -> float:
    """Sequoia's own recursion: how many nodes each child's subtree gets."""

    @cache
    def below(depth: int, left: int, rank: int) -> float:
        if not left or depth == len(chances) or rank == len(chances[depth]):
            return 0.0
        rest = [below(depth, left, rank + 1)]
        for own in range(1, left + 1):
            subtree = chances[depth][rank] * (1 + below(depth + 1, own - 1, 0))
            rest.append(subtree + below(depth, left - own, rank + 1))
        return max(rest)

    return below(0, nodes, 0)


@pytest.mark.parametrize("chances", [[BY_RANK] * 4, BY_DEPTH])
@pytest.mark.parametrize("nodes", [1, 2, 5, 13])
def test_the_best_shape_is_that_of_the_dynamic_program(chances, nodes):
    shape = best_shape(chances, nodes)
    assert worth(chances, shape) == pytest.approx(best_by_dynamic_program(chances, nodes))
    assert all(path[:-1] in {(), *shape} for path in shape)
    assert len(shape) <= nodes


@pytest.mark.parametrize("nodes", [1, 3, 7, 15])
def test_the_best_expansion_is_the_best_of_all(nodes):
    found = 0.0
    for length in (1, 2, 3):
        for widths in product((1, 2, 3), repeat=length):
            levels = [widths[: n + 1] for n in range(length)]
            shape = [path for level in levels for path in product(*map(range, level))]
            if len(shape) <= nodes:
                found = max(found, worth(BY_DEPTH, shape))
    shape = expanded_shape(BY_DEPTH, nodes)
    assert worth(BY_DEPTH, shape) == pytest.approx(found)
    assert len(shape) <= nodes


def test_nodes_that_are_never_reached_are_left_out():
    assert best_shape([[1.0, 0.0]] * 3, 9) == ((0,), (0, 0), (0, 0, 0))
    assert best_shape([[0.0, 0.0]], 9) == ((0,),)
    assert expanded_shape([[0.0]], 9) == ((0,),)


SHAPES = {
    "one": ((0,),),
    "chain": ((0,), (0, 0), (0, 0, 0)),
    "no first": ((1,), (1, 2)),
    "wide": tuple(sorted(best_shape([BY_RANK] * 3, 20), key=lambda path: (len(path), path))),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_nodes_are_the_drafts_own_choices(shape):
    """Held against the choices after each path, read one after the other."""
    pair, profile = likely_pair(), small_profile({"policy": "full", "window": None})
    text, root = make_prompt(30), 5
    drafter = StaticDrafter(resolved(profile, pair), pair, shape, 200)
    list(drafter.prefill(torch.tensor(text), Target(pair.target, len(text), None)))
    drafter.pend(torch.tensor([root]), torch.tensor(1))
    tree = drafter.grow(torch.tensor([root]))

    @torch.no_grad()
    def choice(path, rank: int) -> int:
        tokens = torch.tensor([[*text, root, *path]])
        with stock(likely_pair().draft) as model:
            logits = model(input_ids=tokens).logits[0, -1].float()
        logits = logits.masked_fill(~pair.draft_allowed, -torch.inf)
        return int(logits.topk(rank + 1).indices[rank])

    expected = set()
    for path in shape:
        tokens = ()
        for rank in path:
            tokens += (choice(tokens, rank),)
        expected.add(tokens)
    assert set(paths_of(tree)) == expected
    assert tree.nodes == len(shape)


@pytest.mark.parametrize("shape", ["wide"])
def test_the_text_is_the_targets_own(shape):
    pair, profile = likely_pair(), small_profile()
    check(
        lambda n: StaticDrafter(resolved(profile, pair), pair, SHAPES[shape], n),
        pair,
        profile,
        make_prompt(60),
    )


def test_padding_of_narrow_levels():
    shape = Topology.of(((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)), torch.device("cpu"))
    assert (shape.width, shape.ranks) == (2, 2)
    assert [len(place) for place, _ in shape.read] == [2, 2]
    assert [len(place) for place, _ in shape.nodes] == [2, 3, 1]


def test_shapes_are_fitted_once_to_what_was_measured(monkeypatch):
    monkeypatch.setattr(fitted, "TOKENS", 16)
    bench = tiny_bench("plain,sequoia:nodes=6,specinfer:nodes=6", output=12)
    (case,) = bench.all_cases()
    runs = [method.run(bench.setting(case), case) for method in bench.methods]
    assert len({run.output for run in runs}) == 1
    assert all(run.acceptance_length > 1 for run in runs[1:])
    chances = runs[1].facts["chances"]
    assert chances[0] > max(0.3, *chances[1:])  # the draft is often right
    assert sum(chances) <= 1
    shape = [tuple(path) for path in runs[1].facts["shape"]]
    assert shape == list(best_shape([chances] * 3, 6))
    monkeypatch.setattr(fitted, "force", None)
    assert bench.methods[1].run(bench.setting(case), case).facts["chances"] == chances


def test_a_tree_that_is_chosen_has_no_shape():
    with pytest.raises(UsageError, match="`tree: auto`, which has no keys"):
        find_methods("sequoia", small_profile().changed(tree="auto"))
