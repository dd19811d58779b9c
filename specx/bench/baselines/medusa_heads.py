"""Medusa heads: from the target's last hidden state to tokens further ahead, one head a token.

The layout is that of FasterDecoding's checkpoints: ``medusa_lm_head.pt`` or ``.safetensors`` with
tensors ``HEAD.BLOCK.linear.weight``, ``HEAD.BLOCK.linear.bias`` and ``HEAD.BLOCKS.weight``, the
head's own lm head. Where all lack that, they share the target's.
"""

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import silu

from specx.errors import ModelError
from specx.models import hub
from specx.models.load import LoadedModel
from specx.ops.layers import RowFunction
from specx.profile import HUB_ID

FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
EMBEDDED_MEDUSA = "embedded:medusa"
_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")
_LM_HEAD = re.compile(r"(\d+)\.(\d+)\.weight")


class ResidualBlock(nn.Module):
    """A linear map, SiLU, and what came in. It begins as the identity."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + silu(self.linear(x))


class MedusaHeads(nn.Module):
    """Heads of residual blocks. Head k guesses the token k + 2 places behind a state.

    ``blocks``: of each head; ``lm_heads``: the last map of each, where they do not share the
    target's.
    """

    def __init__(
        self, heads: int, blocks: int, size: int, lm_head: RowFunction, rows: int = 0
    ) -> None:
        """``lm_head``: the target's, from states [T, H]; ``rows``: of heads' own lm
        heads, 0 where they share it."""
        super().__init__()
        chains = [[ResidualBlock(size) for _ in range(blocks)] for _ in range(heads)]
        self.blocks = nn.ModuleList(nn.Sequential(*chain) for chain in chains)
        own = [nn.Linear(size, rows, bias=False) for _ in range(heads if rows else 0)]
        self.lm_heads = nn.ModuleList(own)
        self._shared = (lm_head,)  # not itself, or a module would become a part of the heads

    def forward(self, states: Tensor, heads: int | None = None) -> list[Tensor]:
        """Return logits [T, V] of the first ``heads`` heads for the target's states [T, H]."""
        lm_heads: Iterable[Any] = self.lm_heads or self._shared * len(self.blocks)
        chosen = list(zip(self.blocks, lm_heads, strict=True))[:heads]
        return [lm_head(blocks(states)) for blocks, lm_head in chosen]


def load_medusa(model: str, target: LoadedModel) -> MedusaHeads:
    """Load heads for a target: a folder, a hub id, or the embedded ones.

    Raises ModelError that names the tensor which is missing, superfluous or of the wrong shape.
    """
    label = f"The draft {model}"
    tensors = _read(_find(model, label), label)
    heads, blocks, rows = _sizes(tensors, label)
    size, lm_head = target.hidden_size, target.model.logits
    if rows and rows != target.vocab_size:
        raise ModelError(
            f"{label} was made for another target: its 0.{blocks}.weight has {rows} rows, the "
            f"target's lm head {target.vocab_size}."
        )
    with torch.device("meta"):
        loaded = MedusaHeads(heads, blocks, size, lm_head, rows)
    found = {_own_name(name, blocks): tensor for name, tensor in tensors.items()}
    expected = {name: part.shape for name, part in loaded.named_parameters() if part.is_meta}
    for name, shape in expected.items():
        given = found.get(name)
        if given is None or given.shape != shape:
            public = _public_name(name, blocks)
            what = "lacks the tensor" if given is None else f"has {list(given.shape)} for"
            raise ModelError(f"{label} {what} {public}; the target calls for {list(shape)}.")
    moved = {name: found[name].to(target.device, target.dtype) for name in expected}
    loaded.load_state_dict(moved, assign=True, strict=False)
    return loaded.eval().requires_grad_(False)


def public_names(heads: MedusaHeads) -> dict[str, Tensor]:
    """Return the heads' own tensors by the names of the public layout."""
    blocks = len(list(heads.blocks[0].children()))
    return {
        _public_name(f"blocks.{name}", blocks): part.detach()
        for name, part in heads.blocks.named_parameters()
    }


def _own_name(name: str, blocks: int) -> str:
    if _BLOCK.fullmatch(name):
        return f"blocks.{name}"
    return (
        name.replace(f".{blocks}.", ".")
        if not _LM_HEAD.fullmatch(name)
        else (f"lm_heads.{name.partition('.')[0]}.weight")
    )


def _public_name(name: str, blocks: int) -> str:
    kind, _, rest = name.partition(".")
    return rest if kind == "blocks" else rest.replace(".weight", f".{blocks}.weight")


def _find(model: str, label: str) -> Path:
    if model == EMBEDDED_MEDUSA:
        folder = Path(str(resources.files("specx.models"))) / "embedded" / "medusa"
    elif HUB_ID.fullmatch(model):
        folder = hub.fetch_files(model, None, label, FILES)
    else:
        folder = Path(model).expanduser()
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    raise ModelError(f"{label} has no {' or '.join(FILES)}.")


def _read(file: Path, label: str) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, SafetensorError, UnpicklingError, EOFError) as error:
        raise ModelError(f"{label} has a damaged {file.name}.") from error
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
        raise ModelError(f"{label} has a {file.name} that is no set of tensors.")
    return found


def _sizes(tensors: dict[str, Tensor], label: str) -> tuple[int, int, int]:
    """Return the numbers of heads, of blocks in each, and of rows of their lm heads."""
    blocks = [match for match in map(_BLOCK.fullmatch, tensors) if match]
    lm_heads = [match for match in map(_LM_HEAD.fullmatch, tensors) if match]
    known = {match.string for match in (*blocks, *lm_heads)}
    for name in tensors:
        if name not in known:
            raise ModelError(f"{label} has a tensor {name}, which Medusa heads have not.")
    if not blocks:
        raise ModelError(f"{label} lacks the tensor 0.0.linear.weight of Medusa heads.")
    heads, each = _count(blocks, 1), _count(blocks, 2)
    for match in lm_heads:
        if int(match[2]) != each or int(match[1]) >= heads:
            raise ModelError(f"{label} has a tensor {match.string}, which Medusa heads have not.")
    return heads, each, len(tensors[lm_heads[0].string]) if lm_heads else 0


def _count(matches: Sequence[re.Match[str]], group: int) -> int:
    return 1 + max(int(match[group]) for match in matches)
