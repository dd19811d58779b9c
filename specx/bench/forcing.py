"""A known text through target and draft, token by token, and the expectations of both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

from specx.bench.methods import BenchMethod
from specx.bench.methods.engine import Engine
from specx.bench.prefill import read_together
from specx.bench.runs import Setting
from specx.engine.methods import Pair
from specx.engine.model_drafter import ModelDrafter
from specx.engine.workspace import AHEAD
from specx.errors import UsageError
from specx.kernels.trees import MAX_ROWS, Path, root_only
from specx.models.head_files import LoadedHead


@dataclass(frozen=True)
class Expectation:
    """The expectations of target and draft in the place of ``token``, after all the text before it.

    ``target``, ``draft``: log probabilities, float32 [V], of the ids that both may write and −inf
    elsewhere; ids and V are the target's.
    """

    token: int
    target: Tensor
    draft: Tensor

    @property
    def draft_is_right(self) -> bool:
        """True if the draft would have proposed the token first."""
        return int(self.draft.argmax()) == self.token

    @property
    def target_is_right(self) -> bool:
        return int(self.target.argmax()) == self.token


def drafts_with_a_model(method: BenchMethod, setting: Setting) -> TypeGuard[Engine]:
    """Return True for a method whose drafts are those of a draft model alone."""
    return isinstance(method, Engine) and isinstance(method.drafter(setting)(1), ModelDrafter)


def model_drafting(methods: Sequence[BenchMethod], setting: Setting) -> list[Engine]:
    """Return the methods that draft with a model: only these have an expectation.

    Raises UsageError when there is none.
    """
    found = [method for method in methods if drafts_with_a_model(method, setting)]
    if not found:
        raise UsageError(
            "this experiment asks drafts for probabilities; name a method that drafts with a "
            "model, such as specextend"
        )
    return found


@torch.inference_mode()
def force(
    method: Engine, setting: Setting, prompt: Sequence[int], output: Sequence[int]
) -> Iterator[Expectation]:
    """Feed ``output`` behind ``prompt`` and tell what target and draft expected in its place.

    It is decoding with a step for every token: the draft reads what was emitted, retrieves when
    its policy is due, and the target reads one token behind it. Yields from the second token on:
    the first is decided before there is a draft.
    """
    pair, device = setting.pair, setting.pair.target.device
    longest = len(prompt) + len(output) + AHEAD
    drafter = method.drafter(setting)(longest)
    assert isinstance(drafter, ModelDrafter)
    target = setting.target(pair.target, longest + MAX_ROWS, drafter.retrieval_layer)
    text, tokens = (torch.tensor(ids, device=device) for ids in (prompt, output))
    read_together(target, drafter, text)
    drafter.commit(Path.of(tokens[:1]))
    own, ids = _shared_ids(pair)
    forbidden = torch.ones_like(pair.target_allowed).index_fill(0, ids, False)
    for place in range(1, len(output)):
        if drafter.retrieval_due(place - 1):
            drafter.retrieve(target)
        drafted = drafter.read_pending()[0].to(device)
        drafted = drafted.new_zeros(len(forbidden)).index_copy(0, ids, drafted[own])
        verified = target.verify(root_only(tokens[place - 1 : place]))[0]
        yield Expectation(
            output[place], _logprobs(verified, forbidden), _logprobs(drafted, forbidden)
        )
        path = Path.of(tokens[place : place + 1])
        target.keep(path)
        drafter.commit(path)


def _shared_ids(pair: Pair) -> tuple[Tensor, Tensor]:
    """Return the ids that both may write, as the draft and as the target count them: int64 [n]."""
    assert pair.draft_allowed is not None
    own = pair.draft_allowed.to(pair.target.device).nonzero().flatten()
    ids = pair.draft.model.target_ids[own] if isinstance(pair.draft, LoadedHead) else own
    known = ids < pair.target.vocab_size
    own, ids = own[known], ids[known]
    both = pair.target_allowed[ids]
    return own[both], ids[both]


def _logprobs(logits: Tensor, forbidden: Tensor) -> Tensor:
    return logits.float().masked_fill(forbidden, -torch.inf).log_softmax(-1)
