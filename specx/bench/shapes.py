"""Shapes of public models, for pairs with the same cost (``scaled.py``)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The size of a Llama model.

    ``tied``: the lm head is the embedding, not a separate matrix.
    """

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied: bool = False

    def parameters(self, vocab_size: int | None = None) -> int:
        """Return the number of weights. ``vocab_size`` replaces the shape's own."""
        hidden, heads = self.hidden_size, self.num_heads + self.num_kv_heads
        attention = 2 * hidden * heads * self.head_dim  # q and o; k and v
        feed_forward = 3 * hidden * self.intermediate_size
        layer = attention + feed_forward + 2 * hidden
        matrices = 1 if self.tied else 2
        rows = self.vocab_size if vocab_size is None else vocab_size
        return matrices * rows * hidden + self.num_layers * layer + hidden

    def config(self) -> dict[str, int]:
        """Return its sizes under the names of transformers' configs."""
        return {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
        }


@dataclass(frozen=True)
class HeadShape(Shape):
    """The size of an EAGLE-3 head that reads three features; ``vocab_size``: the head's own ids."""

    def parameters(self, vocab_size: int | None = None) -> int:  # noqa: ARG002
        """Return the number of weights; the embedding is the target's."""
        hidden, heads = self.hidden_size, self.num_heads + 2 * self.num_kv_heads
        attention = (2 * heads + self.num_heads) * hidden * self.head_dim  # q, k, v read two
        feed_forward = 3 * hidden * self.intermediate_size
        return 3 * hidden**2 + attention + feed_forward + self.vocab_size * hidden + 4 * hidden


# name, hidden size, layers, heads, key heads, head size, inner size, vocabulary
LLAMA_8B = Shape("llama-3.1-8b", 4096, 32, 32, 8, 128, 14_336, 128_256)
VICUNA_7B = Shape("vicuna-7b", 4096, 32, 32, 32, 128, 11_008, 32_000)
LLAMA_70B = Shape("llama-3.1-70b", 8192, 80, 64, 8, 128, 28_672, 128_256)
# llama-68m and vicuna-68m have two layers; the embedded draft needs three.
SMALL = Shape("68m", 768, 3, 12, 12, 64, 3072, 32_000)
LLAMA_160M = Shape("160m", 768, 12, 12, 12, 64, 3072, 32_000)
LLAMA_1B = Shape("1b", 2048, 16, 32, 8, 64, 8192, 128_256, tied=True)
TARGETS = {shape.name: shape for shape in (LLAMA_8B, VICUNA_7B, LLAMA_70B)}
DRAFTS = {shape.name: shape for shape in (SMALL, LLAMA_160M, LLAMA_1B)}
HEAD = "eagle3"  # the draft of that name has a layer like its target's
HEAD_IDS = 32000


def draft_shape(name: str, target: Shape) -> Shape:
    """Return the shape of a draft; a head gets that of published heads. Raises KeyError."""
    if name != HEAD:
        return DRAFTS[name]
    return HeadShape(
        name=HEAD,
        hidden_size=target.hidden_size,
        num_layers=1,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        intermediate_size=target.intermediate_size,
        vocab_size=min(HEAD_IDS, target.vocab_size),
    )
