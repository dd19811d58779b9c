"""Every method, and those that a user asks for."""

from dataclasses import replace
from functools import partial

from specx.bench import magicdec, triforce
from specx.bench.methods.components import COMPONENTS, change_component
from specx.bench.methods.drafters import build
from specx.bench.methods.engine import Engine
from specx.bench.methods.method import BenchMethod
from specx.bench.methods.names import MethodName, parse_name, split_names
from specx.bench.methods.settings import parse_setting
from specx.bench.methods.stock import STOCK
from specx.bench.methods.variant import AT_PREFILL, Variant
from specx.engine.drafter import Drafter
from specx.engine.methods import Pair
from specx.errors import UsageError
from specx.profile import Profile
from specx.records import Method

VARIANTS: dict[str, tuple[str, Variant]] = {
    "chain": (
        "classic speculative decoding: a chain of drafts, the draft sees everything",
        Variant("full", windowed=False, chain=True),
    ),
    "tree": ("OPT-Tree: the draft sees everything", Variant("full", windowed=False)),
    "streaming": ("the draft sees the first and the latest chunks", Variant("streaming")),
    "specextend": ("the draft sees what the target attends to", Variant("cross-model")),
    "window": ("the draft sees the latest chunks", Variant("window")),
    "random": ("the draft sees chunks drawn at random", Variant("random")),
    "own-attention": (
        "the draft sees what itself attended to most, the rest is evicted",
        Variant("own-attention"),
    ),
    "lexical": ("the draft sees chunks that share rare words with the latest", Variant("lexical")),
}


def variant_method(name: str, about: str, variant: Variant) -> Engine:
    """A variant as a method."""

    def make(method: Method, profile: Profile, pair: Pair, max_tokens: int) -> Drafter:  # noqa: ARG001
        return build(variant, profile, pair, max_tokens)

    change = partial(variant.change, name=name)
    return Engine(name, about, "specextend", change, make, variant.masked)


ALL: list[BenchMethod] = [
    Engine("plain", "our engine, one token a pass: the baseline", "plain"),
    *STOCK,
    *(variant_method(name, about, variant) for name, (about, variant) in VARIANTS.items()),
    Engine("lookup", "what followed earlier in the text, no draft", "lookup"),
    Engine("specextend+lookup", "specextend and lookup in one tree", "specextend+lookup"),
    Engine(
        "magicdec",
        "MagicDec: the target drafts, seeing the first and the latest chunks",
        "plain",  # needs no draft
        magicdec.on_latest_chunks,
        magicdec.build,
    ),
    Engine(
        "triforce",
        "TriForce: the target drafts on retrieved chunks, helped by the draft on the latest",
        "specextend",
        build=triforce.build,
    ),
]
METHODS = {method.name: method for method in ALL}


def find_methods(names: str, profile: Profile) -> list[BenchMethod]:
    """``plain,tree+cmr`` -> the methods. Raises UsageError for a name that is none, or a method
    that the profile cannot run."""
    found = [find_method(name) for name in split_names(names)]
    for method in found:
        method.check(profile)
    return found


def find_method(name: str) -> BenchMethod:
    """The method of a name. Raises UsageError when there is none."""
    if name in METHODS:
        return METHODS[name]
    parsed = parse_name(name, list(METHODS), list(COMPONENTS))
    if parsed.base not in VARIANTS:
        raise UsageError(f"{parsed.base} has no components and no settings; write {parsed.base}")
    about, variant = VARIANTS[parsed.base]
    for sign, component in parsed.components:
        variant = change_component(variant, sign, component, name)
    return variant_method(name, _about(about, parsed), _with_settings(variant, parsed))


def _with_settings(variant: Variant, name: MethodName) -> Variant:
    settings = dict(parse_setting(text, variant.keys, name.text) for text in name.settings)
    if type(settings.get(AT_PREFILL, True)) is not bool:
        raise UsageError(f"{AT_PREFILL} in {name.text} must be on or off")
    return replace(variant, settings=settings)


def _about(about: str, name: MethodName) -> str:
    changes = [
        f"{'with' if sign == '+' else 'without'} {COMPONENTS[key].about}"
        for sign, key in name.components
    ]
    return ", ".join([about, *changes, *name.settings])
