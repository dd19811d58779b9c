"""``--check-lossless``: comparing an output with plain decoding, token by token."""

import torch

from specx.engine.decode import decode
from specx.engine.methods import Pair
from specx.engine.target import Target
from specx.profile import Profile
from specx.records import PrefillProgress, Step, Stop
from specx.reports.report import LosslessCheck


def check_lossless(
    pair: Pair,
    profile: Profile,
    prompt: tuple[int, ...],
    written: list[int],
    stop: Stop | None,
) -> LosslessCheck:
    """Decode ``prompt`` plainly and compare with the token ids that were ``written``.

    ``stop``: as it was given to the first decoding.
    """
    plain: list[int] = []
    for event in decode(pair, profile, "plain", prompt, stop=stop):
        if isinstance(event, Step):
            plain += event.tokens
    if plain == written:
        return LosslessCheck(identical=True)
    ends = min(len(plain), len(written))
    at = next((i for i in range(ends) if plain[i] != written[i]), ends)
    if at == ends:  # one output is a prefix of the other: there are no two tokens to compare
        return LosslessCheck(identical=False, position=at)
    gap = logit_gap(pair, (*prompt, *plain[:at]), plain[at], written[at])
    return LosslessCheck(identical=False, position=at, logit_gap=gap)


@torch.inference_mode()
def logit_gap(pair: Pair, text: tuple[int, ...], expected: int, other: int) -> float:
    """Return the target's logit of ``expected`` minus that of ``other`` after ``text``."""
    ids = torch.tensor(text, dtype=torch.int64, device=pair.target.device)
    target = Target(pair.target, len(text), retrieval_layer=None)
    for item in target.prefill(ids):
        if not isinstance(item, PrefillProgress):
            return float(item[0, expected] - item[0, other])
    raise AssertionError("prefill ends with logits")
