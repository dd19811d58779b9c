"""Projections that read the same input, as one matrix product.

A product over a few rows takes as long as reading its weight, and small weights are read slowest:
keys and values of a model with few key heads took three times their share. So the projections of
a group keep their weights in one matrix, each being some of its rows. Fused layers multiply by the
whole matrix themselves (``join``). In layers of other kinds, compiled, all projections of a group
state the product with the whole matrix, and ``merge_products`` leaves one of these products.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.nn.functional import linear

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class SharedProjection(nn.Module):
    """Rows ``first`` to ``last`` of a linear map that others share.

    ``weight`` [R, I] and ``bias`` [R] or None are those of the whole map.
    """

    def __init__(
        self, weight: nn.Parameter, bias: nn.Parameter | None, first: int, last: int
    ) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        self.first, self.last = first, last

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x [..., I] -> [..., last − first]."""
        if torch.compiler.is_compiling():
            return linear(x, self.weight, self.bias)[..., self.first : self.last]
        bias = None if self.bias is None else self.bias[self.first : self.last]
        return linear(x, self.weight[self.first : self.last], bias)


def share_projections(model: nn.Module) -> None:
    """Join the weights of every group of plain linear maps in ``model``, one group at a time, so
    that no more than one is there twice. What is not plain or does not fit stays as it is."""
    for module in list(model.modules()):
        for names in GROUPS:
            members = [getattr(module, name, None) for name in names]
            # Their exact class: quantized maps and adapters compute in ways of their own.
            group = [member for member in members if type(member) is nn.Linear]
            if len(group) == len(names) and are_alike(group):
                _share(module, names, group)


def join(
    group: list[nn.Linear], arranged: Callable[[Tensor], Tensor] = lambda weight: weight
) -> tuple[Tensor, Tensor | None]:
    """Join linear maps: return weight and bias of one map with the rows of all, in this order.

    The maps stay what they are; their weights become views. ``arranged``: lays the weight out in
    memory.
    """
    weight = arranged(torch.cat([m.weight.detach() for m in group]))
    rows = [m.out_features for m in group]
    for member, own in zip(group, weight.split(rows), strict=True):
        member.weight = nn.Parameter(own, requires_grad=member.weight.requires_grad)
    if group[0].bias is None:
        return weight, None
    bias = torch.cat([m.bias.detach() for m in group])
    for member, own in zip(group, bias.split(rows), strict=True):
        member.bias = nn.Parameter(own, requires_grad=member.bias.requires_grad)
    return weight, bias


def are_alike(group: list[nn.Linear]) -> bool:
    """Return True if the rows of all could be those of one map."""
    kinds = {
        (m.in_features, m.bias is None, m.weight.dtype, m.weight.device, m.weight.requires_grad)
        for m in group
    }
    return len(kinds) == 1


def _share(module: nn.Module, names: tuple[str, ...], group: list[nn.Linear]) -> None:
    grad = group[0].weight.requires_grad
    weight = nn.Parameter(torch.cat([m.weight.detach() for m in group]), requires_grad=grad)
    bias = None
    if group[0].bias is not None:
        bias = nn.Parameter(torch.cat([m.bias.detach() for m in group]), requires_grad=grad)
    first = 0
    for name, member in zip(names, group, strict=True):
        last = first + member.out_features
        setattr(module, name, SharedProjection(weight, bias, first, last))
        first = last


def merge_products(graph: GraphModule) -> None:
    """Compute equal linear maps of equal inputs once: torch does so in training only."""
    seen: dict[tuple[object, ...], Node] = {}
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or node.target is not linear:
            continue
        key = (*node.args, *sorted(node.kwargs.items()))
        if key in seen:
            node.replace_all_uses_with(seen[key])
            graph.graph.erase_node(node)
        else:
            seen[key] = node
    graph.recompile()
