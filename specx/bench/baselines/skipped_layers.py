"""Draft & Verify: the target without some of its layers drafts for itself.

Source: Zhang et al., Draft & Verify: Lossless Large Language Model Acceleration via
Self-Speculative Decoding. In the paper, attention and MLP of a layer are skipped separately, chosen
by Bayesian optimization, and a chain ends when the draft is unsure. Here whole layers are skipped,
the least useful first. The same measurement determines the length of the chain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specx.bench.baselines.magicdec import RootGrower
from specx.decoding.drafter import Drafter
from specx.decoding.kv_cache import PreallocatedCache
from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.errors import UsageError
from specx.models.call import PrefillCall
from specx.models.decoder import Decoder
from specx.models.loaded import LoadedModel
from specx.ops.trees import MAX_ROWS, Path, TokenTree
from specx.profile import Settings
from specx.records import PrefillProgress

AT_ONCE = 8  # layers of which one is left out in each round of the choice


@dataclass(frozen=True, kw_only=True)
class SkippingDraft:
    """The layers that a draft keeps, counted from 0, and the number of tokens it drafts.

    ``gain``: the expected speed over plain decoding, if time is proportional to layers.
    """

    layers: tuple[int, ...]
    depth: int
    gain: float


def with_layers(loaded: LoadedModel, kept: Sequence[int]) -> LoadedModel:
    """Return the model reduced to the layers ``kept``; all weights are shared.

    The reduced model shares the whole model's cache, and uses only the layers ``kept`` of it.
    """
    whole = loaded.model
    assert whole.spec.per_layer is None, "models with per-layer embeddings are refused earlier"
    layers = [whole.weights.layers[layer] for layer in kept]
    spec = replace(whole.spec, layers=tuple(layer.spec for layer in layers))
    decoder = Decoder(replace(whole.weights, spec=spec, layers=layers), whole.ops)
    return replace(loaded, model=decoder, decoder_spec=spec)


class SkippedLayers(Drafter):
    """The target without some layers as its own draft, on the target's cache.

    Rows of drafts follow the text, and verification overwrites them.
    """

    def __init__(
        self,
        settings: Settings,
        pair: Pair,
        draft: SkippingDraft,
        max_tokens: int,  # noqa: ARG002
    ) -> None:
        self.model, self._kept = with_layers(pair.target, draft.layers), draft.layers
        self.levels = draft.depth
        nodes = max(settings.tree.nodes, draft.depth)
        chain = settings.tree.changed(nodes=nodes, depth=draft.depth, width=1)
        self._grower = RootGrower(self.model, pair.target_allowed, chain)

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:  # noqa: ARG002
        """Do nothing: the target's cache already has the prompt."""
        self._cache = target.cache.with_layers(self._kept)
        return iter(())

    def grow(self, root: Tensor) -> TokenTree:
        cache = self._cache
        tree = self._grower.grow_from(root, cache)
        cache.commit(-1)  # the target has not read the root
        return tree

    def commit(self, path: Path) -> None:
        """Do nothing: the target's cache has the tokens."""


@torch.inference_mode()
def accepted_by_block(
    loaded: LoadedModel,
    kept: Sequence[int],
    read: tuple[PreallocatedCache, Tensor, int],
    allowed: Tensor,
    depth: int,
) -> list[int]:
    """Return the number of accepted drafts for each block of ``depth`` tokens of the output.

    ``read``: the whole model's cache, the text int64 [L] in it, and the index at which the output
    begins. The model reduced to the layers ``kept`` drafts each block, after rows computed by the
    whole model.
    """
    model, (whole, text, begin) = with_layers(loaded, kept), read
    cache = whole.with_layers(kept)
    found = []
    for start in range(begin, len(text) - depth, depth):
        tokens, rows = text[start : start + depth], slice(start, start + depth)
        saved = [storage[:, :, :, rows].clone() for storage in whole.storages]
        cache.refill(torch.tensor(start))
        call = PrefillCall(ops=model.ops, mapping=cache.mapping(depth), past=start)
        positions = torch.arange(start, start + depth, device=text.device)
        logits = model.model.run(tokens, positions, call)
        for storage, before in zip(whole.storages, saved, strict=True):
            storage[:, :, :, rows] = before
        right = model.ops.most_probable(logits, ~allowed) == text[start + 1 : start + depth + 1]
        found.append(int(right.long().cumprod(0).sum()))
    return found


@torch.inference_mode()
def choose_layers(
    pair: Pair, prompt: Sequence[int], output: Sequence[int], depth: int
) -> SkippingDraft:
    """Choose the layers to keep, and the number of tokens to draft, for maximum speed.

    ``output``: what the target writes after ``prompt``; ``depth``: the maximum number of tokens to
    draft. Raises UsageError for a target whose layers differ too much.
    """
    loaded, spec = pair.target, pair.target.decoder_spec
    if spec is None:
        raise UsageError(
            f"{loaded.source} runs in transformers, but self-draft can skip layers only in specx's "
            "own decoders; choose another method"
        )
    if len(loaded.full_layers) < loaded.num_layers or spec.per_layer:
        raise UsageError(
            f"{loaded.source} has layers with a window, or with an input table for each layer, "
            "which self-draft cannot skip; choose another method"
        )
    text = torch.tensor([*prompt, *output], device=loaded.device)
    target = Target(loaded, len(text) + MAX_ROWS, None)
    for _ in target.prefill(text):
        pass
    read = target.cache, text, len(prompt)
    layers = tuple(range(loaded.num_layers))
    best = SkippingDraft(layers=layers, depth=1, gain=1.0)
    while len(layers) > max(1, loaded.num_layers // 2):
        ways = {}
        for layer in layers:
            kept = tuple(each for each in layers if each != layer)
            ways[layer] = sum(accepted_by_block(loaded, kept, read, pair.target_allowed, depth))
        useless = sorted(layers, key=lambda layer: -ways[layer])
        gone = useless[: -(-loaded.num_layers // AT_ONCE)]
        layers = tuple(layer for layer in layers if layer not in gone)
        accepted = accepted_by_block(loaded, layers, read, pair.target_allowed, depth)
        share = len(layers) / loaded.num_layers
        for tokens in range(1, depth + 1):
            mean = sum(min(each, tokens) for each in accepted) / max(1, len(accepted))
            gain = (1 + mean) / (1 + tokens * share)
            if len(best.layers) == loaded.num_layers or gain > best.gain:
                best = SkippingDraft(layers=layers, depth=tokens, gain=gain)
    return best
