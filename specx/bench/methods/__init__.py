"""The methods that can be compared, by name (``names.py`` has the grammar of the names)."""

from specx.bench.methods.catalog import METHODS, find_methods
from specx.bench.methods.engine import Engine
from specx.bench.methods.method import BenchMethod

__all__ = ["METHODS", "BenchMethod", "Engine", "find_methods"]
