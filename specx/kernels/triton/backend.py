"""The backend for GPUs: Triton's kernels, Hopper's where they are faster, torch's where these are.

Which kernel serves a shape is decided in this file; a kernel's own ``suits`` says what it can do.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear

from specx.kernels.ancestors import AncestorMask
from specx.kernels.chunks import Grid
from specx.kernels.hopper import product as hopper_product
from specx.kernels.hopper import tree_attention as hopper_attention
from specx.kernels.hopper.product import CudaProduct, GatedProduct, HeadsProduct, product_of
from specx.kernels.layers import (
    DecoderWeights,
    HeadNorms,
    LayerKernels,
    LayerWeights,
    LinearMap,
    Norm,
)
from specx.kernels.spec import NormSpec
from specx.kernels.torch import attention as torch_attention
from specx.kernels.torch import scores as torch_scores
from specx.kernels.torch.layer import TorchLayer, TorchNorm
from specx.kernels.trees import LevelInputs, Path, TokenTree
from specx.kernels.triton import (
    best_chunks,
    gather_chunks,
    layer,
    level_inputs,
    merge,
    move_rows,
    penalties,
    prefill,
    row_product,
    select,
    small_product,
    store,
    tree_attention,
    verify,
)
from specx.kernels.triton.signal_handlers import keep_signal_handlers
from specx.kernels.triton.tree_inputs import TreeInputs

HALF = {torch.float16, torch.bfloat16}  # float32 is for who wants transformers' own numbers
FEW_ROWS = 64  # more take longer to be added to within a product than behind it


class TritonOps:
    """``Ops`` by kernels, on a GPU with Triton. In Triton's interpreter on a CPU, for tests."""

    name = "triton"
    attention_by = "built-in"

    store_rows = staticmethod(store.store_rows)
    keep_rows = staticmethod(move_rows.keep_rows)
    append_rows = staticmethod(move_rows.append_rows)
    gather_chunks = staticmethod(gather_chunks.gather_chunks)
    best_continuations = staticmethod(select.best_continuations)
    best_tree = staticmethod(select.best_tree)
    most_probable = staticmethod(verify.most_probable)
    penalize = staticmethod(penalties.penalize)
    rotary_angles = staticmethod(layer.rotary_angles)

    def __init__(self) -> None:
        keep_signal_handlers()

    def rms_norm(self, weight: Tensor, eps: float) -> Norm:
        return partial(layer.rms_norm, weight=weight, eps=eps)

    def tree_attention(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        prefix: Tensor,
        mask: AncestorMask,
        scaling: float,
        *,
        needs_lse: bool = True,  # noqa: ARG002 - it comes with the parts that are merged
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend by Hopper's kernel where many rows share a key head, else by Triton's.

        Raises NotImplementedError for windows, caps and sinks.
        """
        if not (window is softcap is sinks is None):
            raise NotImplementedError("windows, caps and sinks on a GPU")
        scale = scaling * tree_attention.LOG2_E
        inputs = TreeInputs(q, keys, values, prefix, mask.sets, scale)
        multiprocessors = tree_attention.device_of(q.device).multiprocessors
        if hopper_attention.suits(inputs, multiprocessors):
            splits = hopper_attention.splits(inputs, multiprocessors)
            return tree_attention.in_parts(inputs, splits, hopper_attention.attend_in_parts)
        launch = tree_attention.plan_for(inputs)
        attend = partial(tree_attention.attend_in_parts, launch=launch)
        return tree_attention.in_parts(inputs, launch.splits, attend)

    def prefill_attention(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        past: int,
        window: int | None,
        scaling: float,
        *,
        softcap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Attend by cuDNN for whole chunks, else as torch does.

        Raises NotImplementedError for caps and sinks.
        """
        if not (softcap is sinks is None):
            raise NotImplementedError("caps and sinks on a GPU")
        written = past + q.shape[1]
        k, v = keys[None, :, :written], values[None, :, :written]
        if window is None and prefill.suits(q[None], k, v, past):
            return prefill.attend(q[None], k, v, scaling, past)[0].transpose(0, 1)
        return torch_attention.prefill_attention(q, keys, values, past, window, scaling)

    def merge_attention(
        self, out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor
    ) -> tuple[Tensor, Tensor]:
        return merge.merge(out_a, lse_a, out_b, lse_b, out_a.dtype)

    def chunk_scores(
        self,
        query: Tensor,
        lse: Tensor,
        keys: Tensor,
        length: Tensor,
        scaling: float,
        grid: Grid,
    ) -> Tensor:
        return tree_attention.chunk_scores(
            query, lse, keys, length, scaling, grid.chunk, grid.short
        )

    def best_chunks(self, scores: Tensor, tokens: Tensor, grid: Grid, k: int) -> Tensor:
        """Choose in one launch, as long as a single program can hold all scores."""
        if k <= best_chunks.MOST_KEPT and len(scores) <= best_chunks.MOST_CHUNKS:
            return best_chunks.best_chunks(scores, tokens, grid, k)
        return torch_scores.best_chunks(scores, tokens, grid, k)

    def level_inputs(
        self, parents: Tensor, above: Tensor | None, own: Tensor, *, length: Tensor, after: int,
        position: Tensor, ahead: int,
    ) -> LevelInputs:  # fmt: skip
        found = level_inputs.level_inputs(parents, above, own, (length, after), (position, ahead))
        return LevelInputs(*found)

    def accept(self, tree: TokenTree, choices: Tensor) -> Path:
        return Path(*verify.accept(tree, choices))

    def fuses(self, dtype: torch.dtype) -> bool:
        return dtype in HALF

    def arranged(self, weight: Tensor) -> Tensor:
        return weight

    def whole_pass(self, weights: DecoderWeights) -> None:  # noqa: ARG002
        return None  # CUDA graphs replay a pass with one launch

    def layer_kernels(self, weights: LayerWeights) -> LayerKernels:
        is_known = weights.is_plain and weights.out.weight.dtype != torch.float64
        return TritonLayer(weights) if is_known else TorchLayer(weights)

    def norm(
        self, spec: NormSpec, weight: Tensor | None, bias: Tensor | None, dtype: torch.dtype
    ) -> Norm:
        is_known = spec == NormSpec(eps=spec.eps) and bias is None and dtype in HALF
        if weight is None or not is_known:
            return TorchNorm(spec, weight, bias)
        return self.rms_norm(weight, spec.eps)

    def product(self, linear: LinearMap) -> "TritonProduct":
        return TritonProduct(linear)

    def head_input(self, embedding: Tensor, norms: HeadNorms | None) -> "TritonHeadInput":
        return TritonHeadInput(embedding, norms)


class TritonProduct:
    """``Product`` by the kernel for the number of rows: one, up to 64 on Hopper, or cuBLAS'."""

    def __init__(self, weights: LinearMap) -> None:
        self._weights = weights
        self._few = product_of(CudaProduct, weights.weight, weights.bias)

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self._weights.weight, self._weights.bias
        if len(x) == 1:
            return row_product.row_product(x, weight, bias)
        if self._few is not None and len(x) <= hopper_product.MOST_ROWS:
            return self._few(x.contiguous())
        return linear(x, weight, bias)


class TritonHeadInput:
    """``HeadInput`` in one launch."""

    def __init__(self, embedding: Tensor, norms: HeadNorms | None) -> None:
        self._embedding, self._norms = embedding, norms

    def __call__(
        self, tokens: Tensor, states: Tensor, parents: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return layer.head_input(tokens, self._embedding, states, parents, self._norms)


class TritonLayer:
    """``LayerKernels``: products, and a kernel between each two of them.

    A single row has products of its own, which add the residual and apply the gate. So have the
    small products of small models (``counters``), and on Hopper up to 64 rows with large weights
    (``few``). All other products are cuBLAS'.
    """

    def __init__(self, weights: LayerWeights) -> None:
        self._weights, spec = weights, weights.spec
        assert weights.is_plain
        assert weights.output_norm is not None
        assert spec.output_norm is not None
        self._input_norm: tuple[Tensor, float] | None = None
        if weights.input_norm is not None and spec.input_norm is not None:
            self._input_norm = weights.input_norm, spec.input_norm.eps
        self._output_norm = weights.output_norm, spec.output_norm.eps
        self._head_norms: tuple[Tensor, Tensor, float] | None = None
        if weights.query_norm is not None and weights.key_norm is not None:
            assert spec.attention.head_norm is not None
            eps = spec.attention.head_norm.eps
            self._head_norms = weights.query_norm, weights.key_norm, eps
        small = all(
            each.bias is None and small_product.suits(each.weight)
            for each in (weights.out, weights.down)
        )
        device = weights.heads.weight.device
        self.counters = small_product.counters(device) if small else None
        self.few = None if small else FewRowsProducts.of(weights)

    def before_attention(
        self, x: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        w = self._weights
        y = x if self._input_norm is None else layer.rms_norm(x, *self._input_norm)
        if len(x) == 1:
            qkv = row_product.row_product(y, w.heads.weight, w.heads.bias)
        elif self._has_few_rows(x):
            assert self.few is not None
            if isinstance(self.few.heads, HeadsProduct):
                return self.few.heads(y, cos, sin, slots, keys, values)
            qkv = self.few.heads(y)
        else:
            qkv = linear(y, w.heads.weight, w.heads.bias)
        return layer.rotate_and_store(qkv, self._head_norms, cos, sin, slots, keys, values)

    def after_attention(
        self,
        attended: Tensor,
        x: Tensor,
        per_layer: Tensor | None = None,  # noqa: ARG002 - a plain layer has none
    ) -> Tensor:
        if len(x) == 1:
            return self._after_row(attended, x)
        if self._has_few_rows(x):
            return self._after_few(attended, x)
        if self.counters is not None and len(x) <= small_product.MOST_ROWS:
            return self._after_small(attended, x, self.counters)
        return self._after(attended, x)

    def _has_few_rows(self, x: Tensor) -> bool:
        return self.few is not None and 1 < len(x) <= hopper_product.MOST_ROWS

    def _after_row(self, attended: Tensor, x: Tensor) -> Tensor:
        w = self._weights
        x = row_product.row_product(attended, w.out.weight, w.out.bias, x)
        y = layer.rms_norm(x, *self._output_norm)
        inner = row_product.gated_row_product(y, w.gate_up.weight, w.gate_up.bias)
        return row_product.row_product(inner, w.down.weight, w.down.bias, x)

    def _after_few(self, attended: Tensor, x: Tensor) -> Tensor:
        assert self.few is not None
        x = self.few.out(attended, x)
        y = layer.rms_norm(x, *self._output_norm)
        return self.few.down(self.few.gate_up(y), x)

    def _after_small(self, attended: Tensor, x: Tensor, counters: Tensor) -> Tensor:
        w = self._weights
        x = small_product.add_product(attended, w.out.weight, x, counters)
        y = layer.rms_norm(x, *self._output_norm)
        inner = layer.gated(linear(y, w.gate_up.weight, w.gate_up.bias))
        return small_product.add_product(inner, w.down.weight, x, counters)

    def _after(self, attended: Tensor, x: Tensor) -> Tensor:
        w = self._weights
        x, y = layer.add_rms_norm(x, linear(attended, w.out.weight, w.out.bias), *self._output_norm)
        inner = layer.gated(linear(y, w.gate_up.weight, w.gate_up.bias))
        if w.down.bias is not None or len(x) > FEW_ROWS:
            return x.add_(linear(inner, w.down.weight, w.down.bias))
        return x.addmm_(inner, w.down.weight.t())  # in the product itself, and rounded once


class FewRowsProducts:
    """Hopper's products of a layer. ``heads``: with what follows it, unless heads are normed."""

    def __init__(
        self,
        heads: CudaProduct | HeadsProduct,
        out: CudaProduct,
        gate_up: GatedProduct,
        down: CudaProduct,
    ) -> None:
        self.heads, self.out, self.gate_up, self.down = heads, out, gate_up, down

    @classmethod
    def of(cls, weights: LayerWeights) -> "FewRowsProducts | None":
        """Return the products of a layer, or None if the kernels of some cannot be had."""
        w, dim = weights, weights.spec.attention.head_dim
        found = [
            product_of(HeadsProduct, w.heads.weight, w.heads.bias, head_dim=dim)
            if w.query_norm is None
            else product_of(CudaProduct, w.heads.weight, w.heads.bias),
            product_of(CudaProduct, w.out.weight, w.out.bias),
            product_of(GatedProduct, w.gate_up.weight, w.gate_up.bias),
            product_of(CudaProduct, w.down.weight, w.down.bias),
        ]
        return None if None in found else cls(*found)  # type: ignore[arg-type]
