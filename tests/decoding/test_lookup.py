"""What lookup finds, against a search written out in Python, and what it learns."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from specx.decoding.lookup import LONGEST, PRIOR, PRIOR_STRENGTH, Lookup, longest_match

CPU = torch.device("cpu")


def found_by_hand(text: list[int]) -> tuple[int, int]:
    """The latest place of the longest agreement, and how long it is."""
    best, place = 0, 0
    for candidate in range(1, len(text)):
        agreed = 0
        while (
            agreed < min(LONGEST, candidate) and text[candidate - 1 - agreed] == text[-1 - agreed]
        ):
            agreed += 1
        if agreed and agreed >= best:
            best, place = agreed, candidate
    return place, best


def lookup_of(text: list[int], depth: int = 5, capacity: int = 60) -> Lookup:
    """After a text of which the last token was emitted."""
    lookup = Lookup(depth, capacity, CPU)
    lookup.begin(torch.tensor(text[:-1], dtype=torch.int64))
    emit(lookup, text[-1:])
    return lookup


def emit(lookup: Lookup, tokens: list[int], padding: int = 3) -> None:
    """As a path has them: the last token repeated behind its end."""
    padded = torch.tensor(tokens + tokens[-1:] * padding)
    lookup.append(padded, torch.tensor(len(tokens)))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_the_longest_agreement_is_found(text):
    lookup = lookup_of(text)
    place, agreed = found_by_hand(text)
    found, agreeing = longest_match(lookup._text, lookup.length, torch.tensor([-5]))
    assert int(agreeing) == agreed
    if agreed:
        assert int(found) == place
        going_on = list(text)
        for _ in range(5):
            going_on.append(going_on[place + len(going_on) - len(text)])
        assert lookup.chain.tolist() == going_on[len(text) :]
        assert torch.isfinite(lookup.weights).all()
    else:
        assert (lookup.weights == -torch.inf).all()


def test_of_equal_places_the_one_that_was_followed_is_taken():
    same = list(range(10, 10 + LONGEST))
    text = [1, *same, 2, 3, *same, 4, 5, *same]
    lookup = lookup_of(text, depth=1)
    assert lookup.chain.tolist() == [4]  # the latest
    followed = torch.tensor([1 + LONGEST])
    assert int(longest_match(lookup._text, lookup.length, followed)[0]) == 1 + LONGEST
    elsewhere = torch.tensor([1])  # agrees in nothing
    assert int(longest_match(lookup._text, lookup.length, elsewhere)[0]) == text.index(4)


@pytest.mark.parametrize("length", [1, 2, 3, LONGEST - 1, LONGEST])
def test_texts_shorter_than_a_suffix(length):
    """All tokens alike agree as far as there is text before."""
    lookup = lookup_of([7] * length)
    _, agreed = longest_match(lookup._text, lookup.length, torch.tensor([0]))
    assert int(agreed) == length - 1
    assert lookup.chain.tolist() == [7] * 5 if length > 1 else float(lookup.gain) == 0


def test_a_text_as_long_as_it_can_be():
    lookup = Lookup(depth=4, capacity=20, device=CPU)
    lookup.begin(torch.tensor([1, 2, 3, 4, 5]))
    for token in [1, 2, 3, 4, 5] * 3:
        emit(lookup, [token], padding=4)
    assert int(lookup.length) == 20
    assert lookup.chain.tolist() == [1, 2, 3, 4]


def chances(lookup: Lookup) -> list[float]:
    """Of each token of the chain, those before it being right."""
    ends = torch.cat([torch.zeros(1), lookup.weights])
    return (ends[1:] - ends[:-1]).exp().tolist()


def test_before_anything_is_known_the_prior_counts():
    lookup = lookup_of([5, 6, 7, 8, 5, 6], depth=LONGEST)
    assert chances(lookup) == pytest.approx([*PRIOR[2:], PRIOR[-1]])
    assert float(lookup.gain) == pytest.approx(sum(lookup.weights.exp().tolist()))


def test_what_was_right_and_wrong_is_learned_by_how_much_agreed():
    lookup = lookup_of([5, 6, 7, 8, 9, 5, 6])
    assert lookup.chain.tolist() == [7, 8, 9, 5, 6]
    emit(lookup, [7, 8, 1])  # two are right behind an agreement of 2 and 3, the third is not
    emit(lookup, [6])  # nothing had been found, so there is nothing to learn
    assert lookup.chain.tolist()[:2] == [7, 8]  # latest place of the one token that agrees
    expected = {
        1: PRIOR[1],
        2: (PRIOR_STRENGTH * PRIOR[2] + 1) / (PRIOR_STRENGTH + 1),
        3: (PRIOR_STRENGTH * PRIOR[3] + 1) / (PRIOR_STRENGTH + 1),
        4: PRIOR_STRENGTH * PRIOR[4] / (PRIOR_STRENGTH + 1),
        5: PRIOR[5],
    }
    assert chances(lookup) == pytest.approx(list(expected.values()))


def test_tokens_behind_the_end_of_a_path_teach_nothing():
    lookup = lookup_of([5, 6, 6, 6, 1, 5, 6], depth=3)
    before = lookup._tried.clone()
    emit(lookup, [6], padding=5)  # its padding repeats the token, as the chain does
    assert (lookup._tried - before).sum() == 1


def test_of_a_chain_that_was_not_followed_to_its_end_the_rest_teaches_nothing():
    lookup = lookup_of([5, 6, 7, 8, 5, 6], depth=3)
    before = lookup._tried.clone()
    emit(lookup, [1, 8, 5])
    assert (lookup._tried - before).tolist() == [0, 0, 1, *[0] * (LONGEST - 2)]


class NothingIsRead(TorchDispatchMode):
    """Fails where the host would wait for a device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "the host waits"
        assert func is not torch.ops.aten.nonzero.default, "the host waits"
        return func(*args, **(kwargs or {}))


def test_the_host_never_waits():
    lookup = lookup_of([5, 6, 7, 8, 5, 6])
    path, count = torch.tensor([7, 8, 8]), torch.tensor(2)
    with NothingIsRead():
        lookup.append(path, count)
        lookup.read(lookup.length - 2, 5)
    with pytest.raises(AssertionError, match="waits"), NothingIsRead():  # control
        int(lookup.length)


def test_the_text_can_be_read_again():
    lookup = lookup_of([5, 6, 7, 8])
    assert lookup.read(torch.tensor([1]), 3).tolist() == [6, 7, 8]
    assert lookup.read(torch.tensor([3]), 200)[0] == 8  # far beyond what is there
