"""Decoders of every family against transformers' own classes, and its configs' defaults."""

import runpy
from pathlib import Path

import pytest
import torch

from specx.models.call import Features, KeptQueries
from specx.models.families import FAMILIES
from specx.ops.contract import HAS_TRITON
from specx.ops.torch.backend import HAS_LLVMLITE, TorchOps
from tests.models.families import (
    AT_ONCE,
    CELLS,
    COMPILED,
    FEATURES,
    LAYER_BY_LAYER,
    LAYERED,
    WINDOW,
    WITH_EXPERTS,
    Cell,
    Pair,
    Text,
    ancestors_of,
    by_speed,
    make_pair,
)
from tests.ops.examples import error, random_parents

TREE = (0, 0, 0, 1, 1, 2, 3, 6)  # parents; the root is its own
LIMIT = 1e-4
ROUNDED_TO_INT8 = 0.25  # ‖error‖ of logits; where scores are not divided, as in Gemma 4, .1
BACKENDS = ("torch", "machine code")
OF_PARTS = (
    "experts beside the MLP",
    "a text part, stacked experts",
    "a text part, a delta rule, experts",
    "a delta rule, joined maps, experts",
    "a delta rule, a dense layer",
)
HAS_EXPERTS = [cell for cell in CELLS if cell.feature in (*WITH_EXPERTS, *OF_PARTS)]
PARTS = [cell for cell in CELLS if cell.feature in ("norms of heads", "shared keys and values")]


EVERY = by_speed(lambda cell: cell.feature in FEATURES)
BY_SLOW = [each for each in by_speed(lambda cell: cell in PARTS) if each[0][0] not in HAS_EXPERTS]
INTERPRETED = HAS_TRITON and not torch.cuda.is_available()  # on a device: tests/gpu
ON_BACKENDS = [
    *by_speed(lambda cell: cell.feature in FEATURES, LAYERED),
    *by_speed(lambda cell: cell.feature in COMPILED, AT_ONCE, name=", machine code"),
]


if INTERPRETED:
    from specx.ops.triton.backend import TritonOps

    TRITON = TritonOps()
    ON_BACKENDS += by_speed(lambda _: False, TRITON, name=", triton")


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory):
    made: dict[str, Pair] = {}

    def pair_of(cell: Cell) -> Pair:
        if str(cell) not in made:
            made[str(cell)] = make_pair(cell, tmp_path_factory.mktemp("model"))
        return made[str(cell)]

    return pair_of


def assert_alike(logits: torch.Tensor, expected: torch.Tensor) -> None:
    assert logits.shape == expected.shape
    error = float((logits - expected).abs().max())
    assert error < LIMIT


@pytest.mark.every(2)
@pytest.mark.parametrize("cell", EVERY)
def test_prefill(pair_of, cell):
    """A prompt at once, in chunks, in rings, and of one row alone."""
    pair = pair_of(cell)
    decoder, prompt = pair.decoder(cell.length), pair.prompt
    (expected,) = pair.expected([prompt.tolist()])
    assert float(expected.std()) > 0.3
    assert_alike(Text(decoder).read(prompt), expected)
    for ahead in (None, 9):
        text = Text(decoder, ahead=ahead)
        assert_alike(torch.cat([text.read(part) for part in prompt.split(7)]), expected)
    text = Text(decoder)
    text.read(prompt[:9], 1)
    assert_alike(text.read(prompt[9:], 3), expected[-3:])


