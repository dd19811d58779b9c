"""EAGLE and EAGLE-3 heads: drafts of a layer or a few that read the target's hidden states.

Row t of a head is the embedding of token t + 1 beside its *state* at position t. A state comes from
the target's *features* where the target has read the text (``project``), and is the head's own
output above that, in a tree. Layers are those of transformers, so attention and cache go through
the same seams as a model's.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

from specx.models.head_config import HeadSpec


class EagleFirstLayer(nn.Module):
    """The first layer of an EAGLE-3 head, which reads embedding and state side by side."""

    def __init__(self, spec: HeadSpec, config: Any) -> None:
        super().__init__()
        hidden = config.hidden_size
        layer = _layer(spec, config, 0, inputs=2 * hidden)
        self.norms_residual = spec.norms_residual
        self.input_layernorm, self.hidden_norm = layer.input_layernorm, _norm(hidden, config)
        self.self_attn, self.mlp = layer.self_attn, layer.mlp
        self.post_attention_layernorm = layer.post_attention_layernorm

    def forward(self, embedded: Tensor, states: Tensor, **attention: Any) -> Tensor:
        """Read embedded, states [1, T, H] -> [1, T, H]."""
        normed = self.hidden_norm(states)
        residual = normed if self.norms_residual else states
        x = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        x = residual + self.self_attn(hidden_states=x, attention_mask=None, **attention)[0]
        return x + self.mlp(self.post_attention_layernorm(x))


class Head(nn.Module):
    """A head; its parameters have the names of speculators' files.

    ``target_ids`` int64 [rows of the lm head]: the target's id of each of the head's.
    """

    target_ids: Tensor

    def __init__(self, spec: HeadSpec, embed_tokens: nn.Module, lm_head: nn.Module) -> None:
        """``embed_tokens``, ``lm_head``: the target's, which serve where the head has none."""
        super().__init__()
        self.spec, config, rows = spec, config_of(spec), spec.vocabulary
        self.config, hidden = config, config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden) if spec.embeds else embed_tokens
        self.lm_head = lm_head if rows is None else nn.Linear(hidden, rows, bias=False)
        inputs = spec.width if spec.input.fc == "features" else 2 * hidden
        self.fc = nn.Linear(inputs, hidden, bias=spec.fc_bias)
        is_joined = spec.input.fc == "features"
        first = EagleFirstLayer(spec, config) if is_joined else _layer(spec, config, 0)
        if not is_joined:
            first.input_layernorm = nn.Identity()
        others = (_layer(spec, config, index) for index in range(1, config.num_hidden_layers))
        self.layers = nn.ModuleList([first, *others])
        self.norm = _norm(hidden, config) if spec.final_norm else nn.Identity()
        if spec.feature_norm == "all":
            self.input_norm = _norm(spec.width, config)
        if spec.feature_norm == "each":
            norms = [_norm(spec.feature_size, config) for _ in spec.features]
            self.fc_norm = nn.ModuleList(norms)
        self.rotary_emb = LlamaRotaryEmbedding(config)
        ids = torch.arange(_rows(lm_head) if rows is None else rows)
        self.register_buffer("target_ids", ids, persistent=False)

    @cached_property
    def ids_differ(self) -> bool:
        """True if the head's ids are not the target's. A GPU is asked once, and waited for."""
        ids = self.target_ids
        return not torch.equal(ids, torch.arange(len(ids), device=ids.device))

    def get_decoder(self) -> "Head":
        """Return the module that has the layers."""
        return self

    def get_output_embeddings(self) -> nn.Module:
        """Return the map to logits."""
        return self.lm_head

    def project(self, features: Tensor) -> Tensor:
        """Make states [B, T, H] of the target's features [B, T, F]."""
        features = features.to(self.fc.weight.dtype)
        if self.spec.input.fc == "joined":
            return features
        if self.spec.feature_norm == "all":
            features = self.input_norm(features)
        if self.spec.feature_norm == "each":
            parts = features.split(self.spec.feature_size, dim=-1)
            normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
            features = torch.cat(normed, dim=-1)
        states: Tensor = self.fc(features)
        return states

    def forward(
        self,
        tokens: Tensor,
        states: Tensor,
        positions: Tensor,
        rows: Tensor | int | None = 0,
        parents: Tensor | None = None,
        **attention: Any,
    ) -> tuple[Tensor, Tensor]:
        """Read tokens, positions int64 [B, T] beside states [B, T, H].

        ``attention``: what the layers' attention gets, the cache and ``specx_call``. ``rows``:
        those whose results are wanted (int64), or how many of the last; 0 means all, None that the
        pass is for keys and values alone. ``parents`` int64 [T]: the places of the states in
        ``states``, unless each row has its own. Returns of these rows the states [B, rows, H] of
        what follows, and logits [B, rows, V] in the head's ids.
        """
        if parents is not None:
            states = states.index_select(1, parents)
        embedded = self.embed_tokens(tokens).to(states.dtype)
        attention["position_embeddings"] = self.rotary_emb(embedded, positions)
        first, *others = self.layers
        if self.spec.input.fc == "joined":
            x = first(self.fc(torch.cat([embedded, states], dim=-1)), **attention)
        else:
            x = first(embedded, states, **attention)
        for layer in others:
            x = layer(x, **attention)
        if rows is None:
            return x[:, :0], x.new_empty(len(x), 0, len(self.target_ids))
        if isinstance(rows, Tensor) or rows:
            x = x[:, rows] if isinstance(rows, Tensor) else x[:, -rows:]
        normed = self.norm(x)
        logits = self.lm_head(normed.to(self.lm_head.weight.dtype))
        return normed if self.spec.feeds_normed else x, logits


def config_of(spec: HeadSpec) -> Any:
    """Return the config of a head's layers as transformers has it."""
    kind = Qwen3Config if spec.config["model_type"] == "qwen3" else LlamaConfig
    return kind.from_dict(spec.config)


def _layer(spec: HeadSpec, config: Any, index: int, inputs: int | None = None) -> Any:
    """Make a decoder layer whose attention reads so many ``inputs``; None: the hidden size."""
    layer = (Qwen3DecoderLayer if isinstance(config, Qwen3Config) else LlamaDecoderLayer)(
        config, index
    )
    inputs, bias = inputs or config.hidden_size, config.attention_bias or spec.qkv_bias
    for name in ("q_proj", "k_proj", "v_proj"):
        rows = getattr(layer.self_attn, name).out_features
        setattr(layer.self_attn, name, nn.Linear(inputs, rows, bias=bias))
    return layer


def _norm(size: int, config: Any) -> nn.Module:
    norm: nn.Module = LlamaRMSNorm(size, eps=config.rms_norm_eps)
    return norm


def _rows(lm_head: nn.Module) -> int:
    weight: Any = lm_head.weight
    return len(weight)
