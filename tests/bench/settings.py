"""A setting and a case of tiny random models, for tests of methods."""

from collections.abc import Sequence
from typing import Any

from specx.bench.cases import Case
from specx.bench.methods import find_methods
from specx.bench.runs import Measurement, Setting
from specx.documents.document import Document
from specx.prompts.prompt import Prompt
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of

SURE = {"seed": 0, "peak": 5.0, "attention": 0.04}  # a target with clear winners
LIKE_IT = {**SURE, "noise": 0.02}  # a draft that is right more often than not
SMALL_CACHE = {"chunk": 4, "top_k": 3, "every": 2, "window": 8}


def tiny_setting(family: str = "llama", **profile: Any) -> Setting:
    pair = pair_of(loaded(family, **SURE), loaded(family, **LIKE_IT))
    return Setting(pair, make_profile(**{"cache": SMALL_CACHE, **profile}))


def tiny_case(ids: Sequence[int] | int) -> Case:
    """A case of the given prompt, or a random one of so many tokens."""
    prompt = tuple(make_prompt(ids) if isinstance(ids, int) else ids)
    document = Document("tiny", "text", (), ())
    return Case(document, len(prompt), "digest", Prompt(prompt, ()))


def run_method(name: str, setting: Setting, case: Case) -> Measurement:
    return find_methods(name, setting.profile)[0].run(setting, case)
