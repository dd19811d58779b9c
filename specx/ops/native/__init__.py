"""A whole pass of a few rows as one piece of machine code, compiled by LLVM where llvmlite is.

Plain torch starts some hundred operations for a token, each with all threads; here the threads
start once. ``decoder.py`` writes the pass with the instructions of ``emitter.py`` and the products
of ``products.py``, ``code.py`` compiles it, and ``native_pass.py`` runs it on tensors.
"""

from importlib.metadata import PackageNotFoundError, version


def _has_llvmlite() -> bool:
    """Return True if llvmlite is as new as an install wants it; others may bring an older one."""
    try:
        major, minor = version("llvmlite").split(".")[:2]
        return (int(major), int(minor)) >= (0, 45)
    except (PackageNotFoundError, ValueError):
        return False


HAS_LLVMLITE = _has_llvmlite()
