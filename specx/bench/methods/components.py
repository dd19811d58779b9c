"""Components that a method's name adds or takes away: ``tree+cmr``, ``specextend-hta``."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from specx.bench.methods.variant import Remembering, Variant
from specx.errors import UsageError


@dataclass(frozen=True)
class Component:
    """``about``: what it is called in a sentence. ``found``: whether a variant has it, None where
    that is up to the profile. ``put``: the variant with it or without it.
    """

    about: str
    found: Callable[[Variant], bool | None]
    put: Callable[[Variant, bool], Variant]


def _remembering(memory: Remembering, about: str) -> Component:
    return Component(
        about,
        lambda variant: variant.memory == memory,
        lambda variant, wanted: replace(variant, memory=memory if wanted else "full"),
    )


COMPONENTS = {
    "cmr": _remembering("cross-model", "cross-model retrieval"),
    "streaming": _remembering("streaming", "the first and the latest chunks"),
    "hta": Component(
        "hybrid tree attention",
        lambda variant: variant.hybrid,
        lambda variant, wanted: replace(variant, hybrid=wanted),
    ),
    "flash": Component(
        "flash attention in prefill",
        lambda variant: variant.flash,
        lambda variant, wanted: replace(variant, flash=wanted),
    ),
    "window": Component(
        "a sliding window in the draft's prefill",
        lambda variant: variant.windowed,
        lambda variant, wanted: replace(variant, windowed=wanted),
    ),
}


def change_component(variant: Variant, sign: str, key: str, name: str) -> Variant:
    """The variant with (``+``) or without (``-``) the component ``key``.

    Raises UsageError, about the method ``name``, for one that is there already or not there, and
    for a second way to choose chunks.
    """
    component, wanted = COMPONENTS[key], sign == "+"
    found = component.found(variant)
    if found is wanted and key != "window":  # names may state what the profile says anyway
        state = "has it already" if wanted else "does not have it"
        raise UsageError(f"{sign}{key} in {name} changes nothing: the method {state}")
    changed = component.put(variant, wanted)
    if wanted and changed.memory != variant.memory != "full":
        raise UsageError(f"{name} cannot have {key}: it chooses chunks by {variant.memory} already")
    return changed