@pytest.mark.every(2)
@pytest.mark.parametrize(("cell", "ops"), ON_BACKENDS)
def test_a_tree_is_kept_and_the_text_goes_on(pair_of, cell, ops):
    """Of 8 rows, that branches; in front of a window's end, across it, and behind it."""
    pair, paths = pair_of(cell), ancestors_of(TREE)
    prompt, decoder = pair.prompt, pair.decoder(cell.length, ops)
    drawn = torch.randint(3, 131, (8,), generator=torch.Generator().manual_seed(8))
    for prefix, rings in ((3, [None]), (WINDOW - 2, [8]), (cell.length - 8, [None, 8])):
        before = prompt[:prefix].tolist()
        texts = [before + drawn[path].tolist() for path in paths]
        after = [*texts[6], *prompt[:3].tolist()]
        found = pair.expected([*texts, after])
        expected = torch.stack([found[row, len(text) - 1] for row, text in enumerate(texts)])
        for ahead in rings:
            text = Text(decoder, ahead=ahead)
            for part in prompt[:prefix].split(8):
                text.read(part, 1)
            assert_alike(text.verify(drawn, list(TREE)), expected)
            some = torch.tensor([1, 5])
            assert_alike(text.verify(drawn, list(TREE), some), expected[some])
            text.keep(paths[6])
            for place, token in enumerate(prompt[:3]):  # token by token
                row = text.verify(token[None], [0], 1)
                text.keep([0])
                assert_alike(row, found[-1, len(texts[6]) + place][None])


@pytest.mark.every(2)
@pytest.mark.parametrize(("cell", "ops"), ON_BACKENDS)
def test_so_it_is_over_keys_and_values_in_8_bits(pair_of, cell, ops):
    """A tree behind a prompt, in rings, and a row behind what is kept of it."""
    pair, paths = pair_of(cell), ancestors_of(TREE)
    prefix, decoder = cell.length - 8, pair.decoder(cell.length, ops)
    drawn = torch.randint(3, 131, (8,), generator=torch.Generator().manual_seed(8))
    texts = [pair.prompt[:prefix].tolist() + drawn[path].tolist() for path in paths]
    found = pair.expected([*texts, [*texts[6], 7]])
    expected = torch.stack([found[row, len(text) - 1] for row, text in enumerate(texts)])
    text = Text(decoder, ahead=8, dtype=torch.int8)
    for part in pair.prompt[:prefix].split(8):
        text.read(part, 1)
    assert error(text.verify(drawn, list(TREE)), expected.double()) < ROUNDED_TO_INT8
    text.keep(paths[6])
    row = text.verify(torch.tensor([7]), [0], 1)
    assert error(row, found[-1, len(texts[6])][None].double()) < ROUNDED_TO_INT8


STATEFUL = [
    cell for cell in CELLS if cell.feature in ("a delta rule", "a delta rule, no positions")
]


