"""The rules that write a small model's weights into a large one, so that its function stays.

With d and D elements of a hidden state, the first d elements of the large one are the small one's,
and the others are zero.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig

from specx.bench.shapes import Shape
from specx.errors import ModelError

STD = 0.02  # of the weights that are left open: activations keep the size they have in real models


def scaled_layer(layer: int, small_layers: int, large_layers: int) -> int:
    """Return the place of layer ``layer`` of a model with ``small_layers`` layers in its large
    form.

    Layers that do nothing come first, so that the final layer stays the final one.
    """
    return large_layers - small_layers + layer


def fill_randomly(weights: Iterable[Tensor], seed: int) -> None:
    """Fill weights with normal numbers, those of norms around 1. All lie on one device."""
    generator: torch.Generator | None = None
    for weight in weights:
        generator = generator or torch.Generator(weight.device).manual_seed(seed)
        weight.normal_(1.0 if weight.ndim == 1 else 0.0, STD, generator=generator)


@dataclass(frozen=True)
class HeadPlaces:
    """The places of heads in the large model.

    ``sources`` [Hkv of the large model]: the KV head of the small model that each one copies.
    ``queries``: rows of the large q_proj, columns of its o_proj, one for each of the small
    model's. ``keys``: rows of the large k_proj and v_proj, for the small model's rows repeated
    as ``sources`` says. ``stretch``: factor between the head sizes.
    """

    sources: Tensor
    queries: Tensor
    keys: Tensor
    stretch: int


def place_heads(config: LlamaConfig, shape: Shape) -> HeadPlaces:
    """Place every small query head where it meets a copy of its own KV head.

    The copies of a KV head are neighbours, and so are the large query heads that read them.
    """
    kv_heads, size = config.num_key_value_heads, config.head_dim
    sources = torch.arange(shape.num_kv_heads) * kv_heads // shape.num_kv_heads
    firsts = torch.searchsorted(sources, torch.arange(kv_heads))  # copies of each, the first
    groups = config.num_attention_heads // kv_heads, shape.num_heads // shape.num_kv_heads
    places = (firsts[:, None] * groups[1] + torch.arange(groups[0])).flatten()
    # Half-split layout: pair i is elements i and i + size/2. The frequency of a pair depends on
    # its place relative to the size of the head.
    stretch = shape.head_dim // size
    pairs = torch.arange(size // 2) * stretch
    elements = torch.cat([pairs, pairs + shape.head_dim // 2])

    def rows(heads: Tensor) -> Tensor:
        return (heads[:, None] * shape.head_dim + elements).flatten()

    return HeadPlaces(sources, rows(places), rows(torch.arange(shape.num_kv_heads)), stretch)


def write_attention(small: Any, large: Any, heads: HeadPlaces, states: int = 1) -> None:
    """Write queries, keys, values and output of one layer, which reads so many ``states`` side by
    side.

    What has no counterpart in the small model has zero queries: unused elements add nothing to a
    score, and unused heads attend uniformly, so that a mean over heads keeps its order.
    """
    query, out = large.q_proj.weight, large.o_proj.weight
    queries, keys = (rows.to(query.device) for rows in (heads.queries, heads.keys))
    columns = columns_of(small.q_proj, large.q_proj, states)
    used = query[queries]
    used[:, columns] = (exact(small.q_proj, query) * heads.stretch**0.5).to(query.dtype)
    query.zero_()[queries] = used
    for name in ("k_proj", "v_proj"):
        ours, theirs = getattr(small, name), getattr(large, name).weight
        by_head = exact(ours, theirs).unflatten(0, (-1, small.head_dim))
        repeated = by_head[heads.sources.to(theirs.device)].flatten(0, 1)
        theirs[keys[:, None], columns] = repeated.to(theirs.dtype)
    out.zero_()[: small.o_proj.out_features, queries] = exact(small.o_proj, out).to(out.dtype)


def columns_of(small: Any, large: Any, states: int) -> Tensor:
    """Return the columns of a large map that read what those of the small one read: so many
    ``states`` side by side."""
    ours, theirs = small.in_features // states, large.in_features // states
    columns = torch.arange(states)[:, None] * theirs + torch.arange(ours)
    return columns.flatten().to(large.weight.device)


def write_feed_forward(small: Any, large: Any) -> None:
    """Write the units of one layer. Units beyond are computed and go nowhere."""
    units, width = small.gate_proj.weight.shape
    large.gate_proj.weight[:units, :width] = exact(small.gate_proj, large.gate_proj.weight)
    large.up_proj.weight[:units, :width] = exact(small.up_proj, large.up_proj.weight)
    large.down_proj.weight.zero_()[:width, :units] = exact(small.down_proj, large.down_proj.weight)


def write_norm(small: Any, large: Any) -> None:
    """Write a norm; the large one divides by the root of a mean over D elements, of which d are
    not zero."""
    width = len(small.weight)
    ratio = width / len(large.weight)
    large.weight[:width] = exact(small, large.weight) * ratio**0.5


def write_rows(small: Tensor, large: Tensor) -> None:
    """Write the rows of a vocabulary; those that are not in the small one get their mean."""
    rows, width = small.shape
    large[:rows, :width] = small.to(large.dtype)
    large[rows:, :width] = small.mean(0).to(large.dtype)


def exact(module: Any, like: Tensor) -> Tensor:
    """Return the weight of a small module where ``like`` is, in float64: factors are rounded
    once."""
    weight: Tensor = module.weight
    return weight.to(like.device, torch.float64)


def check_holds(config: LlamaConfig, shape: Shape, rows: int) -> None:
    """Raise ModelError where a shape with so many ids does not hold a model."""
    problem = next(_problems(config, shape, rows), None)
    if problem:
        raise ModelError(f"A model cannot be scaled to {shape.name}: {problem}.")


def _problems(config: LlamaConfig, shape: Shape, rows: int) -> Iterator[str]:
    sizes = {
        "hidden size": (config.hidden_size, shape.hidden_size),
        "number of layers": (config.num_hidden_layers, shape.num_layers),
        "feed-forward size": (config.intermediate_size, shape.intermediate_size),
        "number of KV heads": (config.num_key_value_heads, shape.num_kv_heads),
        "vocabulary": (config.vocab_size, rows),
    }
    for what, (ours, theirs) in sizes.items():
        if ours > theirs:
            yield f"its {what} is {ours}, more than {theirs}"
    if shape.head_dim % config.head_dim:
        yield f"its heads of {config.head_dim} do not divide heads of {shape.head_dim}"
    copies = shape.num_kv_heads // config.num_key_value_heads  # or one more
    readers = copies * (shape.num_heads // shape.num_kv_heads)
    needed = config.num_attention_heads // config.num_key_value_heads
    if needed > readers:
        yield f"{needed} of its heads share a KV head, and there is room for {readers}"
    if shape.tied and not config.tie_word_embeddings:
        yield "its lm head is not its embedding"
    if config.attention_bias or config.mlp_bias:
        yield "it has biases"


def check_frequencies(small: Any, large: Any) -> None:
    """Refuse kinds of RoPE (yarn) that reckon with the size of the head itself: compare two
    rotary embeddings."""
    ours, theirs = (rotary.inv_freq.cpu() for rotary in (small, large))
    if not torch.allclose(ours.float(), theirs[:: len(theirs) // len(ours)], rtol=1e-6, atol=0):
        raise ModelError("A model cannot be scaled: its RoPE frequencies depend on its head size.")
