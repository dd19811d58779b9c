"""Words for what was measured, for the sentences of experiments."""

from collections.abc import Mapping, Sequence

from specx.bench.lengths import label


def times(ratio: float) -> str:
    """1.4612 -> ``1.46 ×``."""
    return f"{ratio:.3g} ×"


def listing(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def where(holds: Mapping[int, bool]) -> str:
    """at which lengths something holds: ``from 8K on``, ``at 1K and 4K``, ``at no length``.

    ``holds``: by length in tokens, at least one.
    """
    lengths = sorted(holds)
    true = [length for length in lengths if holds[length]]
    if len(lengths) == 1 and true:
        return f"at {label(true[0])}"
    if true == lengths:
        return "at every length"
    if not true:
        return "at no length"
    if len(true) > 1 and true == lengths[-len(true) :]:
        return f"from {label(true[0])} on"
    if len(true) > 1 and true == lengths[: len(true)]:
        return f"up to {label(true[-1])}"
    return f"at {listing([label(length) for length in true])}"


def polynomial(weights: Sequence[float], terms: Sequence[str]) -> str:
    """(2.5, −1), ("", "w") -> ``2.5 − 1 w``."""
    parts = [
        f"{'−' if weight < 0 else '+'} {abs(weight):.3g} {term}".rstrip()
        for weight, term in zip(weights, terms, strict=True)
    ]
    return " ".join(parts).removeprefix("+ ")
