"""Medusa: heads of the public layout, and the trees that they draft."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import silu

from specx.bench.baselines.medusa import (
    FILES,
    MedusaDrafter,
    head_chances,
    load_medusa,
    scaled_heads,
)
from specx.bench.methods import find_methods, fitted
from specx.decoding.target import Target
from specx.errors import ModelError
from tests.bench.baselines.drafting import check, resolved, small_profile
from tests.bench.settings import tiny_case, tiny_setting
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run
from tests.decoding.test_lossless import SURE
from tests.ops.test_trees import paths_of
from tests.tiny import VOCAB

HEADS, BLOCKS, SIZE = 3, 2, 64


def weights(*, lm_heads: bool = True, seed: int = 0) -> dict[str, Tensor]:
    """A checkpoint as FasterDecoding's code writes it."""
    make = torch.Generator().manual_seed(seed)
    found = {}
    for head in range(HEADS):
        for block in range(BLOCKS):
            found[f"{head}.{block}.linear.weight"] = torch.randn(SIZE, SIZE, generator=make) / 8
            found[f"{head}.{block}.linear.bias"] = torch.randn(SIZE, generator=make) / 8
        if lm_heads:
            found[f"{head}.{BLOCKS}.weight"] = torch.randn(VOCAB, SIZE, generator=make)
    return found


def write(folder: Path, tensors: dict[str, Tensor], name: str = FILES[0]) -> str:
    folder.mkdir(exist_ok=True)
    if name.endswith(".pt"):
        torch.save(tensors, folder / name)
    else:
        save_file(tensors, folder / name)
    return str(folder)


def expected_logits(tensors: dict[str, Tensor], state: Tensor, lm_head: Tensor) -> list[Tensor]:
    """The heads, written out."""
    found = []
    for head in range(HEADS):
        x = state
        for block in range(BLOCKS):
            weight = tensors[f"{head}.{block}.linear.weight"]
            x = x + silu(weight @ x + tensors[f"{head}.{block}.linear.bias"])
        found.append(tensors.get(f"{head}.{BLOCKS}.weight", lm_head) @ x)
    return found


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("lm_heads", "modules"), [(True, False), (False, False), (False, True)])
def test_heads_are_what_the_layout_says(tmp_path, name, lm_heads, modules):
    target, tensors = loaded(**SURE, modules=modules), weights(lm_heads=lm_heads)
    assert target.hidden_size == SIZE
    heads = load_medusa(write(tmp_path, tensors, name), target)
    states = torch.randn(5, SIZE, generator=torch.Generator().manual_seed(1))
    _, lm_head = target.vocabulary_weights
    for row, state in enumerate(states):
        for ours, theirs in zip(
            heads(states), expected_logits(tensors, state, lm_head), strict=True
        ):
            assert torch.allclose(ours[row], theirs, atol=1e-4)


def without(name):
    tensors = weights()
    del tensors[name]
    return tensors


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (without("1.0.linear.bias"), r"such as 1\.0\.linear\.bias"),
        (without("2.2.weight"), r"such as 2\.2\.weight"),
        ({**weights(), "fc.weight": torch.ones(1)}, r"such as fc\.weight"),
        ({**weights(), "0.7.weight": torch.ones(1, 1)}, r"such as 0\.7\.weight"),
        ({**weights(), "0.1.linear.bias": torch.ones(3)}, r"0\.1\.linear\.bias of shape \[3\]"),
        (
            {**weights(), **{f"{n}.2.weight": torch.ones(7, SIZE) for n in range(3)}},
            r"0\.2\.weight of shape \[7, 64\]",
        ),
        ({"0.0.weight": torch.ones(1, 1)}, r"lacks the tensor 0\.0\.linear\.weight"),
    ],
)
def test_wrong_checkpoints_are_refused_by_key(tmp_path, tensors, message):
    with pytest.raises(ModelError, match=message):
        load_medusa(write(tmp_path, tensors), loaded(**SURE))


def test_folders_without_heads(tmp_path):
    with pytest.raises(ModelError, match="has no medusa_lm_head"):
        load_medusa(str(tmp_path), loaded())
    (tmp_path / FILES[1]).write_bytes(b"no tensors")
    with pytest.raises(ModelError, match="damaged"):
        load_medusa(str(tmp_path), loaded())
    write(tmp_path, [torch.ones(1)], FILES[1])
    with pytest.raises(ModelError, match="without a dictionary of named tensors"):
        load_medusa(str(tmp_path), loaded())


