"""Medusa: heads on the target's last hidden state guess the next tokens all at once.

Source: Cai et al., Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
Heads. There a candidate may also be accepted because it is typical; here the target decides as
ever.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specx.bench.baselines.static_tree import Chances, Choices, Topology
from specx.decoding.drafter import Drafter
from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.models.call import FeatureSource
from specx.models.load import LoadedModel
from specx.models.medusa import EMBEDDED_MEDUSA, MedusaHeads, load_medusa
from specx.ops.trees import Level, Path, TokenTree
from specx.profile import Settings
from specx.records import PrefillProgress


class MedusaDrafter(Drafter):
    """Heads at work on one document.

    The target has read all but the root, so head k guesses the token k + 1 places behind that.
    """

    def __init__(
        self, settings: Settings, pair: Pair, heads: MedusaHeads, choices: Choices | None,
        max_tokens: int,  # noqa: ARG002
    ) -> None:  # fmt: skip
        """``choices``: a fixed tree; None: the best nodes by joint probability, as many as
        ``tree`` has."""
        target = pair.target
        self.features = FeatureSource((), target.hidden_size)
        self.heads, self._ops = heads, target.ops
        self._nodes, self._forbidden = settings.tree.nodes, ~pair.target_allowed
        self._certain = torch.zeros(1, device=target.device)
        self._shape = Topology.of(choices, target.device) if choices else None
        self.levels = len(self._shape.nodes) if self._shape else len(heads.blocks)

    def follow(self, prompt: Tensor, done: int, target: Target) -> None:  # noqa: ARG002
        self._target = target  # which keeps the states

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:  # noqa: ARG002
        self._target = target
        return iter(())

    def grow(self, root: Tensor) -> TokenTree:
        features = self._target.features
        assert features is not None
        logits = self.heads(features.read(self._target.cache.length - 1, 1), self.levels)
        if self._shape is not None:
            width, ranks = self._shape.width, self._shape.ranks
            allowed = (each.masked_fill(self._forbidden, -torch.inf) for each in logits)
            return self._shape.tree(
                root, [a.topk(ranks).indices.expand(width, -1) for a in allowed]
            )
        levels = [self._continue(logits[0], self._certain)]
        for each in logits[1:]:
            weights = levels[-1].weights
            levels.append(self._continue(each.repeat(len(weights), 1), weights))
        return self._ops.best_tree(root, levels)

    def _continue(self, logits: Tensor, weights: Tensor) -> Level:
        return self._ops.best_continuations(logits, self._forbidden, weights, self._nodes)

    def commit(self, path: Path) -> None:
        """Do nothing: the target keeps the states of what was accepted."""


def scaled_heads(target: LoadedModel, size: int) -> MedusaHeads:
    """Return the embedded heads in the shape of a scaled target, their function unchanged.

    ``size``: elements of the embedded target's states, which are the first ones of the large one's.
    """
    small = load_medusa(EMBEDDED_MEDUSA, replace(target, hidden_size=size))
    blocks = [list(chain.children()) for chain in small.blocks]
    _, lm_head = target.vocabulary_maps
    large = MedusaHeads(len(blocks), len(blocks[0]), target.hidden_size, lm_head)
    for name, own in small.blocks.named_parameters():
        weight = large.blocks.get_parameter(name).data
        if weight.ndim == 2:
            weight[:size] = torch.randn_like(weight[:size])  # they meet zeros, but take real time
        weight[tuple(slice(size) for _ in own.shape)] = own.cpu()
    return large.to(target.device, target.dtype).eval().requires_grad_(False)


@torch.inference_mode()
def head_chances(
    heads: MedusaHeads, pair: Pair, texts: Sequence[tuple[Sequence[int], Sequence[int]]], ranks: int
) -> Chances:
    """Return, for each head, how often its first choice is right, its second, and so on.

    ``texts``: prompts and what the target writes behind them.
    """
    counts, places = torch.zeros(len(heads.blocks), ranks), 0
    for prompt, output in texts:
        text = torch.tensor([*prompt, *output], device=pair.target.device)
        target = Target(pair.target, len(text), None)
        target.keep_features(FeatureSource((), pair.target.hidden_size))
        size, begin = pair.target.hidden_size, len(prompt) - 1
        read = torch.zeros(0, size, dtype=pair.target.dtype, device=text.device)
        for _ in target.prefill(text):
            assert target.features is not None
            # The last of these is no chunk's progress, but logits: nothing is new then.
            new = target.features.rows[: target.cache.committed - len(read)]
            read = torch.cat([read, new])
        places += max(0, len(output) - len(heads.blocks) - 1)
        for head, logits in enumerate(heads(read[begin : -len(heads.blocks) - 1])):
            allowed = logits.masked_fill(~pair.target_allowed, -torch.inf)
            behind = text[begin + head + 2 :][: len(logits)]
            right = allowed.topk(ranks).indices == behind[:, None]
            counts[head] += right.sum(0).cpu()
    return (counts / max(1, places)).tolist()
