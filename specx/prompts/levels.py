"""The levels in which the summaries of parts become one: how many parts, and how long each."""

from dataclasses import dataclass

from specx.errors import UsageError

SHORTEST = 64  # tokens of a part's summary: two or three sentences


@dataclass(frozen=True)
class SummaryLevel:
    """A level of summaries: ``parts`` of them, each of at most ``budget`` tokens."""

    parts: int
    budget: int


def plan_levels(parts: int, room: int, limit: int, joint: int) -> list[SummaryLevel]:
    """Return the levels from ``parts`` parts down to one summary.

    ``room``: the tokens of summaries that one prompt can hold. ``limit``: the most tokens of the
    last summary. ``joint``: tokens between two summaries. As few levels as possible, because each
    loses something, and with these the longest summaries of parts, up to ``limit``: the prompts of
    the next level are then as full as they can be.

    Raises UsageError when a prompt cannot hold two summaries of the shortest length.
    """
    if parts == 1:
        return [SummaryLevel(1, limit)]
    shortest = min(limit, SHORTEST)
    most = room // (shortest + joint)  # summaries that one prompt can join
    if most < 2:
        raise UsageError(
            f"the document takes {parts} parts, and the model's window has room for {max(room, 0)} "
            f"tokens of their summaries, too few for two of {shortest}; raise target.window, ask "
            "for a shorter summary, or print the summaries of the parts with --parts"
        )
    levels = _levels_of(parts, most)
    joined = next(fan for fan in range(2, most + 1) if _levels_of(parts, fan) <= levels)
    budget = min(limit, room // joined - joint)
    plan, fan_in = [SummaryLevel(parts, budget)], fan_in_of(room, budget, joint)
    while plan[-1].parts > fan_in:
        plan.append(SummaryLevel(-(-plan[-1].parts // fan_in), budget))
    return [*plan, SummaryLevel(1, limit)]


def fan_in_of(room: int, budget: int, joint: int) -> int:
    """Return how many summaries of ``budget`` tokens one prompt joins."""
    return room // (budget + joint)


def _levels_of(parts: int, fan_in: int) -> int:
    """Return how often summaries are joined, ``fan_in`` at a time, until one is left."""
    levels = 0
    while parts > 1:
        parts, levels = -(-parts // fan_in), levels + 1
    return levels