SHAPE = ((0,), (1,), (0, 0), (0, 2), (1, 0), (0, 0, 1))


@pytest.mark.parametrize("choices", [None, SHAPE])
def test_the_text_is_the_targets_own(tmp_path, choices):
    pair, profile = pair_of(loaded(**SURE)), small_profile()
    heads = load_medusa(write(tmp_path, weights(lm_heads=False)), pair.target)
    check(
        lambda n: MedusaDrafter(resolved(profile, pair), pair, heads, choices, n),
        pair,
        profile,
        make_prompt(60),
    )


def test_drafts_are_of_the_last_token_that_was_read(tmp_path):
    pair, text, root = pair_of(loaded(**SURE)), make_prompt(30), 5
    tensors = weights()
    heads = load_medusa(write(tmp_path, tensors), pair.target)
    target = Target(pair.target, 100, None)
    target.keep_features(())
    list(target.prefill(torch.tensor(text)))
    state = target.features.rows[len(text) - 1].clone()
    logits = expected_logits(tensors, state, torch.zeros(0))
    best = [each.masked_fill(~pair.target_allowed, -torch.inf).topk(3).indices for each in logits]

    def drafts(choices, nodes):
        profile = make_profile(tree={"nodes": nodes, "depth": 1, "threshold": 0})
        drafter = MedusaDrafter(resolved(profile, pair), pair, heads, choices, 0)
        list(drafter.prefill(torch.tensor(text), target))
        return set(paths_of(drafter.grow(torch.tensor([root]))))

    fixed = {tuple(int(best[n][rank]) for n, rank in enumerate(path)) for path in SHAPE}
    assert drafts(SHAPE, 9) == fixed
    joint = drafts(None, 9)
    shares = [each.masked_fill(~pair.target_allowed, -torch.inf).softmax(-1) for each in logits]
    singles = {(token,): float(shares[0][token]) for token in range(VOCAB)}
    pairs = {
        (a, b): singles[a,] * float(shares[1][b]) for a in best[0].tolist() for b in range(VOCAB)
    }
    worth = sorted([*singles.values(), *pairs.values()])[-9]
    assert len(joint) == 9
    assert all({**singles, **pairs}.get(path, 1) >= worth * 0.999 for path in joint)


def test_chances_are_counted_by_head_and_rank(tmp_path):
    """Heads that are the target's own lm head guess the token at hand once more."""
    pair, prompt = pair_of(loaded(**SURE)), make_prompt(40)
    output = run(pair, make_profile(max_new_tokens=30), "plain", prompt).tokens
    tensors = {name: torch.zeros_like(part) for name, part in weights(lm_heads=False).items()}
    heads = load_medusa(write(tmp_path, tensors), pair.target)
    counted = range(len(output) - HEADS - 1)
    found = head_chances(heads, pair, [(prompt, output)], 2)
    for head in range(HEADS):
        same = [output[place] == output[place + head + 1] for place in counted]
        assert found[head][0] == pytest.approx(sum(same) / len(same))


def test_scaled_heads_guess_the_same(tmp_path, monkeypatch):
    from dataclasses import replace

    from specx.bench.baselines import medusa

    target = loaded(**SURE)
    small = load_medusa(write(tmp_path, weights(lm_heads=False)), target)
    monkeypatch.setattr(medusa, "load_medusa", lambda *_: small)
    lm_head = torch.nn.Linear(2 * SIZE, VOCAB, bias=False)
    lm_head.weight.data[:, :SIZE] = target.vocabulary_weights[1]

    class Large:
        embed, logits = None, lm_head

    large = scaled_heads(replace(target, model=Large(), hidden_size=2 * SIZE), SIZE)
    states = torch.randn(4, SIZE)
    wide = torch.cat([states, torch.zeros_like(states)], 1)
    for ours, theirs in zip(large(wide), small(states), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)


def test_by_its_name(tmp_path, monkeypatch):
    folder = write(tmp_path, weights(lm_heads=False))
    setting, case = tiny_setting(max_new_tokens=12), tiny_case(60)
    written = [(case.ids, (5,) * 20)]
    monkeypatch.setattr(fitted, "written_by_target", lambda *_, **__: written)
    names = f"plain,medusa:heads={folder},medusa-joint:heads={folder},nodes=4"
    plain, fixed, joint = find_methods(names, setting.profile)
    runs = [method.run(setting, case) for method in (plain, fixed, joint)]
    assert len({each.output for each in runs}) == 1
    assert len(runs[1].facts["chances"]) == HEADS
    assert runs[1].facts["shape"]
