"""Machine code on disk."""

import importlib
import os
import platform
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

pytest.importorskip("llvmlite")
from specx.errors import UsageError
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.models.model_files import open_model
from specx.ops.contract import kept_formats
from specx.ops.native import code, is_limited, unpacking
from specx.ops.native.code import loading
from specx.ops.native.kinds import PLAIN, LayerKind, PassKind

_built = cache(code.build)  # LLVM takes seconds


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    try:
        code.openmp()
    except OSError:
        pytest.skip("torch has another OpenMP here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(code, "build", _built)
    return tmp_path / "specx" / "native"


def test_threads_are_those_of_torch():
    """SentencePiece brings an OpenMP of its own: threads of both would contend for the cores."""
    importlib.import_module("sentencepiece")
    assert "sentencepiece" not in code.openmp.__wrapped__()._name


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"OMP_THREAD_LIMIT": "1"}, "False"),
        pytest.param({"OMP_DYNAMIC": "true"}, "False", marks=pytest.mark.slow),
    ],
)
def test_fewer_threads_than_asked_for_do_no_pass(settings, expected):
    script = "import torch; from specx.ops.native.code import has_team; print(has_team(2))"
    assert python(script, **settings).stdout.strip() == expected


def test_code_is_compiled_once(folder, monkeypatch):
    """The functions for all models, and the pass for those that have the same parts."""
    assert code.load().address("run")
    files = set(folder.iterdir())
    assert len(files) == 2
    other = PassKind(layers=(LayerKind(owns_heads=False),))
    assert code.load(other).address("run")
    assert len({*folder.iterdir()} - files) == 1
    monkeypatch.setattr(code, "build", lambda *_, **__: pytest.fail("it is on disk"))
    assert all(code.load(kind).address("run") for kind in (PLAIN, other))
    assert code.has_team(2)


def test_pages_of_llvm_are_given_back():
    assert code.loading.__wrapped__().result()
    maps = Path("/proc/self/smaps").read_text()
    found = re.findall(r" r-xp .*/libllvmlite\.so\n(?:[A-Z].*\n)*?Rss: +(\d+) kB", maps)
    assert found
    assert sum(map(int, found)) < 4_000  # of 80 MB, and 32 that are read by starting it


def test_damaged_code_is_compiled_again(folder):
    code.load()
    whole = {file: file.stat().st_size for file in folder.iterdir()}
    for file in whole:
        file.write_bytes(b"no object file")
    assert code.load().address("run")
    assert {file: file.stat().st_size for file in folder.iterdir()} == whole


def test_another_version_of_llvmlite_has_files_of_its_own(folder, monkeypatch):
    code.load()
    monkeypatch.setattr(code.llvmlite, "__version__", "0.0")
    code.load()
    assert len(list(folder.iterdir())) == 4


def test_a_folder_that_cannot_be_written_to_does_no_harm(folder):
    folder.parent.parent.joinpath("specx").write_text("a file")
    assert code.load().address("run")


def test_without_openmp_of_gnu_torch_does_it_all(monkeypatch):
    def none():
        raise OSError("torch has no OpenMP of GNU")

    monkeypatch.setattr(code, "openmp", none)
    assert loading.__wrapped__(PLAIN).result() is None


def test_an_older_processor_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(code, "_processor", lambda: ("flags : fpu sse2 avx",))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(unpacking, "vector_unit", code.vector_unit.__wrapped__)
    assert kept_formats(torch.device("cpu")) == ()
    loaded = load_model(ModelSpec("embedded:target"), "cpu", "target")
    assert not loaded.model.has_fused_forward


def test_code_can_be_limited_to_avx2():
    """The widest vectors of the assembler text are those of the limit."""
    has = Path("/proc/cpuinfo").read_text().split()
    if "avx2" not in has:
        pytest.skip("no AVX2 here")
    script = (
        "import llvmlite.binding as llvm; from specx.ops.native import code; "
        "from specx.ops.native.code import write_functions; target = code._target(); "
        "module = llvm.parse_assembly(write_functions(code.vector_unit())); "
        "print('zmm' in target.emit_assembly(module), code._file('functions'))"
    )
    limited, file = python(script, SPECX_CPU="avx2").stdout.split()
    assert limited == "False"
    assert (Path(file).name == code._file("functions").name) == ("avx512f" not in has)
    if "avx512f" in has:
        assert python(script, SPECX_CPU="").stdout.startswith("True ")


def test_a_limit_that_is_unknown_is_an_error(monkeypatch):
    monkeypatch.setenv("SPECX_CPU", "sse9")
    is_limited.cache_clear()
    with pytest.raises(UsageError, match="SPECX_CPU is 'sse9'"):
        open_model(ModelSpec("embedded:target"), "cpu", "target")


def python(script, **settings):
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
