"""A head for training, EAGLE-3 or MTP: its layer, its initial weights, and its file."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

LAYERS = (2, 5, 6)  # layers of the target whose input the head reads; layer 5 finds what is copied
POINTER = 5
SHARPNESS = 2.5  # of what an MTP head begins to look for


class Head(nn.Module):
    """An EAGLE-3 head of one layer, with parameters named as in the files of speculators.

    Row t reads the embedding of token t + 1 and a state of position t: the target's features,
    mapped by ``fc``, or the head's own output. ``ids`` int64 [V]: the target's ids that it
    proposes, in order. ``features``: the target layers whose input it reads. ``shared``: parts that
    are the target's.
    """

    shared: tuple[str, ...] = ("embed_tokens.",)

    def __init__(
        self, target: LlamaConfig, embed_tokens: nn.Module, ids: Tensor, features: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.ids, self.features = ids, features
        self.config = config = LlamaConfig(
            vocab_size=target.vocab_size,
            hidden_size=target.hidden_size,
            intermediate_size=target.intermediate_size,
            num_hidden_layers=1,
            num_attention_heads=target.num_attention_heads,
            num_key_value_heads=target.num_attention_heads,
            head_dim=head_dim(target),
            rms_norm_eps=target.rms_norm_eps,
            rope_parameters=target.rope_parameters,
            max_position_embeddings=target.max_position_embeddings,
            tie_word_embeddings=False,
        )
        hidden, layer = config.hidden_size, LlamaDecoderLayer(config, 0)
        layer.hidden_norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = getattr(layer.self_attn, name).out_features
            setattr(layer.self_attn, name, nn.Linear(2 * hidden, rows, bias=False))
        self.embed_tokens = embed_tokens
        self.layers = nn.ModuleList([layer])
        self.fc = nn.Linear(len(features) * hidden, hidden, bias=False)
        self.norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, len(ids), bias=False)
        self.rotary_emb = LlamaRotaryEmbedding(config)

    def forward(
        self, tokens: Tensor, states: Tensor, positions: Tensor, rows: Tensor, call: "UnrolledCall"
    ) -> tuple[Tensor, Tensor]:
        """Read tokens int64 [B, T], states [B, T, H] and positions int64 [1, T].

        Return states [B, R, H] and logits [B, R, V] of ``rows`` int64 [R].
        """
        layer: Any = self.layers[0]
        embedded = self.embed_tokens(tokens)
        x, _ = layer.self_attn(
            hidden_states=torch.cat(
                [layer.input_layernorm(embedded), layer.hidden_norm(states)], dim=-1
            ),
            attention_mask=None,
            position_embeddings=self.rotary_emb(embedded, positions),
            specx_call=call,
        )
        x = (states + x)[:, rows]
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return x, self.lm_head(self.norm(x))

    def states(self, features: Tensor) -> Tensor:
        """Compute states [..., H] from the target's features [..., F]."""
        states: Tensor = self.fc(features)
        return states

    def trained(self) -> dict[str, Tensor]:
        """Return its weights by name, except for the target's."""
        return {k: v for k, v in self.state_dict().items() if not k.startswith(self.shared)}


class MtpHead(Head):
    """A head for multi-token prediction, with the names of Qwen3.5's checkpoints behind ``mtp.``.

    It reads the target's normed output and feeds back its own, through a layer like the target's
    and the target's lm head.
    """

    shared = ("embed_tokens.", "lm_head.")

    def __init__(self, target: PreTrainedModel) -> None:
        config, lm_head = target.config, target.get_output_embeddings()
        ids, last = torch.arange(config.vocab_size), (config.num_hidden_layers,)
        super().__init__(config, target.get_input_embeddings(), ids, last)
        self.config.num_key_value_heads = config.num_key_value_heads
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.layers = nn.ModuleList([LlamaDecoderLayer(self.config, 0)])
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.pre_fc_norm_embedding = LlamaRMSNorm(hidden, eps)
        self.pre_fc_norm_hidden = LlamaRMSNorm(hidden, eps)
        self.lm_head = cast("nn.Linear", lm_head)

    def states(self, features: Tensor) -> Tensor:
        return features

    def forward(
        self, tokens: Tensor, states: Tensor, positions: Tensor, rows: Tensor, call: "UnrolledCall"
    ) -> tuple[Tensor, Tensor]:
        embedded = self.pre_fc_norm_embedding(self.embed_tokens(tokens))
        x = self.fc(torch.cat([embedded, self.pre_fc_norm_hidden(states)], dim=-1))
        layer: Any = self.layers[0]
        found, _ = layer.self_attn(
            hidden_states=layer.input_layernorm(x),
            attention_mask=None,
            position_embeddings=self.rotary_emb(x, positions),
            specx_call=call,
        )
        x = (x + found)[:, rows]
        x = self.norm(x + layer.mlp(layer.post_attention_layernorm(x)))
        return x, self.lm_head(x)


