"""Workbenches that are done in a second or two, and runs made up for conclusions."""

from typing import Any

from specx.bench.cases import generated_documents
from specx.bench.methods import find_methods
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench, with_output
from tests.decoding.pairs import loaded, make_profile, pair_of

LENGTH = 700  # tokens of the tests' tokenizer


def tiny_bench(
    methods: str = "plain,specextend", *, output: int = 24, seed: int = 0, **fields: Any
) -> Workbench:
    """A random target, and a draft that is often right, on one generated report."""
    cache = {"chunk": 16, "top_k": 4, "every": 2, "layer": 1, "window": None}
    profile = with_output(make_profile(cache=cache), output)
    pair = pair_of(loaded(peak=5.0), loaded(noise=0.01, peak=5.0))
    documents = tuple(generated_documents(1, LENGTH, seed=seed))
    asked = tuple(find_methods(methods, profile))
    given = {"lengths": (LENGTH,), "most": 1, **fields}
    return Workbench(pair=pair, profile=profile, documents=documents, methods=asked, **given)


def made_up(method: str = "plain", **fields: Any) -> Measurement:
    """A run of 101 tokens that took a second."""
    given = {"case": "a", "length": 1024, "task": "digest", "repeat": 0, "prompt_tokens": 1000}
    return Measurement(
        method=method, **{**given, "output": tuple(range(101)), "decode_s": 1.0, **fields}
    )


def columns_of(table: Any, *names: str) -> list[tuple[Any, ...]]:
    """Some columns of a table, row by row."""
    places = [table.columns.index(name) for name in names]
    return [tuple(row[place] for place in places) for row in table.rows]
