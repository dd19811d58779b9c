"""Lengths in tokens as people write them: ``16k`` is 16,384."""

from specx.errors import UsageError


def parse_length(text: str) -> int:
    """Parse a length: ``16k`` -> 16384, ``512`` -> 512. Raises UsageError for anything else."""
    number = text.strip().lower()
    try:
        tokens = int(float(number[:-1]) * 1024) if number.endswith("k") else int(number)
    except (ValueError, OverflowError):
        tokens = 0
    if tokens < 1:
        raise UsageError(f"{text.strip()!r} is not a length; write tokens as 512, 4k or 1.5k")
    return tokens


def parse_lengths(text: str) -> tuple[int, ...]:
    """Parse lengths, ``1k,4k`` -> (1024, 4096): ascending, without duplicates."""
    return tuple(sorted({parse_length(part) for part in text.split(",")}))


def label(tokens: float) -> str:
    """Format a length: 16384 -> ``16K``, 1536 -> ``1.5K``, 1000 -> ``1000``."""
    return f"{tokens / 1024:g}K" if tokens >= 1024 and tokens % 128 == 0 else f"{tokens:.10g}"
