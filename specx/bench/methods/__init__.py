"""The methods that can be compared, by name (``table.py``)."""

from specx.bench.methods.table import (
    METHODS,
    find_methods,
    find_runnable,
    split_names,
    with_settings,
)
from specx.bench.runs import BenchMethod

__all__ = [
    "METHODS",
    "BenchMethod",
    "find_methods",
    "find_runnable",
    "split_names",
    "with_settings",
]
