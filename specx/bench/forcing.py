"""A known text through target and draft, token by token, and the expectations of both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

from specx.bench.methods import BenchMethod
from specx.bench.methods.engine import Engine
from specx.bench.runs import Setting, refuse_head
from specx.engine.decode import AHEAD
from specx.engine.model_drafter import ModelDrafter
from specx.errors import UsageError
from specx.kernels.trees import MAX_ROWS, Path, root_only


@dataclass(frozen=True)
class Expectation:
    """The expectations of target and draft in the place of ``token``, after all the text before it.

    ``target``, ``draft``: log probabilities, float32 [V], of the ids that both may write and −inf
    elsewhere; V is that of the model with fewer.
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
    refuse_head(pair, "this experiment")
    assert pair.draft_allowed is not None
    longest = len(prompt) + len(output) + AHEAD
    drafter = method.drafter(setting)(longest)
    assert isinstance(drafter, ModelDrafter)
    target = setting.target(pair.target, longest + MAX_ROWS, drafter.retrieval_layer)
    text, tokens = (torch.tensor(ids, device=device) for ids in (prompt, output))
    for reading in (target.prefill(text), drafter.prefill(text, target)):
        for _ in reading:
            pass
    drafter.commit(Path.of(tokens[:1]))
    rows = min(pair.target.vocab_size, len(pair.draft_allowed))
    forbidden = ~(pair.draft_allowed.to(device)[:rows] & pair.target_allowed[:rows])
    for place in range(1, len(output)):
        if drafter.retrieval_due(place - 1):
            drafter.retrieve(target)
        drafted = drafter.read_pending()[0, :rows].to(device)
        verified = target.verify(root_only(tokens[place - 1 : place]))[0, :rows]
        yield Expectation(
            output[place], _logprobs(verified, forbidden), _logprobs(drafted, forbidden)
        )
        path = Path.of(tokens[place : place + 1])
        target.keep(path)
        drafter.commit(path)


def _logprobs(logits: Tensor, forbidden: Tensor) -> Tensor:
    return logits.float().masked_fill(forbidden, -torch.inf).log_softmax(-1)
