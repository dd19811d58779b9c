"""Run a known text through target and draft, token by token, and return the draft's predictions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specx.bench.runs import Setting, read_together
from specx.decoding.head_drafter import HeadDrafter, HeadGrower
from specx.decoding.methods import Pair
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.workspace import AHEAD
from specx.models.head_files import LoadedHead
from specx.ops.trees import MAX_ROWS, Level, Path, root_only
from specx.profile import TreeSettings

if TYPE_CHECKING:
    from specx.bench.methods.engine import Engine


@dataclass(frozen=True)
class Expectation:
    """The draft's prediction of ``token``.

    ``draft``: log probabilities float32 [V] in the target's ids; −inf for ids that one of the
    models cannot write. ``ahead``: for a head that reads its own output, True for each later token
    that is the head's first choice.
    """

    token: int
    draft: Tensor
    ahead: tuple[bool, ...] = ()

    @property
    def draft_is_right(self) -> bool:
        """Return True if the draft proposes the token first."""
        return int(self.draft.argmax()) == self.token


@torch.inference_mode()
def force(
    method: "Engine",
    setting: Setting,
    prompt: Sequence[int],
    output: Sequence[int],
    levels: int = 1,
) -> Iterator[Expectation]:
    """Decode a known ``output``; yield the draft's prediction of each token from the second on.

    ``levels``: the number of tokens that a head drafts at each token.
    """
    pair, device = setting.pair, setting.pair.target.device
    longest = len(prompt) + len(output) + AHEAD
    drafter = method.drafter(setting)(longest)
    assert isinstance(drafter, ModelDrafter)
    target = setting.target(pair.target, longest + MAX_ROWS, drafter.retrieval_layer)
    text, tokens = (torch.tensor(ids, device=device) for ids in (prompt, output))
    read_together(target, drafter, text)
    drafter.commit(Path.of(tokens[:1]))
    own, ids = shared_ids(pair)
    reader = None
    if isinstance(drafter, HeadDrafter):
        chain = TreeSettings(nodes=levels, depth=levels, width=1, threshold=0)
        reader = HeadGrower(drafter.model, drafter.allowed, chain)
    forbidden = torch.ones_like(pair.target_allowed).index_fill(0, ids, False)
    for place in range(1, len(output)):
        every = drafter.retrieve_every
        if every is not None and place > 1 and (place - 1) % every == 0:
            drafter.retrieve(target)
        drafted = drafter.read_pending()[0].to(device)
        known = tokens[place : place + levels]
        ahead = _right_ahead(drafter, reader, known) if reader else ()
        drafted = drafted.new_zeros(len(forbidden)).index_copy(0, ids, drafted[own])
        target.verify(root_only(tokens[place - 1 : place]))
        expected = drafted.float().masked_fill(forbidden, -torch.inf).log_softmax(-1)
        yield Expectation(output[place], expected, ahead)
        path = Path.of(tokens[place : place + 1])
        target.keep(path)
        drafter.commit(path)


def _right_ahead(drafter: ModelDrafter, grower: HeadGrower, tokens: Tensor) -> tuple[bool, ...]:
    """Return for each of tokens int64 [n], except the first, True if the head proposes it first.

    The head reads the known tokens with its own states, as in a tree.
    """
    assert isinstance(drafter, HeadDrafter)
    grower.states[:1] = drafter.grower.states[:1]
    sure, inputs, choices = torch.zeros(1, device=tokens.device), None, [tokens[:1]]
    for depth in range(1, len(tokens)):
        token = tokens[depth - 1 : depth]
        level, own = Level(token, torch.zeros_like(token), sure), grower.own[depth - 1]
        logits, inputs = grower.read(level, inputs, own, depth, drafter.cache.working)
        first = drafter.model.ops.most_probable(logits, grower.forbidden)
        choices.append(drafter.model.model.target_ids[first])
    found: list[bool] = torch.cat(choices).eq(tokens)[1:].tolist()
    return tuple(found)


def shared_ids(pair: Pair) -> tuple[Tensor, Tensor]:
    """Return the ids that both models may write, in the draft's ids and the target's: [n] each."""
    assert pair.draft_allowed is not None
    own = pair.draft_allowed.to(pair.target.device).nonzero().flatten()
    ids = pair.draft.model.target_ids[own] if isinstance(pair.draft, LoadedHead) else own
    known = ids < pair.target.vocab_size
    own, ids = own[known], ids[known]
    both = pair.target_allowed[ids]
    return own[both], ids[both]
