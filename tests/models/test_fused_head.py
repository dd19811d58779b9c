"""Heads through kernels, a CPU's and Triton's, against their own modules in float64.

``engine/test_head_drafter.py`` has the same heads against the published definitions.
"""

import copy

import pytest
import torch
from torch import nn

from specx.kernels.ancestors import AncestorMask, chain_sets
from specx.kernels.ops import HAS_TRITON
from specx.kernels.torch.backend import CpuOps, TorchOps
from specx.models import head_modules
from specx.models.call import PrefillCall, SlotMapping, TreeCall
from specx.models.fused_head import FusedHead, fuse_head
from specx.models.fused_layers import Fused, is_fused, unfused
from tests.engine.test_head_drafter import CASES
from tests.heads import DIM, KV, head_target, load_modules, make_head_file
from tests.models.test_fused_layers import AttendsInAnotherWay

PREFIX, CAPACITY, STATES = 21, 90, 13
BACKENDS = ["cpu"]
if HAS_TRITON and not torch.cuda.is_available():  # tests/gpu runs the real kernels
    from tests.models.test_fused_layers import InterpretedOps

    BACKENDS.append("triton")


@pytest.fixture
def modules(monkeypatch, tmp_path):
    """Load a head of some layout as it is before it is fused, in float32."""
    monkeypatch.setattr(head_modules, "fuse_head", lambda *_: None)

    def one(layout, **flags):
        return load_modules(
            make_head_file(layout, **flags).write(tmp_path / "head"), head_target()
        ).model

    return one


def pair_of(modules, case, backend):
    """A head through kernels, and its modules in float64."""
    layout, flags = CASES[case]
    head = copy.deepcopy(modules(layout, **flags))  # its target's modules are shared by tests
    for weight in head.parameters():  # the target's lm head lies as a CPU reads it
        weight.data = weight.data.contiguous()
    exact = copy.deepcopy(head).double()
    ops = CpuOps() if backend == "cpu" else InterpretedOps()
    fuse_head(head, ops)
    assert is_fused(head)
    assert isinstance(head.forward, FusedHead)
    return head, exact, ops


def one_pass(head, count, ops, *, kind=TreeCall, rows=0, parents=False, window=None):
    """States, logits and the storage of a pass over a chain behind a prefix."""
    generator = torch.Generator().manual_seed(3)
    dtype, config = head.fc.weight.dtype, head.config
    tokens = torch.randint(0, 300, (count,), generator=generator)
    features = torch.randn(STATES if parents else count, head.spec.width, generator=generator)
    places = torch.randint(0, STATES, (count,), generator=generator) if parents else None
    shape = (config.num_hidden_layers, 2, KV, CAPACITY, DIM)
    storage = torch.randn(shape, generator=generator).to(dtype)
    settings = {"past": PREFIX, "window": window}
    if issubclass(kind, TreeCall):
        mask = AncestorMask(chain_sets(count, tokens.device), count)
        settings = {"prefix": torch.tensor([PREFIX]), "mask": mask}
    mapping = SlotMapping(storage, PREFIX + torch.arange(count))
    call = kind(ops=ops, mapping=mapping, **settings)
    with torch.no_grad():
        states = head.project(features[None].to(dtype))
        positions = PREFIX + torch.arange(count)[None]
        out, logits = head(tokens[None], states, positions, rows, places, specx_call=call)
    return out[0], logits[0], storage


def assert_alike(results, expected):
    for actual, exact in zip(results, expected, strict=True):
        assert actual.shape == exact.shape
        torch.testing.assert_close(actual.double(), exact.double(), rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_levels(case, backend, modules):
    head, exact, ops = pair_of(modules, case, backend)
    for count, parents in ((1, True), (5, True), (10, False)):
        results = one_pass(head, count, ops, parents=parents)
        assert_alike(results, one_pass(exact, count, TorchOps(), parents=parents))


@pytest.mark.parametrize("kind", [TreeCall, PrefillCall])
@pytest.mark.parametrize("rows", [1, torch.tensor([4]), torch.tensor([0, 2]), None])
@pytest.mark.parametrize(
    "case", ["eagle", "speculators, two layers", "speculators, normed residual"]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_some_rows_are_asked_for(case, backend, rows, kind, modules):
    """All keys and values are stored; of the last layer nothing else is computed in vain."""
    head, exact, ops = pair_of(modules, case, backend)
    options = {"kind": kind, "rows": rows, "window": 4}
    results = one_pass(head, 7, ops, **options)
    assert_alike(results, one_pass(exact, 7, TorchOps(), **options))
    asked = {None: 0, 1: 1}[rows] if not isinstance(rows, torch.Tensor) else len(rows)
    assert len(results[0]) == len(results[1]) == asked


@pytest.mark.parametrize("case", ["eagle", "speculators, biases", "specforge"])
def test_weights_are_there_once(case, modules):
    layout, flags = CASES[case]
    head = copy.deepcopy(modules(layout, **flags))
    before = {name: weight.clone() for name, weight in head.state_dict().items()}
    fuse_head(head, CpuOps())
    after = head.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    kept = {w.untyped_storage().data_ptr(): w.untyped_storage().nbytes() for w in after.values()}
    assert sum(kept.values()) == sum(weight.nbytes for weight in before.values())
    kernels = head.layers[0].forward.kernels
    for each in (
        kernels._heads,
        kernels._out,
        kernels._gate_up,
        kernels._down,
        head.fc.forward.product,
    ):
        own = each._weight if hasattr(each, "_weight") else each._weights.weight
        assert own.untyped_storage().data_ptr() in kept
    forward = head.forward
    fuse_head(head, CpuOps())
    assert head.forward is forward


def test_the_modules_can_be_put_back(modules):
    head, exact, ops = pair_of(modules, "specforge", "cpu")
    fused = [m for m in head.modules() if isinstance(vars(m).get("forward"), Fused)]
    assert len(fused) == 4  # the head, its layer, its projection and its lm head
    with unfused(head):
        assert not is_fused(head)
        assert_alike(one_pass(head, 5, ops), one_pass(exact, 5, TorchOps()))
    assert is_fused(head)


def test_calls_of_other_classes_are_left_to_the_modules(modules, monkeypatch):
    head, exact, ops = pair_of(modules, "speculators, two layers", "cpu")
    monkeypatch.setattr(FusedHead, "run", lambda *_: pytest.fail("not for this pass"))
    expected = one_pass(exact, 5, TorchOps(), kind=AttendsInAnotherWay, parents=True)
    assert_alike(one_pass(head, 5, ops, kind=AttendsInAnotherWay, parents=True), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head.double(),
        lambda head: setattr(head.config, "hidden_act", "gelu"),
        lambda head: setattr(head, "embed_tokens", Scaled(400, 64)),
        lambda head: setattr(head.layers[0], "mlp", nn.Identity()),
        lambda head: head.rotary_emb.double(),
    ],
)
def test_what_is_not_known_is_left_alone(change, modules):
    head = copy.deepcopy(modules("specforge"))
    change(head)
    fuse_head(head, CpuOps())
    assert not any("forward" in vars(module) for module in head.modules())


class Scaled(nn.Embedding):
    """Looks up in a way of its own."""
