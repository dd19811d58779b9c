"""Parts of the CPU's kernels that ``test_ops.py`` does not reach."""

import pytest
import torch

from specx.ops.ancestors import AncestorMask, chain_sets
from specx.ops.layers import LinearMap
from specx.ops.native import HAS_LLVMLITE
from specx.ops.torch import attention, cpu_attention, cpu_layer
from specx.ops.torch.backend import CpuOps
from specx.ops.torch.cpu_layer import FLAT, LARGE, CpuLayer, cpu_product, prepack
from tests.models.families import decoder_of
from tests.ops import reference
from tests.ops.examples import attend_to_tree, error, make_inputs
from tests.ops.reference import visible_of
from tests.tiny import make_model

VISIBLE = visible_of([0, 0, 1, 1, 3])


def attended(ops=None, **options):
    """Error of attention behind 40 rows, and of its log-sum-exp, against float64."""
    inputs = make_inputs(5, 45, dtype=torch.float32, ratio=2, **options)
    out, lse = attend_to_tree(ops or CpuOps(), inputs, 40, VISIBLE)
    seen = reference.tree_mask(40, VISIBLE)
    exact, total = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    return error(out, exact), float((lse.double() - total).abs().max())


@pytest.mark.parametrize("at_once", [1, 2 * 5 * 45, 4 * 5 * 45])
def test_key_heads_may_be_computed_in_several_parts(at_once, monkeypatch):
    monkeypatch.setattr(cpu_attention, "AT_ONCE", at_once)
    out, lse = attended()
    assert out < 1e-6
    assert lse < 1e-5


def test_scores_that_are_too_many_are_not_written_out(monkeypatch):
    calls, generic = [], attention.tree_attention
    monkeypatch.setattr(cpu_attention, "MOST", 2 * 5 * 45 - 1)
    monkeypatch.setattr(
        attention, "tree_attention", lambda *a, **k: calls.append(a) or generic(*a, **k)
    )
    assert attended()[0] < 1e-6
    assert len(calls) == 1


def test_the_log_sum_exp_is_computed_where_it_is_needed_alone():
    rows = torch.randn(2, 20, 16)
    mask = AncestorMask(chain_sets(3, rows.device), 3)
    given = torch.randn(4, 3, 16), rows, rows, torch.tensor([10]), mask, 0.25
    out, lse = CpuOps().tree_attention(*given)
    assert lse is not None
    again, none = CpuOps().tree_attention(*given, needs_lse=False)
    assert none is None
    assert torch.equal(out, again)


@pytest.mark.parametrize("shape", [(8, 3), (3, 8), (2, FLAT * 2)])
@pytest.mark.parametrize("reads_lines", [False, True])
def test_a_weight_is_arranged_without_changing_it(shape, reads_lines, monkeypatch):
    """By columns for MKL, row by row for machine code with short vectors."""
    monkeypatch.setattr(cpu_layer, "reads_lines", lambda _: reads_lines)
    weight = torch.randn(shape)
    laid_out = prepack(weight)
    assert torch.equal(laid_out, weight)
    stays = reads_lines or shape == (2, FLAT * 2)
    assert laid_out.stride() == (weight.stride() if stays else (1, shape[0]))
    assert prepack(laid_out).stride() == laid_out.stride()


@pytest.fixture(params=[True, False], ids=["intel", "other"])
def intel(request, monkeypatch):
    """Processors of Intel, where MKL does more."""
    monkeypatch.setattr(cpu_layer, "is_intel", lambda: request.param)
    monkeypatch.setattr(cpu_layer, "has_onednn", lambda: True)
    monkeypatch.setattr(cpu_layer, "reads_lines", lambda _: False)
    monkeypatch.setattr(cpu_layer, "LARGE_ON_INTEL", 4 * LARGE)
    return request.param


def test_a_large_weight_stays_row_by_row(intel):
    for numbers in (LARGE // 2, LARGE, 4 * LARGE):
        weight = torch.empty(numbers // 256, 256)
        stays = numbers >= (4 * LARGE if intel else LARGE)
        assert (prepack(weight) is weight) == stays


@pytest.mark.skipif(not cpu_layer.has_onednn(), reason="torch has no oneDNN here")
@pytest.mark.parametrize("rows", [1, 2, 33])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.usefixtures("intel")
def test_products_with_large_weights(rows, biased):
    """Also of rows that do not lie side by side, and of parameters."""
    weight = torch.nn.Parameter(torch.randn(4 * LARGE // 512, 512))
    bias = torch.randn(len(weight)) if biased else None
    product = cpu_product(LinearMap(weight, bias))
    x = torch.randn(rows, 1024)[:, ::2]
    exact = x.double() @ weight.detach().double().t()
    if bias is not None:
        exact += bias.double()
    out = product(x)
    assert not out.requires_grad
    assert error(out, exact) < 1e-6


@pytest.mark.skipif(not HAS_LLVMLITE, reason="needs machine code")
@pytest.mark.parametrize("shape", [(50, 37), (7, 64), (130, 48)])
@pytest.mark.parametrize("by_column", [False, True])
def test_few_rows_by_machine_code(shape, by_column):
    """What comes out of a row does not depend on those beside it."""
    from specx.ops.native.unpacking import prepared

    weight = torch.randn(shape)
    weight = weight.mT.contiguous().mT if by_column else weight
    product = prepared(weight)
    if product is None:
        pytest.skip("torch has another OpenMP")
    before = torch.get_num_threads()
    x = torch.randn(9, 2 * shape[1])[:, ::2]
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            out = product(x)
            assert error(out, x.double() @ weight.double().t()) < 1e-6
            assert all(torch.equal(product(x[i : i + 1])[0], out[i]) for i in range(len(x)))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [4, 11, 12])
def test_the_mlp_of_many_rows_is_computed_in_parts(rows, monkeypatch):
    layer = CpuLayer(decoder_of(make_model("llama", num_hidden_layers=1)).weights.layers[0])
    x, attended = torch.randn(2, rows, 64, generator=torch.Generator().manual_seed(1))
    whole = layer.after_attention(attended.clone(), x.clone())
    monkeypatch.setattr(cpu_layer, "MLP_ROWS", 4)
    assert error(layer.after_attention(attended.clone(), x.clone()), whole.double()) < 1e-6
