"""Trial runs of a loaded transformers model, before anything relies on the seam.

Two tokens that attend only to themselves show how each layer calls the attention interface. A chunk
and a branching tree are compared with transformers' own pass. They show what no config states: that
attention is causal, and that positions are used. (Bart and BERT load like other causal models.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specx.errors import ModelError, reason
from specx.models.call import PrefillCall, SlotMapping, TreeCall
from specx.models.facts import error_of
from specx.models.loaded import LoadedModel
from specx.models.seam_config import check_window
from specx.models.source import not_supported
from specx.ops.ancestors import AncestorMask
from specx.ops.torch.backend import TorchOps

_SHIFT = 13  # positions; far enough to turn every frequency that matters
_TOLERANCE = 0.05  # relative, mean over pairs; bfloat16 costs 0.005, a wrong rotation above 0.3
_UNDERSTOOD = frozenset(  # keyword arguments that do not change what attention computes
    {"attention_mask", "dropout", "sliding_window", "position_ids", "is_causal", "use_cache"}
    | {"cache_position", "position_embeddings", "output_attentions", "output_hidden_states"}
    | {"output_router_logits", "return_dict"}
)
_SPOKEN = {"s_aux": "attention sinks (s_aux)", "softcap": "logit soft-capping (softcap)"}
_PREFIX, _SETS = 4, (0b1, 0b11, 0b101)  # tokens in front of a root with two children
_ROUNDING = 16  # of a number format, with which logits may differ, or a thousandth of their spread
_FAILURES = (TypeError, ValueError, RuntimeError, AttributeError, IndexError)


@dataclass(kw_only=True)
class _WatchedCall(TreeCall):
    """A tree call that passes each layer's call to ``check``.

    ``seen``: the layers that have attended, each with its factor of scores.
    """

    check: Callable[[int, tuple[Tensor, ...], dict[str, Any]], None]
    seen: list[tuple[int, float]] = field(default_factory=list)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, **more: Any
    ) -> Tensor:
        self.check(layer, (query, key, value), more)
        self.seen.append((layer, float(scaling)))
        return super().attend(layer, query, key, value, scaling)


def _named(loaded: LoadedModel, label: str) -> str:
    return f"{label} ({type(loaded.model.module).__name__})"


def check_rotation(loaded: LoadedModel, label: str, positions: int) -> None:
    """Check that rotating every layer's keys gives the keys of other positions.

    Retrieval moves cached keys with ``ops.torch.cache.rotate``, which is exact only for the RoPE
    layout stated in ``LoadedModel``. The test uses tokens that attend only to themselves, since the
    keys of all their layers depend on positions only through RoPE. Raises ModelError.
    """
    ropes = loaded.decoder_spec.ropes
    near, far = (run_apart(loaded, label, positions, first)[1][:, 0] for first in (0, _SHIFT))
    for layer, (here, there) in enumerate(zip(near, far, strict=True)):
        if not ropes or error_of(ropes[0].inv_freq, here, there, _SHIFT) > _TOLERANCE:
            raise ModelError(
                f"{_named(loaded, label)} rotates the keys of layer {layer} differently from "
                "Llama, so retrieval cannot move them; choose a draft of the Llama, Mistral or "
                "Qwen families."
            )


@torch.no_grad()
def check_pieces(loaded: LoadedModel, label: str) -> None:
    """Raise ModelError if a chunk or a tree gets other logits than whole texts."""
    module = loaded.model.module
    first, count = loaded.vocab_size // 4, _PREFIX + len(_SETS)
    ids = torch.linspace(first, 3 * first, count).long().to(loaded.device)
    texts = [ids[: _PREFIX + 2], ids[[*range(_PREFIX + 1), _PREFIX + 2]]]
    try:
        own, module.config._attn_implementation = module.config._attn_implementation, "eager"
        whole = [module(input_ids=text[None], use_cache=False).logits[0] for text in texts]
        module.config._attn_implementation = own
        logits = _in_pieces(loaded, ids)
    except _FAILURES as error:
        what = f"fails a trial run in chunks ({reason(error)})"
        raise ModelError(f"{_named(loaded, label)} {what}; choose another model.") from error
    expected = torch.cat([whole[0], whole[1][-1:]]).float()
    apart = (logits.float() - expected).abs().amax(-1) / expected.std().clamp_min(1e-12)
    limit = max(1e-3, _ROUNDING * torch.finfo(loaded.dtype).eps)
    if not bool((apart <= limit).all()):  # what is not finite is no smaller, either
        raise ModelError(
            f"{_named(loaded, label)} computes different logits in chunks than at once: its "
            "tokens attend to later ones, or it ignores positions; choose a causal language "
            "model."
        )


def _in_pieces(loaded: LoadedModel, ids: Tensor) -> Tensor:
    """Return logits [T, V] of tokens read as a chunk, then a root with two children."""
    run, rows = loaded.model.run, torch.arange(len(ids), device=ids.device)
    tree = TreeCall(**_tree(loaded, len(ids), _SETS))
    mapping = replace(tree.mapping, slots=rows[:_PREFIX])
    chunk = PrefillCall(ops=tree.ops, mapping=mapping, past=0)
    first = run(ids[:_PREFIX], rows[:_PREFIX], chunk)
    positions = rows[[*range(_PREFIX, _PREFIX + 2), _PREFIX + 1]]
    return torch.cat([first, run(ids[_PREFIX:], positions, tree)])


@torch.no_grad()
def run_apart(
    loaded: LoadedModel, label: str, positions: int, first: int = 0
) -> tuple[tuple[float, ...], Tensor]:
    """Run two tokens, at ``first`` and the next position, each of which attends only to itself.

    Return the score factor of each layer, and the stored keys and values [layers, 2, Hkv, 2, D].
    ``positions``: the number of usable positions. Raises ModelError if a layer does not call the
    attention interface, if it does not pass on extra keyword arguments, or if attention needs
    something that specx does not compute.
    """
    check = partial(_check_call, loaded, label, positions)
    call = _WatchedCall(**_tree(loaded, 2, (0b1, 0b10)), check=check)
    # Two ids from the middle: the embeddings of the first and last ids are often padding.
    ids = torch.tensor([loaded.vocab_size // 3, loaded.vocab_size // 2], device=loaded.device)
    try:
        loaded.model.run(ids, first + call.mapping.slots, call)
    except _FAILURES as error:
        if "specx_call" in str(error):
            what = "does not pass extra keyword arguments on to its attention"
            raise not_supported(label, what) from error
        when = "" if call.seen else " before any layer calls transformers' attention interface"
        what = f"fails on a trial run of two tokens{when} ({reason(error)})"
        raise ModelError(f"{_named(loaded, label)} {what}; choose another model.") from error
    layers = [layer for layer, _ in call.seen]
    if layers != list(range(loaded.num_layers)):
        what = f"calls the attention interface of transformers in {len(set(layers))} of "
        raise not_supported(label, f"{what}{loaded.num_layers} layers")
    return tuple(scaling for _, scaling in call.seen), torch.stack([*call.mapping.storage])


def _check_call(
    loaded: LoadedModel, label: str, positions: int,
    layer: int, heads: Sequence[Tensor], more: dict[str, Any],
) -> None:  # fmt: skip
    what = None
    unknown = sorted(k for k, v in more.items() if v is not None and k not in _UNDERSTOOD)
    attention = loaded.attention_of(layer)
    every = attention.query_heads, attention.kv_heads, attention.kv_heads
    shapes = [(1, count, 2, attention.head_dim) for count in every]
    if unknown:
        what = f"that needs {_SPOKEN.get(unknown[0], unknown[0])}"
    elif more.get("attention_mask") is not None:
        what = "with a mask of its own"
    elif [tuple(t.shape) for t in heads] != shapes:
        what = "whose heads do not have the shape that its config states"
    if what is not None:
        raise not_supported(label, f"has an attention (layer {layer}) {what}")
    check_window(more.get("sliding_window"), label, positions)


def _tree(loaded: LoadedModel, rows: int, sets: Sequence[int]) -> dict[str, Any]:
    """Return the call for a tree in the last rows; row i sees the rows in ``sets[i]``.

    Attention is torch's on every device, because kernels are tested separately and need
    compilation.
    """
    attention = loaded.decoder_spec.softmax
    shape = (loaded.num_layers, 2, attention.kv_heads, rows, attention.head_dim)
    slots = torch.arange(rows - len(sets), rows, device=loaded.device)
    storage = torch.zeros(shape, dtype=loaded.dtype, device=loaded.device)
    mask = AncestorMask(torch.tensor(sets, device=loaded.device)[:, None], len(sets))
    mapping, ops = SlotMapping(storage, slots), TorchOps()
    return {"ops": ops, "mapping": mapping, "prefix": slots[:1].clone(), "mask": mask}
