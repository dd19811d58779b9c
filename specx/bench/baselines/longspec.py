"""LongSpec: a draft of one layer that attends to a window of its own keys and to the target's.

Source: Yang et al., LongSpec: Long-Context Speculative Decoding with Efficient Drafting and
Verification. The layout of checkpoints is that of its public code: embedding and lm head of the
target, no final norm, self-attention in a window of 512, then cross-attention to keys and values of
the target's last layer. Positions are those of the text; anchored ones are for training alone. Here
the window moves by chunks of 32 tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from specx.bench.baselines.published import check_shapes, folder_of, read_tensors
from specx.decoding.methods import Pair
from specx.decoding.model_drafter import DraftPlan, ModelDrafter
from specx.decoding.target import Target
from specx.errors import ModelError
from specx.models.call import AttentionCall
from specx.models.loaded import LoadedModel
from specx.models.source import read_raw
from specx.profile import Settings, within_window
from specx.records import PrefillProgress

WINDOW = 512  # tokens that self-attention sees
FILE = "model.safetensors"
NORMS = ("input", "post_self_attention", "post_cross_attention")
UNUSED = ("cross_attn.k_proj", "cross_attn.v_proj")  # in the files; keys come from the target


@dataclass(frozen=True, kw_only=True)
class Glide:
    """The weights of a draft by the names of its file, and the norms' epsilon."""

    weights: dict[str, Tensor]
    eps: float
    kv_heads: int

    def map(self, x: Tensor, name: str) -> Tensor:
        """Apply a linear map to x [T, K]."""
        return linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{name}_layernorm.weight"]
        return rms_norm(x.float(), weight.shape, weight.float(), self.eps).to(x.dtype)


def load_glide(model: str, target: LoadedModel) -> Glide:
    """Load a draft of this layout for a target: a folder or a hub id."""
    label = f"The draft {model}"
    if target.inv_freq is None or len(target.full_layers) < target.num_layers:
        raise ModelError(
            f"{label} needs a target whose layers all see the whole text with one RoPE, unlike "
            f"those of {target.source}."
        )
    folder = folder_of(model, label, ("config.json", FILE))
    raw = read_raw(folder, label)
    heads = target.num_heads
    kv_heads, units = raw.get("num_key_value_heads", heads), raw.get("intermediate_size")
    for key, needed in (("hidden_size", target.hidden_size), ("num_attention_heads", heads)):
        if raw.get(key) != needed:
            raise ModelError(
                f"{label} was made for another target: its {key} is {raw.get(key)}, the target "
                f"calls for {needed}."
            )
    if type(kv_heads) is not int or not 1 <= kv_heads <= heads or heads % kv_heads:
        raise ModelError(f"{label} has {kv_heads!r} for num_key_value_heads in its config.json.")
    if type(units) is not int:
        raise ModelError(
            f"{label} has {units!r} for intermediate_size in its config.json; it must be a "
            "whole number."
        )
    tensors = read_tensors(folder, (FILE,), label)
    maps = _shapes(target, kv_heads, units)
    required = {f"{name}.weight": shape for name, shape in maps.items() if name not in UNUSED}
    optional = {f"{name}.weight": maps[name] for name in UNUSED}
    optional |= {f"{name}.bias": shape[:1] for name, shape in maps.items()}
    check_shapes(tensors, required, optional, label)
    kept = {name: t for name, t in tensors.items() if name.rpartition(".")[0] not in UNUSED}
    moved = {name: t.to(target.device, target.dtype) for name, t in kept.items()}
    return Glide(weights=moved, eps=float(raw.get("rms_norm_eps", 1e-6)), kv_heads=kv_heads)


