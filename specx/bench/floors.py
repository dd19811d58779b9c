"""The floor of each part of a step: the minimum time that it can take.

A floor is the larger of two times. The first is the number of bytes that a part has to read,
divided by the bandwidth of a copy measured in the same run (on a CPU: of reading). The second is
the number of operations of the part's products, divided by the rate of a large product. Either one
can limit the verification of several rows.
"""

from specx.decoding.methods import Pair
from specx.models.decoder_files import tensors_of
from specx.models.head_files import LoadedHead
from specx.models.loaded import LoadedModel
from specx.ops.byte_rows import row_size
from specx.ops.ceilings import Ceilings
from specx.ops.delta_state import wide_format
from specx.profile import Profile, TreeSettings


def read_bytes(model: LoadedModel, rows: int = 1) -> float:
    """Return the bytes of weights that a pass over few rows reads.

    Embedding lookups are not counted. The number of experts read is the expected one if rows choose
    experts at random. For an EAGLE-3 head, the pass is one level of a tree, whose inputs are the
    head's own states instead of the target's features.
    """
    if isinstance(model, LoadedHead):
        return _bytes(model)
    return _bytes(model) - model.model.saved_bytes - _untouched(model, rows)


def _untouched(model: LoadedModel, rows: int) -> float:
    """Return the bytes of experts that ``rows`` rows leave unread."""
    if not model.runs_natively:
        return 0.0
    left = 0.0
    for layer in model.model.weights.layers:
        experts, maps = layer.spec.mlp.experts, (layer.gate_up, layer.down)
        if experts is not None:
            size = sum(each.weight.nbytes for each in maps)
            left += size * (1 - experts.touched(rows) / experts.count)
    return left


def _bytes(model: LoadedModel) -> int:
    if isinstance(model, LoadedHead):
        return _bytes_of_head(model)
    embedding, head = model.vocabulary_weights
    return model.weight_bytes - (
        0 if embedding is head else sum(t.nbytes for t in tensors_of(embedding))
    )


def _bytes_of_head(model: LoadedHead) -> int:
    weights = model.model.weights
    unread = [weights.embedding, weights.target_ids]
    unread += tensors_of([layer.spec for layer in weights.layers])  # frequencies, no weights
    unread += tensors_of(weights.fc) if model.spec.input.fc == "features" else []
    left = {weight.data_ptr() for weight in tensors_of(unread)}
    left -= {weight.data_ptr() for weight in tensors_of(weights.head)}  # may be the embedding
    sizes = {weight.data_ptr(): weight.nbytes for weight in tensors_of(weights)}
    return sum(size for place, size in sizes.items() if place not in left)


def cache_bytes(model: LoadedModel, rows: int) -> int:
    """Return the bytes of keys and values that a token reads after ``rows`` other rows."""
    return sum(_cache_bytes_by_layer(model, rows))


def _cache_bytes_by_layer(model: LoadedModel, rows: int) -> list[int]:
    dtype = model.cache_dtype or model.dtype
    wide = wide_format(model.dtype).itemsize
    return [
        2 * attention.query_heads * attention.delta.key_dim * attention.head_dim * wide
        if attention.delta is not None  # a state, which is read and written
        else 2
        * attention.kv_heads
        * attention.seen(rows)
        * row_size(attention.head_dim, dtype)
        * dtype.itemsize
        for attention in (layer.attention for layer in model.decoder_spec.layers)
    ]


def floors(
    pair: Pair, profile: Profile, ceilings: Ceilings, prompt: int, *, drafts: bool
) -> dict[str, float]:
    """Return the floors of prefill and of a step's parts after ``prompt`` tokens, in ms.

    ``drafts``: True if the pair's draft model is to grow a tree of ``profile.tree`` at each step.
    """
    target, draft = pair.target, pair.draft
    cached = cache_bytes(target, prompt)
    body, _ = _weights(target)
    layers = target.decoder_spec.layers
    attention = sum(each.attention.prefill_flop(prompt) for each in layers)
    rows = profile.tree.nodes + 1 if drafts and isinstance(profile.tree, TreeSettings) else 1
    found = {
        "target_prefill": (2 * body * prompt + attention) / ceilings.matmul,
        "verification": (read_bytes(target, rows) + cached) / ceilings.bandwidth,
    }
    if drafts and target.device.type == "cpu" and isinstance(profile.tree, TreeSettings):
        found["verification"] = pass_floor(target, ceilings, prompt, rows)
    if drafts and draft is not None and isinstance(profile.tree, TreeSettings):
        working = profile.draft_cache.working_tokens or prompt
        level = read_bytes(draft, profile.tree.continued) + cache_bytes(draft, working)
        if pair.draft_ids:  # of its lm head it reads the rows of these
            head = draft.vocabulary_weights[1]
            level -= head.nbytes * (1 - pair.draft_ids / len(head))
        found["drafting"] = profile.tree.depth * level / ceilings.bandwidth
    if drafts and profile.draft_cache.policy == "cross-model":  # it reads the keys of a layer
        found["retrieval"] = max(_cache_bytes_by_layer(target, prompt)) / 2 / ceilings.bandwidth
    return {part: 1e3 * seconds for part, seconds in found.items()}


def pass_floor(model: LoadedModel, ceilings: Ceilings, prompt: int, rows: int) -> float:
    """Return the floor of a pass over ``rows`` rows after ``prompt`` tokens on a CPU, in seconds.

    It is the larger of two times: of reading weights and cache, and of the matrix products, which
    limit a CPU even with few rows.
    """
    read = (read_bytes(model, rows) + cache_bytes(model, prompt)) / ceilings.bandwidth
    body, head = _weights(model)
    attention = sum(each.attention.token_flop(prompt) for each in model.decoder_spec.layers)
    return max(read, rows * (2 * (body + head) + attention) / ceilings.matmul)


def _weights(model: LoadedModel) -> tuple[float, float]:
    """Return the number of weights multiplied per token: of the layers, and of the lm head."""
    head = model.vocabulary_weights[1].numel()
    if not model.runs_natively or isinstance(model, LoadedHead):
        return _bytes(model) / model.dtype.itemsize - head, head
    body = 0.0
    for layer in model.model.weights.layers:
        experts = layer.spec.mlp.experts
        share = 1.0 if experts is None else experts.chosen / experts.count
        body += layer.qkv.weight.numel() + layer.out.weight.numel()
        body += share * (layer.gate_up.weight.numel() + layer.down.weight.numel())
        gate = 0 if layer.gate is None else layer.gate.weight.numel()
        apart = tensors_of([layer.routing, layer.per_layer, layer.delta, layer.latent])
        body += gate + sum(each.numel() for each in apart)
    return body, head
