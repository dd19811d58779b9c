"""Triton's interpreter, without looking for the same names again and again.

It replaces what kernels call of ``triton.language`` by what numpy does, once for a kernel, and once
more in every program for every device function, of which ``tl.sum`` is one: there it finds nothing
left to replace. That took two fifths of the time of the kernels tested here.
"""

from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def replace_names_once() -> None:
    """For the rest of the process."""
    replace = getattr(interpreter, "_patch_lang", None)
    if replace is not None:  # else it is another version, which may be slow
        interpreter._patch_lang = _unless_done(replace)


def _unless_done(replace: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def replace_in(function: Any) -> Any:
        known = [each for each in function.__globals__.values() if each is tl or each is tl.core]
        if known and not any(tl.core.is_builtin(each.load) for each in known):
            return _Nothing()
        return replace(function)

    return replace_in


class _Nothing:
    """What was replaced, to be put back."""

    def restore(self) -> None:
        pass
