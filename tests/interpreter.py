"""Triton's interpreter, without doing the same again and again.

It replaces what kernels call of ``triton.language`` by what numpy does, once for a kernel, and once
more in every program for every device function, of which ``tl.sum`` is one: there it finds nothing
left to replace. It builds the type and the shape of every intermediate result from the parts, and
compares the sizes of operands one by one. And it computes all of int32 in int64, too, to find an
overflow, which a GPU does not. Together that took most of the time of the kernels tested here.
"""

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def speed_up() -> None:
    """For the rest of the process; a version of Triton with other names may be slow."""
    replace = getattr(interpreter, "_patch_lang", None)
    if replace is not None:
        interpreter._patch_lang = _unless_done(replace)
    find = getattr(interpreter, "_get_np_dtype", None)
    if find is not None:
        interpreter._get_np_dtype = _once_a_name(find)
    _remember_types()
    builder = interpreter.interpreter_builder
    if hasattr(builder.options, "sanitize_overflow"):
        builder.options = changed(builder.options, sanitize_overflow=False)


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


def _once_a_name(find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    found: dict[str, Any] = {}

    def find_once(dtype: Any) -> Any:
        if dtype.name not in found:
            found[dtype.name] = find(dtype)
        return found[dtype.name]

    return find_once


def _remember_types() -> None:
    """Take the fields of a type and of its results from the first that was like it."""
    make_type, make_result = tl.block_type.__init__, tl.tensor.__init__
    types: dict[Any, dict[str, Any]] = {}
    results: dict[Any, dict[str, Any]] = {}

    def init_type(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(s.value if isinstance(s, tl.constexpr) else s for s in shape)
        key = (element_ty.name, *sizes)
        if key not in types:
            make_type(self, element_ty, shape)
            types[key] = vars(self) | {"remembered": key}
        vars(self).update(types[key])

    def init_result(self: Any, handle: Any, type: Any) -> None:
        key = vars(type).get("remembered", type.name)
        if key not in results:
            make_result(self, handle, type)
            kept = vars(self).keys() - {"handle", "type"}
            results[key] = {name: value for name, value in vars(self).items() if name in kept}
        vars(self).update(results[key], handle=handle, type=type)

    tl.block_type.__init__, tl.tensor.__init__ = init_type, init_result
    broadcast = TritonSemantic.broadcast_impl_value

    def broadcast_unless_alike(self: Any, one: Any, other: Any) -> tuple[Any, Any]:
        sizes, others = (vars(each.type).get("remembered", "?")[1:] for each in (one, other))
        return (one, other) if sizes == others else broadcast(self, one, other)

    TritonSemantic.broadcast_impl_value = broadcast_unless_alike


def multiply_in_order(a: np.ndarray, b: np.ndarray, dtype: Any = None) -> np.ndarray:
    """Multiply [M, K] and [K, N] in the order of the inputs, as tensor cores do; numpy's libraries
    choose one by the number of rows."""
    total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total.astype(dtype)