def _shapes(target: LoadedModel, kv_heads: int, units: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight."""
    size = target.hidden_size
    queries, keys = target.num_heads * target.head_dim, kv_heads * target.head_dim
    shapes: dict[str, tuple[int, ...]] = {f"{name}_layernorm": (size,) for name in NORMS}
    for name in ("self_attn", "cross_attn"):
        shapes |= {f"{name}.q_proj": (queries, size), f"{name}.o_proj": (size, queries)}
        shapes |= {f"{name}.k_proj": (keys, size), f"{name}.v_proj": (keys, size)}
    shapes |= {f"mlp.{name}_proj": (units, size) for name in ("gate", "up")}
    return shapes | {"mlp.down_proj": (size, units)}


class LongSpec(ModelDrafter):
    """A LongSpec draft at work on one document."""

    def __init__(self, settings: Settings, pair: Pair, glide: Glide, max_tokens: int) -> None:
        target = pair.target
        self._glide, model = glide, target.model
        self._embed, self._lm_head = model.embed, model.logits
        assert target.inv_freq is not None
        self._scaling = target.head_dim**-0.5
        self._frequencies = target.inv_freq.to(target.device)
        own = replace(  # which the trees' grower runs
            target, model=self, num_layers=1, num_kv_heads=glide.kv_heads, decoder_spec=None
        )
        everything = settings.draft_cache.changed(policy="full", window=None)
        plan = DraftPlan(tree=settings.tree, cache=within_window(everything, WINDOW))
        super().__init__(own, pair.target_allowed, plan, max_tokens)

    def _read_prompt(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        """Store the keys and values of the window, which embeddings alone decide."""
        self._target = target
        target.cache.storage[-1][:, :, len(prompt) :] = 0  # a weight of 0 does not silence a NaN
        self._rows = torch.arange(target.cache.capacity, device=prompt.device)
        begin = max(0, len(prompt) - 2 * WINDOW)
        positions, store = self._rows[begin : len(prompt)], self.cache.store
        _, key, value = self._own(self._embed(prompt[begin:]), positions)
        keys, values = store.storage[0].unbind()
        self.model.ops.store_rows(keys, values, positions, key, value)
        store.commit(len(prompt))
        yield PrefillProgress("draft", len(prompt), len(prompt))

    def run(
        self, tokens: Tensor, positions: Tensor, call: AttentionCall, logits_of: Tensor | int = 0
    ) -> Tensor:
        """Return logits after tokens int64 [T] at positions int64 [T] of the working cache."""
        glide, x = self._glide, self._embed(tokens)
        query, key, value = self._own(x, positions)
        attended = call.attend(0, query[None], key[None], value[None], self._scaling)[0]
        x = x + glide.map(attended.flatten(1), "self_attn.o_proj")
        normed = glide.norm(x, "post_self_attention")
        in_text = positions + (self.cache.store.length - self.cache.working.length)
        query = self._rotated(glide.map(normed, "cross_attn.q_proj"), in_text)
        x = x + glide.map(self._attend_to_text(query), "cross_attn.o_proj")
        normed = glide.norm(x, "post_cross_attention")
        gated = silu(glide.map(normed, "mlp.gate_proj")) * glide.map(normed, "mlp.up_proj")
        x = x + glide.map(gated, "mlp.down_proj")
        if isinstance(logits_of, Tensor) or logits_of:
            x = x[logits_of] if isinstance(logits_of, Tensor) else x[-logits_of:]
        return self._lm_head(x)

    def _own(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [Hq, T, D], keys and values [Hkv, T, D] of self-attention."""
        normed = self._glide.norm(x, "input")
        query, key, value = (self._glide.map(normed, f"self_attn.{n}_proj") for n in "qkv")
        value = value.unflatten(1, (-1, self.model.head_dim)).transpose(0, 1)
        return self._rotated(query, positions), self._rotated(key, positions), value

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate x [T, H · D] to positions int64 [T] -> [H, T, D]."""
        angles = positions[:, None] * self._frequencies
        cos, sin = (part.repeat(1, 2).to(x.dtype) for part in (angles.cos(), angles.sin()))
        heads = x.unflatten(1, (-1, self.model.head_dim)).transpose(0, 1)
        first, second = heads.chunk(2, dim=-1)
        return heads * cos + torch.cat([-second, first], -1) * sin

    def _attend_to_text(self, query: Tensor) -> Tensor:
        """Attend from query [Hq, T, D] to the text that the target has read -> [T, Hq · D]."""
        cache = self._target.cache
        keys, values = cache.storage[-1].unbind()
        mask = None
        if query.device.type == "cpu":  # where a look costs nothing
            keys, values = keys[:, : cache.committed], values[:, : cache.committed]
        else:
            mask = (self._rows < cache.length)[None]
        out = scaled_dot_product_attention(
            query[None], keys[None], values[None], mask, scale=self._scaling, enable_gqa=True
        )
        return out[0].transpose(0, 1).flatten(1)