@pytest.mark.parametrize("cell", STATEFUL, ids=str)
def test_a_large_tree_behind_a_state(pair_of, cell):
    """Of 16 rows, again and again: nothing of a tree that was dropped is left."""
    pair, decoder = pair_of(cell), pair_of(cell).decoder(cell.length)
    generator = torch.Generator().manual_seed(4)
    text, known = Text(decoder), pair.prompt[:5].tolist()
    text.read(pair.prompt[:5], 1)
    for parents in (random_parents(16, 1), random_parents(16, 2), [0, *range(15)]):
        drawn = torch.randint(3, 131, (16,), generator=generator)
        path = ancestors_of(tuple(parents))[int(torch.randint(16, (1,), generator=generator))]
        texts = [known + drawn[way].tolist() for way in ancestors_of(tuple(parents))]
        found = pair.expected(texts)
        expected = torch.stack([found[row, len(each) - 1] for row, each in enumerate(texts)])
        assert_alike(text.verify(drawn, parents), expected)
        text.verify(drawn.flip(0), parents)  # is dropped
        assert_alike(text.verify(drawn, parents), expected)
        text.keep(path)
        known += drawn[path].tolist()
    assert_alike(text.read(pair.prompt[:3], 1), pair.expected([known + pair.prompt[:3].tolist()])[
        :, len(known) + 2
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_prefill_by_triton(pair_of, cell):
    pair = pair_of(cell)
    (expected,) = pair.expected([pair.prompt.tolist()])
    text = Text(pair.decoder(cell.length, TRITON), ahead=9)
    assert_alike(torch.cat([text.read(part) for part in pair.prompt.split(9)]), expected)


@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")
@pytest.mark.parametrize("feature", ["two of six experts", "experts beside the MLP"])
def test_what_torch_computes_is_not_said_to_be_row_invariant(pair_of, feature):
    pair = pair_of(next(cell for cell in CELLS if cell.feature == feature))
    assert pair.decoder(40, TRITON).row_invariant
    assert not pair.decoder(40).row_invariant  # in torch


@pytest.mark.skipif(not HAS_LLVMLITE, reason="llvmlite is not installed")
@pytest.mark.parametrize("cell", BY_SLOW)
def test_machine_code_serves_what_the_page_says(pair_of, cell):
    decoder = pair_of(cell).decoder(cell.length, AT_ONCE)
    assert decoder.has_fused_forward == (cell.feature not in LAYER_BY_LAYER)


@pytest.mark.parametrize("cell", BY_SLOW)
def test_rows_depend_on_what_they_see_and_on_positions(pair_of, cell):
    """No token behind a row, or beside it in a tree, matters; its position does, as it should."""
    pair = pair_of(cell)
    decoder, prompt = pair.decoder(cell.length), pair.prompt
    whole = Text(decoder).read(prompt)
    changed = torch.cat([prompt[:-4], prompt[-4:].flip(0)])
    assert_alike(Text(decoder).read(changed)[:-4], whole[:-4])
    text, alone = Text(decoder), Text(decoder)
    for each in (text, alone):
        each.read(prompt[:-8], 1)
    both, path = text.verify(prompt[-8:], list(TREE)), ancestors_of(TREE)[7]
    assert_alike(alone.verify(prompt[-8:][path], [0, 0, 1, 2, 3]), both[path])

    later = Text(decoder)  # the first token at 0, the others from 8 on
    later.read(prompt[:1], 1)
    given = [0, *range(8, cell.length)]
    ids = prompt[: len(given)]
    with torch.no_grad():
        expected = pair.oracle(
            ids[None],
            position_ids=torch.tensor([given]),
            attention_mask=torch.ones(1, len(ids)),  # else a jump would begin another text
            use_cache=False,
        )
    read = later.read(ids[1:], shift=7)
    assert_alike(read[: WINDOW - 1], expected.logits[0, 1:WINDOW])
    if decoder.spec.ropes:
        assert float((read - whole[1 : len(ids)]).abs().max()) > 10 * LIMIT


@pytest.mark.parametrize("cell", PARTS, ids=str)
@pytest.mark.parametrize("kept", [0, 1, 3])
def test_queries_of_several_layers_are_kept(pair_of, cell, kept):
    """With the sums of their own attention, whichever rows and layers have logits."""
    pair = pair_of(cell)
    decoder, prompt = pair.decoder(cell.length), pair.prompt
    last = len(decoder.layers) - 1
    found = []
    for rows in (kept, torch.tensor([0, 4]), 0):
        watched = [watch(decoder, layer) for layer in (last, 0)]
        text, options = Text(decoder), {"recorded": tuple(watched[:2])}
        text.read(prompt[:-8], kept, **options)
        of_prompt = [each.queries.clone() for each in watched]
        text.verify(prompt[-8:], list(TREE), rows, **options)
        found.append([*of_prompt, *(part for w in watched for part in (w.queries, w.lse))])
    for parts in zip(*found, strict=True):
        for part in parts[:-1]:
            torch.testing.assert_close(part, parts[-1], atol=1e-5, rtol=1e-4)
    # A row of a tree sees 32 rows before it, and those of its path.
    attention = decoder.spec.layers[0].attention
    if attention.window is None and not attention.softcap:
        keys = text.storage[0][0].repeat_interleave(attention.query_heads // attention.kv_heads, 0)
        seen = [*range(cell.length - 8), *(cell.length - 8 + row for row in ancestors_of(TREE)[7])]
        scores = (keys[:, seen] @ watched[1].queries[:, 7, :, None])[..., 0] * attention.scaling
        torch.testing.assert_close(watched[1].lse[:, 7], scores.logsumexp(-1))


def watch(decoder, layer):
    attention = decoder.spec.layers[layer].attention
    queries = torch.zeros(attention.query_heads, 8, attention.head_dim)
    return KeptQueries(layer, queries, torch.zeros(attention.query_heads, 8))


@pytest.mark.parametrize("cell", PARTS, ids=str)
@pytest.mark.parametrize("kept", [0, 1])
def test_hidden_states_are_noted(pair_of, cell, kept):
    """The inputs of layers and the normed output, of all rows, however few have logits."""
    pair = pair_of(cell)
    decoder, prompt = pair.decoder(cell.length), pair.prompt
    with torch.no_grad():
        oracle = pair.oracle(prompt[None], use_cache=False, output_hidden_states=True)
    states, hidden = [each[0] for each in oracle.hidden_states], decoder.spec.hidden
    last = len(decoder.layers) - 1
    for layers in ((0, last), ()):
        features = Features(layers, hidden, cell.length, decoder.dtype, decoder.device)
        logits = Text(decoder).read(prompt, kept, features=features)
        expected = torch.cat([states[layer] for layer in layers or (-1,)], -1)
        assert_alike(features.rows, expected)
        assert_alike(logits, oracle.logits[0, -kept:])


# Granite with windows rounds what attention returns before sinks scale it.
ROUNDED = [each for each in BY_SLOW if each[0][0].family != "granite_swa"]


@pytest.mark.parametrize("cell", ROUNDED)
def test_half_precision_rounds_as_transformers_does(cell, tmp_path):
    """Of one token, where attention has nothing to sum: all but a few bits are the same."""
    pair = make_pair(cell, tmp_path, torch.bfloat16)
    decoder, tokens = pair.decoder(cell.length, TorchOps()), range(3, 20)
    with torch.no_grad():
        expected = [pair.oracle(torch.tensor([[t]]), use_cache=False).logits[0] for t in tokens]
    found = [Text(decoder).read(torch.tensor([token])) for token in tokens]
    alike = [torch.equal(*each) for each in zip(found, expected, strict=True)]
    assert sum(alike) >= len(alike) - 2


@pytest.mark.slow
@pytest.mark.parametrize("cell", HAS_EXPERTS, ids=str)
def test_experts_in_half_precision_are_as_close_as_those_of_transformers(cell, tmp_path):
    """To float32 with the same weights: scores and sums are not rounded, which no class shares."""
    pair = make_pair(cell, tmp_path, torch.bfloat16)
    decoder, tokens = pair.decoder(cell.length, TorchOps()), range(3, 40)
    found = torch.cat([Text(decoder).read(torch.tensor([token])) for token in tokens])
    ids = torch.tensor(tokens)[:, None]
    with torch.no_grad():
        theirs = pair.oracle(ids, use_cache=False).logits[:, 0]
        exact = pair.oracle.float()(ids, use_cache=False).logits[:, 0]
    ours, other = ((each - exact).norm(dim=1).median() for each in (found, theirs))
    assert float(ours) < 1.1 * float(other)


@pytest.mark.slow
@pytest.mark.parametrize("ops", [LAYERED, AT_ONCE], ids=BACKENDS)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_text_is_that_of_generate(pair_of, cell, ops):
    pair = pair_of(cell)
    for seed in range(3):
        prompt = torch.randint(3, 131, (9 + seed,), generator=torch.Generator().manual_seed(seed))
        written = pair.written(prompt)
        text, ids = Text(pair.decoder(cell.length, ops)), prompt
        logits = text.read(prompt, 1)
        while len(ids) < cell.length:
            ids = torch.cat([ids, logits.argmax(-1)])
            logits = text.verify(ids[-1:], [0])
            text.keep([0])
        assert ids.tolist() == written


def test_every_family_has_a_cell():
    assert {cell.family for cell in CELLS} == set(FAMILIES)


def test_what_is_said_of_cells_is_said_of_some():
    """A name that no cell has would mean nothing."""
    known = {cell.feature for cell in CELLS}
    assert not (COMPILED | FEATURES | LAYER_BY_LAYER) - known


def test_the_page_is_current():
    script = Path(__file__).parents[2] / "docs" / "models_table.py"
    page = runpy.run_path(str(script))
    text = page["PAGE"].read_text(encoding="utf-8")
    assert page["page"](text) == text, "run: python docs/models_table.py"
