"""A model tried out in pieces and on a branching tree, beside transformers' own pass.

The config of a model says neither that its tokens see none behind them nor that it heeds the
positions that it is given. The decoder of Bart and BERT with a head for tokens load like any other
causal model and compute something else as soon as a text comes in pieces.
"""

from typing import Any

import torch
from torch import Tensor

from specx.errors import ModelError
from specx.kernels.ancestors import AncestorMask
from specx.kernels.torch.backend import TorchOps
from specx.models.call import PrefillCall, SlotMapping, TreeCall
from specx.models.load import LoadedModel
from specx.models.reason import reason
from specx.models.seam import attending
from specx.models.seam_cache import SeamCache

PREFIX, SETS = 4, (0b1, 0b11, 0b101)  # tokens in front of a root with two children
ROUNDING = 16  # of a number format, with which logits may differ, or a thousandth of their spread
QUANTIZED = 0.25  # of their spread: what is quantized as it comes differs between two shapes


@torch.no_grad()
def check_pieces(loaded: LoadedModel, label: str, *, is_quantized: bool = False) -> None:
    """Compare logits of a chunk and a tree with those of whole texts. Raises ModelError."""
    model = loaded.model
    ids = torch.linspace(loaded.vocab_size // 4, 3 * loaded.vocab_size // 4, PREFIX + len(SETS))
    ids = ids.long().to(loaded.device)
    texts = torch.stack([ids[: PREFIX + 2], ids[[*range(PREFIX + 1), PREFIX + 2]]])
    try:
        with attending(model, "eager"):
            whole = [model(input_ids=text[None], use_cache=False).logits[0] for text in texts]
        logits = _in_pieces(loaded, ids)
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise ModelError(
            f"{label} ({type(model).__name__}) fails on a trial run in pieces ({reason(error)}); "
            "choose another model."
        ) from error
    expected = torch.cat([whole[0][:-1], whole[0][-1:], whole[1][-1:]]).float()
    apart = (logits.float() - expected).abs().amax(-1) / expected.std().clamp_min(1e-12)
    limit = max(1e-3, ROUNDING * torch.finfo(loaded.dtype).eps, QUANTIZED * is_quantized)
    if not bool((apart <= limit).all()):  # what is not finite is no smaller, either
        raise ModelError(
            f"{label} ({type(model).__name__}) computes other logits in pieces than at once: its "
            "tokens see those behind them, or it ignores the positions that it is given; choose a "
            "causal language model."
        )


def _in_pieces(loaded: LoadedModel, ids: Tensor) -> Tensor:
    """Return logits [T, V] of tokens: a chunk, and behind it a root with two children.

    Attention is torch's on every device: kernels have tests of their own, and take a while to be
    compiled.
    """
    model, device, count = loaded.model, loaded.device, len(ids)
    shape = (loaded.num_layers, 2, loaded.num_kv_heads, count, loaded.head_dim)
    storage = torch.zeros(shape, dtype=loaded.dtype, device=device)
    length = torch.zeros(1, dtype=torch.int64, device=device)
    rows, cache = torch.arange(count, device=device), SeamCache(loaded.num_layers, length, count)
    chunk: Any = PrefillCall(ops=TorchOps(), mapping=SlotMapping(storage, rows[:PREFIX]), past=0)
    tree: Any = TreeCall(
        ops=TorchOps(),
        mapping=SlotMapping(storage, rows[PREFIX:]),
        prefix=torch.full_like(length, PREFIX),
        mask=AncestorMask(torch.tensor(SETS, device=device)[:, None], len(SETS)),
    )
    positions = torch.cat([rows[: PREFIX + 2], rows[PREFIX + 1 : PREFIX + 2]])
    found = []
    for call, part in ((chunk, slice(PREFIX)), (tree, slice(PREFIX, count))):
        given = {"past_key_values": cache, "use_cache": True, "specx_call": call}
        output = model(input_ids=ids[part][None], position_ids=positions[part][None], **given)
        found.append(output.logits[0])
        length.fill_(PREFIX)
    return torch.cat(found)