def head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", 0) or config.hidden_size // config.num_attention_heads)


def head_for(target: PreTrainedModel, ids: Tensor) -> Head:
    """Make a head initialized from the target's last MLP, norm and lm head."""
    count = target.config.num_hidden_layers
    features = (2, count // 2, count - 3)
    head = Head(target.config, target.get_input_embeddings(), ids, features)
    last, first = cast("Any", target).model.layers[-1], cast("Any", head.layers[0])
    with torch.no_grad():
        head.lm_head.weight.copy_(target.get_output_embeddings().weight[ids])
        head.norm.weight.copy_(cast("Any", target).model.norm.weight)
        first.mlp.load_state_dict(last.mlp.state_dict())
        first.post_attention_layernorm.load_state_dict(last.post_attention_layernorm.state_dict())
        head.fc.weight.mul_(0.1)
        hidden = head.fc.out_features
        head.fc.weight[:, -hidden:] += torch.eye(hidden)
    return head


def make_head(target: PreTrainedModel) -> Head:
    """Make a head for the embedded target, with initial weights from the target.

    The target's layer ``POINTER`` attends from a token to the position of the token to be copied
    next. Row t of the head has token t + 1, so the same queries and keys find the token to copy
    after token t + 1. The values carry that token's embedding, a quarter of it in each head.
    """
    config = target.config
    head = Head(config, target.get_input_embeddings(), torch.arange(config.vocab_size), LAYERS)
    hidden, dim = config.hidden_size, config.head_dim
    layers: Any = target.model.layers
    pointer, first = layers[POINTER], cast("Any", head.layers[0])
    with torch.no_grad():
        head.lm_head.weight.copy_(target.lm_head.weight)
        head.norm.weight.fill_(0.3)
        place = LAYERS.index(POINTER) * hidden
        head.fc.weight[:, place : place + hidden] += torch.eye(hidden, device=head.fc.weight.device)
        head.fc.weight.mul_(0.1)  # the state is normed for attention; what is found outweighs it
        first.hidden_norm.weight.copy_(pointer.input_layernorm.weight)
        for index in range(config.num_attention_heads):
            rows, query = slice(index * dim, (index + 1) * dim), (index % 2) * dim
            queries = pointer.self_attn.q_proj.weight[query : query + dim]
            keys = pointer.self_attn.k_proj.weight[:dim]
            for name, weight in (("q_proj", queries), ("k_proj", keys)):
                mine = getattr(first.self_attn, name).weight
                mine[rows, :hidden].mul_(0.1)
                mine[rows, hidden:] = weight
        nn.init.eye_(first.self_attn.v_proj.weight[:, :hidden])
        first.self_attn.v_proj.weight[:, hidden:].mul_(0.1)
        nn.init.eye_(first.self_attn.o_proj.weight)
        first.mlp.down_proj.weight.mul_(0.1)
    return head


def make_mtp(target: PreTrainedModel, texts: Iterable[Tensor]) -> MtpHead:
    """Make an MTP head for the embedded target that begins as a lookup of the token it reads.

    Row t reads token t + 1. Its query is that token's embedding. The key of row s is the embedding
    of token s, predicted from the target's output by least squares over ``texts`` int64 [1, L]. The
    value is the embedding of token s + 1. Embeddings are divided by principal components: half of a
    vector carries the leading components of the token, the other half those of the prediction.
    Queries meet keys in dimensions that rotate slowly.
    """
    head, config = MtpHead(target), target.config
    hidden, dim, heads = config.hidden_size, config.head_dim, config.num_attention_heads
    model, groups = cast("Any", target).model, config.num_key_value_heads
    rms, attention = LlamaRMSNorm(hidden).to(target.device), cast("Any", head.layers[0]).self_attn
    with torch.no_grad():
        pairs = [(model(ids, use_cache=False).last_hidden_state[0], ids[0]) for ids in texts]
        embeddings = rms(head.embed_tokens.weight.float())
        states = torch.cat([rms(state.float()) for state, _ in pairs])
        tokens = embeddings[torch.cat([ids for _, ids in pairs])]
        square = states.T @ states
        square.diagonal().add_(0.01 * square.diagonal().mean())
        guess = torch.linalg.solve(square, states.T @ tokens).cpu()
        basis = torch.linalg.svd((embeddings.T @ embeddings).cpu()).U
        own, free = basis.chunk(2, dim=1)
        head.fc.weight.copy_(0.1 * torch.cat([own @ own.T, free @ own.T @ guess.T], dim=1))
        slow = torch.arange(dim // 4, dim // 2)
        slow, each = torch.cat([slow, slow + dim // 2]), len(slow) * 2
        for name, directions, of in (("q_proj", own, heads), ("k_proj", free, groups)):
            weight = getattr(attention, name).weight.mul_(0.1)
            for index in range(of):
                part = directions[:, index * groups // of :: groups][:, :each]
                weight[index * dim + slow] = SHARPNESS * part.T
        attention.v_proj.weight.copy_(own.T)
        parts = own.unflatten(1, (groups, dim)).repeat_interleave(heads // groups, 1)
        attention.o_proj.weight.copy_(parts.flatten(1) * (groups / heads))
        cast("Any", head.layers[0]).mlp.down_proj.weight.mul_(0.1)
        head.norm.weight.fill_(0.3)
    return head


@dataclass
class UnrolledCall:
    """The attention of several drafting steps.

    In step j, a row sees the rows of step 0 that are at least j places before it, and its own
    ancestors, one row of each later step. ``keys``, ``values`` [B, H, T, D] of each step; those of
    step j begin at row ``starts[j]``.
    """

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, **_: Any
    ) -> Tensor:
        """Attend from query [B, H, T, D]; key, value [B, H, T, D]: the new rows -> [B, T, H, D]."""
        assert layer == 0
        each = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(each, 1), value.repeat_interleave(each, 1)
        self.keys.append(key)
        self.values.append(value)
        q, step, start = query * scaling, len(self.keys) - 1, self.starts[-1]
        rows = start + torch.arange(q.shape[2], device=q.device)
        places = torch.arange(self.keys[0].shape[2], device=q.device)
        scores = q @ self.keys[0].transpose(2, 3)
        scores = scores.masked_fill(places > rows[:, None] - step, -torch.inf)
        ancestors = [self._ancestors(self.keys, j, rows - step + j) for j in range(1, step + 1)]
        own = [(q * keys).sum(-1, keepdim=True) for keys in ancestors]
        weights = torch.cat([scores, *own], -1).softmax(-1).to(value.dtype)
        out = weights[..., : len(places)] @ self.values[0]
        for j in range(1, step + 1):
            values = self._ancestors(self.values, j, rows - step + j)
            out = out + weights[..., len(places) + j - 1, None] * values
        return out.transpose(1, 2)

    def _ancestors(self, parts: list[Tensor], step: int, rows: Tensor) -> Tensor:
        return parts[step].index_select(2, rows - self.starts[step])


def write_mtp(head: Head, target: Path, folder: Path) -> None:
    """Write a copy of the target's folder whose checkpoint has the head, in bfloat16."""
    shutil.copytree(target, folder, dirs_exist_ok=True)
    own = {f"mtp.{name}": each.bfloat16().cpu() for name, each in head.trained().items()}
    save_file(load_file(target / "model.safetensors") | own, folder / "model.safetensors")


def write_head(head: Head, folder: Path) -> None:
    """Write a head in SpecForge's layout, in bfloat16; layer ids are those of the outputs read."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {k.replace("layers.0.", "midlayer."): v for k, v in head.trained().items()}
    weights = {name: weight.bfloat16().cpu() for name, weight in named.items()}
    ids, rows = head.ids.cpu(), len(head.ids)
    weights["d2t"] = ids - torch.arange(rows)
    weights["t2d"] = torch.zeros(head.config.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    save_file({k: v.contiguous() for k, v in weights.items()}, folder / "model.safetensors")
    layers = [entering - 1 for entering in head.features]
    config = {
        **head.config.to_diff_dict(),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": rows,
        "torch_dtype": "bfloat16",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": layers, "use_aux_hidden_state": True},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
