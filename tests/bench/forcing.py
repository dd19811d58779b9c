"""Run a known text through target and draft, token by token, to get the draft's predictions."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specx.bench.methods.engine import Engine
from specx.bench.runs import Setting
from specx.decoding.methods import Pair
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.workspace import AHEAD
from specx.models.head_files import LoadedHead
from specx.ops.trees import MAX_ROWS, Path, root_only


@torch.inference_mode()
def force(
    method: Engine, setting: Setting, prompt: Sequence[int], output: Sequence[int]
) -> Iterator[Tensor]:
    """Decode a known ``output``; yield the draft's prediction of each token from the second on.

    A prediction is log probabilities float32 [V] in the target's ids; −inf for ids that one of the
    models cannot write.
    """
    pair, device = setting.pair, setting.pair.target.device
    longest = len(prompt) + len(output) + AHEAD
    drafter = method.drafter(setting)(longest)
    assert isinstance(drafter, ModelDrafter)
    target = setting.target(pair.target, longest + MAX_ROWS, drafter.retrieval_layer)
    text, tokens = (torch.tensor(ids, device=device) for ids in (prompt, output))
    if drafter.features is not None:
        target.keep_features(drafter.features)
    for progress, _ in target.prefill(text):
        if drafter.features is not None:
            drafter.follow(text, progress.done, target)
    for _ in drafter.prefill(text, target):
        pass
    drafter.commit(Path.of(tokens[:1]))
    own, ids = shared_ids(pair)
    forbidden = torch.ones_like(pair.target_allowed).index_fill(0, ids, False)
    for place in range(1, len(output)):
        every = drafter.retrieve_every
        if every is not None and place > 1 and (place - 1) % every == 0:
            drafter.retrieve(target)
        drafted = drafter.read_pending()[0].to(device)
        drafted = drafted.new_zeros(len(forbidden)).index_copy(0, ids, drafted[own])
        target.verify(root_only(tokens[place - 1 : place]))
        yield drafted.float().masked_fill(forbidden, -torch.inf).log_softmax(-1)
        path = Path.of(tokens[place : place + 1])
        target.keep(path)
        drafter.commit(path)


def shared_ids(pair: Pair) -> tuple[Tensor, Tensor]:
    """Return the ids that both models may write, in the draft's ids and the target's: [n] each."""
    assert pair.draft_allowed is not None
    own = pair.draft_allowed.to(pair.target.device).nonzero().flatten()
    ids = pair.draft.model.target_ids[own] if isinstance(pair.draft, LoadedHead) else own
    known = ids < pair.target.vocab_size
    own, ids = own[known], ids[known]
    both = pair.target_allowed[ids]
    return own[both], ids[both]
