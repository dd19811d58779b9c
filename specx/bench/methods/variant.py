"""What a drafting method of our engine is put together from."""

from dataclasses import dataclass, field
from typing import Literal

from specx.bench.methods.settings import CACHE, TREE, Changes, changed
from specx.errors import UsageError
from specx.models.call import Phase
from specx.profile import Profile

Remembering = Literal[
    "full", "streaming", "cross-model", "window", "random", "own-attention", "lexical"
]
AT_PREFILL = "at-prefill"

CHUNKED = ("chunk", "top_k", "every", AT_PREFILL)
USED: dict[Remembering, tuple[str, ...]] = {  # settings of each, beside the window of prefill
    "full": (),
    "streaming": ("chunk", "top_k", "every", "sink"),
    "window": ("chunk", "top_k", "every"),
    "cross-model": (*CHUNKED, "retrieve", "layer"),
    "random": CHUNKED,
    "own-attention": CHUNKED,
    "lexical": CHUNKED,
}


@dataclass(frozen=True)
class Variant:
    """How a draft drafts, and how the models attend.

    ``memory``: what the draft works on. ``windowed``: whether it reads the prompt in the profile's
    sliding window; None: if there is one. ``hybrid``, ``flash``: the target verifies by hybrid tree
    attention, and both read the prompt by flash attention, instead of under one mask. ``chain``:
    one draft a level.
    ``settings``: keys of ``tree`` and ``draft_cache``, and ``at-prefill``, which differ from the
    profile's.
    """

    memory: Remembering
    windowed: bool | None = None
    hybrid: bool = True
    flash: bool = True
    chain: bool = False
    settings: Changes = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """Settings that change anything."""
        tree = ("depth",) if self.chain else TREE
        return (*tree, "window", *USED[self.memory])

    @property
    def masked(self) -> frozenset[Phase]:
        phases: list[Phase] = []
        if not self.hybrid:
            phases.append("tree")
        if not self.flash:
            phases.append("prefill")
        return frozenset(phases)

    def change(self, profile: Profile, name: str) -> Profile:
        """The profile that drafts so. Raises UsageError when it cannot."""
        tree = {key: self.settings[key] for key in TREE if key in self.settings}
        cache: Changes = {"policy": self._policy}
        if self.memory != "streaming":
            cache["sink"] = 0
        if self.windowed is False:
            cache["window"] = None
        cache |= {key: self.settings[key] for key in CACHE if key in self.settings}
        if self.windowed and cache.get("window", profile.draft_cache.window) is None:
            raise UsageError(
                f"profile {profile.name} has no window for {name}; write one, as in "
                f"{name}:window=512"
            )
        if self.chain:
            depth = tree.get("depth", profile.tree.depth)
            tree |= {"nodes": depth, "width": 1}
        return changed(profile, tree, cache, name)

    @property
    def _policy(self) -> str:
        """The policy of the profile that comes closest; ``drafters.py`` does the rest."""
        return self.memory if self.memory in ("full", "cross-model") else "streaming"
