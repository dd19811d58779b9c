"""Compile written functions to machine code for this processor, and cache it on disk."""

import ctypes
import hashlib
import platform
import re
import threading
from collections.abc import Callable, Iterable
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import llvmlite
import torch

from specx.cache_folder import cache_folder, compiled_once
from specx.ops.blocks import by_name
from specx.ops.native import is_limited
from specx.ops.native.decoder import write_functions, write_pass
from specx.ops.native.emitter import VectorUnit
from specx.ops.native.kinds import PLAIN, PassKind
from specx.ops.native.prompts import write_format

_compiling = threading.Lock()  # two models that are loaded at once need the same functions
# Of lines that say what a processor is, and not how fast it is just now.
_OF_PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
# Of the flags: what a limit to AVX2 takes off.
_BEYOND_AVX2 = re.compile(r"\s(?:avx512|avx10|avx_|amx)\w*")
# Of OpenMP, which the code calls.
SYMBOLS = ("GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")


class Code:
    """Compiled functions in memory. ``run``: the address of the function that each thread calls."""

    def __init__(self, *objects: bytes) -> None:
        self._engine = _engine(objects)  # owns the memory
        self.address: Callable[[str], int] = self._engine.get_function_address
        self._teams: dict[int, bool] = {}

    @cached_property
    def run(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.address("run"))

    def has_team(self, threads: int) -> bool:
        """Return True if OpenMP provides the requested number of threads.

        It may provide fewer (``OMP_THREAD_LIMIT``, ``OMP_DYNAMIC``); then no thread would do the
        work of the missing ones.
        """
        if threads not in self._teams:
            found = ctypes.c_int32()
            team = ctypes.c_void_p(self.address("team"))
            openmp().GOMP_parallel(team, ctypes.byref(found), threads, 0)
            self._teams[threads] = found.value == threads and not openmp().omp_get_dynamic()
        return self._teams[threads]


def _engine(objects: Iterable[bytes]) -> Any:
    """Link object files; return the engine that holds their code."""
    import llvmlite.binding as llvm

    for name in SYMBOLS:
        address = ctypes.cast(getattr(openmp(), name), ctypes.c_void_p).value
        assert address is not None
        llvm.add_symbol(name, address)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    for each in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(each))
    engine.finalize_object()
    return engine


@cache
def openmp() -> ctypes.CDLL:
    """Return torch's own GNU OpenMP, whose threads also run our passes.

    Other packages may bring a second one, whose threads would compete with torch's for the cores.
    Raises OSError if torch has another OpenMP, or if it is unknown which.
    """
    loaded = set(re.findall(r"/\S*libgomp\S*\.so\S*", Path("/proc/self/maps").read_text()))
    packages = str(Path(torch.__file__).parent.parent / "torch")  # also torch.libs
    own = [path for path in loaded if path.startswith(packages)] or list(loaded)
    if len(own) != 1:
        raise OSError("torch has no OpenMP of GNU")
    return ctypes.CDLL(own[0])


def load(kind: PassKind = PLAIN) -> Code:
    """Return the code of a kind of pass; it is compiled once and cached on disk.

    Raises OSError if torch does not use GNU OpenMP.
    """
    openmp()
    own = _object(repr(kind), partial(write_pass, kind=kind))
    return Code(_functions(), own, *(_format(name) for name in kind.formats))


def load_format(name: str) -> Code:
    """Return the code of the products with a format. Raises OSError as ``load`` does."""
    openmp()
    return Code(_functions(), _format(name))


def _functions() -> bytes:
    return _object("functions", write_functions, unrolls=True)


def _format(name: str) -> bytes:
    return _object(f"format {name}", partial(write_format, form=by_name(name)))


def _object(name: str, write: Callable[[VectorUnit], str], *, unrolls: bool = False) -> bytes:
    """Return the object file ``name`` from the disk cache, or compile what ``write`` returns.

    ``unrolls``: unroll loops, which doubles the compile time. A pass is not unrolled, because most
    of its time is spent in the functions that all passes share.
    """
    with _compiling:  # a damaged file is compiled again: LLVM would abort
        return compiled_once(_file(name), lambda: build(write(vector_unit()), unrolls=unrolls))


def build(written: str, *, unrolls: bool) -> bytes:
    """Compile LLVM's instructions to an object file."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(written)
    module.verify()
    target = _target()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    tuning.loop_unrolling = unrolls
    llvm.create_pass_builder(target, tuning).getModulePassManager().run(
        module, llvm.create_pass_builder(target, tuning)
    )
    code: bytes = target.emit_object(module)
    return code


@cache
def vector_unit() -> VectorUnit:
    """Return the vector registers and instructions of this processor."""
    has = set(" ".join(_processor()).split())
    if "avx512f" in has:
        has_dots = {"avx512_vnni", "avx512vl"} <= has
        return VectorUnit(lanes=16, sums=24, has_dots=has_dots)
    if "avx2" in has:
        return VectorUnit(lanes=8, sums=12, has_half="f16c" in has)
    # Every ARM of 64 bits has it. Elsewhere LLVM would call functions that nobody brings.
    return VectorUnit(lanes=4, sums=24, has_half=platform.machine() == "aarch64")


@cache
def _processor() -> tuple[str, ...]:
    """Return the processor's name and features according to Linux, within the limit."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    lines = [line for line in lines if line.startswith(_OF_PROCESSOR)]
    if is_limited():
        lines = [_BEYOND_AVX2.sub("", line) for line in lines]
    return tuple(sorted(set(lines)))


def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = "haswell", ""  # the first with AVX2
    if not is_limited():
        cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    if vector_unit().lanes == 16:
        features += ",-prefer-256-bit"  # some processors are said to prefer half of their vectors
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, jit=True, codemodel="jitdefault"
    )


def _hash_of_sources() -> Any:
    made, here = hashlib.sha256(), Path(__file__).parent
    others = (here.parent / name for name in ("blocks.py", "byte_rows.py"))
    for source in [*sorted(here.glob("*.py")), *others]:
        made.update(source.read_bytes())
    return made


# Of those that this process runs: they may be replaced while it does.
_SOURCES = _hash_of_sources()


def _file(name: str) -> Path:
    """Return the cache file of some code; its name is a hash of all that determines the code."""
    made = _SOURCES.copy()
    made.update(repr((name, llvmlite.__version__, _processor())).encode())
    return cache_folder() / "native" / f"{made.hexdigest()[:24]}.o"
