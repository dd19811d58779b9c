"""``layer: auto``: the layer of the target that should choose what the draft remembers."""

from collections.abc import Sequence
from dataclasses import dataclass

from specx.decoding.decode import decode
from specx.decoding.methods import Pair, with_layer
from specx.profile import AutoTree, Profile, TreeSettings
from specx.records import Step, Tally

TOKENS = 64  # output tokens decoded for each layer and prompt


@dataclass(frozen=True)
class LayerScore:
    """The acceptance length that a layer's choice of chunks led to."""

    layer: int
    acceptance_length: float


def score_layers(
    pair: Pair, profile: Profile, prompts: Sequence[Sequence[int]]
) -> list[LayerScore]:
    """Measure the acceptance length of every layer on ``prompts`` (token ids), over all together.

    The output is the same for every layer, so the scores compare like with like.
    """
    # Layers are compared with one and the same tree.
    tree = TreeSettings() if isinstance(profile.tree, AutoTree) else profile.tree
    short = profile.changed(
        generation={"max_new_tokens": TOKENS}, fallback={"below": None}, tree=tree
    )
    scores = []
    for layer in pair.target.full_layers:  # others choose what the nearest of these chooses
        tally = Tally()
        for prompt in prompts:
            for event in decode(pair, with_layer(short, layer), "specextend", prompt):
                if isinstance(event, Step):
                    tally.add(event)
        scores.append(LayerScore(layer, tally.acceptance_length))
    return scores


def best_layer(scores: Sequence[LayerScore]) -> int:
    """Choose the layer with the longest acceptance; of equals the deepest, as in the paper."""
    return max(scores, key=lambda score: (score.acceptance_length, score.layer)).layer
