"""Signal handlers of the process, once Triton's compiler has put its own in front of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

# A process of its own, for LLVM does it once, and the tests' own Triton interprets.
COMPILING = """
import ctypes, signal, sys, threading
import triton, triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from specx.ops.triton.backend import TAKEN, keep_signal_handlers

@triton.jit
def kernel(ptr):
    tl.store(ptr, tl.load(ptr) + 1)

def compile_it():
    source = ASTSource(fn=kernel, signature={"ptr": "*fp32"}, constexprs={})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))

def handlers():  # those that the kernel of the system knows
    found = []
    for number in TAKEN:
        action = (ctypes.c_void_p * 32)()  # struct sigaction begins with the handler
        assert ctypes.CDLL(None).sigaction(number, None, action) == 0
        found.append(action[0])
    return found

signal.signal(signal.SIGINT, lambda number, frame: None)
heard = []
knobs.compilation.listener = lambda **compiled: heard.append(compiled["cache_hit"])
before = handlers()
if sys.argv[1] == "kept":
    keep_signal_handlers()
    keep_signal_handlers()
if sys.argv[2] == "main":
    compile_it()
else:
    thread = threading.Thread(target=compile_it)
    thread.start()
    thread.join()
print(heard, [now == was for now, was in zip(handlers(), before, strict=True)])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "thread", "said"),
    [
        ("kept", "main", "[False] [True, True, True]"),
        ("not kept", "main", "[False] [False, False, False]"),  # else there is nothing to keep
        ("kept", "another", "[False] [False, False, False]"),  # but the kernel is compiled
    ],
)
def test_handlers_are_those_from_before(way: str, thread: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "compiling.py"  # Triton reads a kernel's source
    script.write_text(COMPILING)
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, script, way, thread],
        cwd=Path(__file__).parents[3],
        env=environment | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == said, done.stderr
