"""Decoders of every family against transformers' own classes, and its configs' defaults."""

import pytest
import torch

from specx.models.families import FAMILIES
from tests.models.families import CELLS, WINDOW, Cell, Pair, Text, ancestors_of, make_pair

TREE = (0, 0, 0, 1, 1, 2, 3, 6)  # parents; the root is its own
LIMIT = 1e-4
ONE_EACH = [cell for cell in CELLS if cell.is_first]  # a cell for each feature, for every run
EVERY = [
    pytest.param(cell, marks=() if cell in ONE_EACH else pytest.mark.slow, id=str(cell))
    for cell in CELLS
]


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
    assert float((logits - expected).abs().max()) < LIMIT


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


@pytest.mark.parametrize("cell", EVERY)
def test_a_tree_is_kept_and_the_text_goes_on(pair_of, cell):
    """Of 8 rows, that branches; in front of a window's end, across it, and behind it."""
    pair = pair_of(cell)
    decoder, prompt = pair.decoder(cell.length), pair.prompt
    drawn = torch.randint(3, 131, (8,), generator=torch.Generator().manual_seed(8))
    paths = ancestors_of(TREE)
    for prefix in (3, WINDOW - 2, cell.length - 8):
        before = prompt[:prefix].tolist()
        texts = [before + drawn[path].tolist() for path in paths]
        after = [*texts[6], *prompt[:3].tolist()]
        found = pair.expected([*texts, after])
        expected = torch.stack([found[row, len(text) - 1] for row, text in enumerate(texts)])
        for ahead in (None, 8):
            text = Text(decoder, ahead=ahead)
            for part in prompt[:prefix].split(8):
                text.read(part, 1)
            assert_alike(text.verify(drawn, list(TREE)), expected)
            text.verify(drawn, list(TREE), torch.tensor([1, 5]))
            text.keep(paths[6])
            rest = text.read(prompt[:3])
            assert_alike(rest, found[-1, len(texts[6]) : len(after)])


def test_every_family_has_a_cell():
    assert {cell.family for cell in CELLS} == set(FAMILIES)
