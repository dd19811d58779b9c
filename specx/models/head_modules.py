"""From a head's checked tensors to a loaded head whose modules are transformers'.

Only experiments use it, which read and write its modules; others have a ``HeadDecoder``.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specx.models import attention
from specx.models.fused_head import fuse_head
from specx.models.head import Head
from specx.models.head_config import HeadChoices, read_head_spec
from specx.models.head_files import NO_LIMIT, HeadFiles, LoadedHead, checked, target_ids
from specx.models.load import DTYPES, LoadedModel, ModelSpec, attending_ops
from specx.models.rope import rope_facts
from specx.models.seam import check_rotation, check_seam


def load_head_modules(
    files: HeadFiles, spec: ModelSpec, target: LoadedModel, choices: HeadChoices
) -> LoadedHead:
    """Build the head for its target, and see that specx computes it correctly.

    Raises ModelError that names the key or tensor which is missing, superfluous or wrong.
    """
    label, tensors, dtype = files.label, files.tensors, DTYPES[spec.dtype] or target.dtype
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    shape = read_head_spec(files.raw, shapes, target, choices, label)
    own = _vocabulary_modules(target)
    shared = {id(p) for module in own for p in module.parameters()}
    with torch.device("meta"):
        head = Head(shape, *own)
    expected = {name: p for name, p in head.named_parameters() if p.is_meta}
    weights = checked(tensors, {name: tuple(p.shape) for name, p in expected.items()}, label)
    ids = target_ids(tensors, shape, target, label)
    moved = {name: tensor.to(target.device, dtype) for name, tensor in weights.items()}
    head.load_state_dict(moved, assign=True, strict=False)
    head.target_ids = ids.to(target.device)
    head.rotary_emb = LlamaRotaryEmbedding(head.config).to(target.device)
    attention.register()
    head.config._attn_implementation = attention.NAME
    head = head.eval().requires_grad_(False)
    loaded = _loaded(head, target, spec.model, shared)
    check_seam(_Probed(head), loaded, label, 1)
    check_rotation(_Probed(head), loaded, label)
    fuse_head(head, loaded.ops)
    return loaded


def _vocabulary_modules(target: LoadedModel) -> tuple[nn.Module, nn.Module]:
    """Return a target's embedding and lm head, of which there is no other copy."""
    if target.decoder_spec is None:
        return target.model.get_input_embeddings(), target.model.get_output_embeddings()
    embedding, weight = target.vocabulary_weights
    bias = target.model.weights.head.bias
    with torch.device("meta"):
        head = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    head.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        head.bias = nn.Parameter(bias, requires_grad=False)
    return nn.Embedding.from_pretrained(embedding), head


def _loaded(head: Head, target: LoadedModel, source: str, shared: set[int]) -> LoadedHead:
    config, dtype = head.config, head.fc.weight.dtype
    return LoadedHead(
        spec=head.spec,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        vocab_size=len(head.target_ids),
        window=head.spec.window or NO_LIMIT,
        eos_token_ids=target.eos_token_ids,
        rope=rope_facts(head),
        model=head,
        tokenizer=target.tokenizer,
        source=source,
        dtype=dtype,
        device=target.device,
        weight_bytes=sum(p.nbytes for p in head.parameters() if id(p) not in shared),
        ops=attending_ops(source, target.ops.attention_by, target.device, dtype, config.head_dim),
    )


class _Probed:
    """A head as the seam's trial runs call a model: with tokens alone."""

    def __init__(self, head: Head) -> None:
        self.head, self.config, self.device = head, head.config, head.target_ids.device

    def __call__(self, input_ids: Tensor, position_ids: Tensor, **attention: Any) -> None:
        embed: Any = self.head.embed_tokens
        ids = self.head.target_ids[input_ids].clamp(max=embed.num_embeddings - 1)
        embedded = embed(ids)
        states = embedded.to(self.head.fc.weight.dtype)
        self.head(ids, states, position_ids, **attention)
