"""Compiling at first use: what is kept, when it is compiled anew, what a mistake says."""

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from specx.ops.hopper import compiler, experts_product, packed_product, prompt_attention
from specx.ops.hopper import product as hopper_product
from specx.ops.hopper import tree_attention as hopper_attention
from specx.ops.hopper.compiler import compiled
from specx.ops.hopper.driver import CudaError
from specx.ops.hopper.packed_product import PACKED_SOURCE, TILES
from specx.ops.hopper.product import ACTIVATIONS, GATED, PLAIN, ROTATED, plan
from specx.ops.hopper.small_product import SMALL_SOURCE
from tests.pairwise import every_other, pairwise

NVRTC = importlib.util.find_spec("nvidia")
LIBRARIES = [
    path
    for place in (NVRTC.submodule_search_locations or [] if NVRTC else [])
    for path in sorted(Path(place).glob("*/lib/libnvrtc.so.*"))
]
needs_nvrtc = pytest.mark.skipif(not LIBRARIES, reason="needs nvidia-cuda-nvrtc")
ELF = b"\x7fELF"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "specx" / "kernels"


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of the package, on a machine whose torch brings none."""
    library = ctypes.CDLL(str(LIBRARIES[0]))
    monkeypatch.setattr(compiler, "_nvrtc", lambda: library)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What was compiled, by something that takes the place of NVRTC."""
    seen: list[list[str]] = []

    def pretend(text: bytes, header: bytes, name: str, options: list[str]) -> bytes:
        seen.append(options)
        return ELF + repr((text, header, name, options)).encode()

    monkeypatch.setattr(compiler, "_compile", pretend)
    monkeypatch.setattr(compiler, "version", lambda: (13, 0))
    return seen


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text("// a kernel\n")
    return path


def test_a_kernel_is_compiled_once(
    source: Path, compilations: list[list[str]], empty_cache: Path
) -> None:
    first = compiled(source, {"ROWS": 64, "HALF": False})
    assert compiled(source, {"ROWS": 64, "HALF": False}) == first
    assert len(compilations) == 1
    assert {"--define-macro=ROWS=64", "--define-macro=HALF=0"} <= set(compilations[0])
    assert len(list(empty_cache.iterdir())) == 1


def test_what_makes_it_another_kernel(
    source: Path,
    compilations: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header = tmp_path / "header.cuh"
    header.write_text("// before\n")
    monkeypatch.setattr(compiler, "HEADER", header)
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: source.write_text("// another\n"),
        lambda: header.write_text("// behind\n"),
        lambda: monkeypatch.setattr(compiler, "version", lambda: (13, 1)),
    ]
    for number, change in enumerate(changes, 1):
        change()
        compiled(source, {"ROWS": 64})
        assert len(compilations) == number
    compiled(source, {"ROWS": 128})
    assert len(compilations) == len(changes) + 1


@pytest.mark.parametrize("size", [0, 20, 50])
def test_a_damaged_file_is_compiled_anew(
    size: int, source: Path, compilations: list[list[str]], empty_cache: Path
) -> None:
    first = compiled(source, {})
    (kept,) = empty_cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:size])
    for _ in range(2):
        assert compiled(source, {}) == first
    assert len(compilations) == 2


def test_a_cache_folder_that_cannot_be_written_to(
    source: Path, compilations: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiled(source, {"ROWS": 64}).startswith(ELF)
    compiled(source, {"ROWS": 64})
    assert len(compilations) == 2


def test_nothing_is_left_of_a_file_that_could_not_be_kept(
    source: Path,
    compilations: list[list[str]],
    empty_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert compiled(source, {}).startswith(ELF)
    assert list(empty_cache.iterdir()) == []
    assert len(compilations) == 1


def test_a_torch_without_the_compiler(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "1.0")
    compiler._nvrtc.cache_clear()
    with pytest.raises(CudaError, match="libnvrtc"):
        compiled(source, {})


@needs_nvrtc
@pytest.mark.usefixtures("nvrtc")
def test_a_mistake_says_where_it_is(source: Path, empty_cache: Path) -> None:
    source.write_text('extern "C" __global__ void kernel() {\n    nonsense;\n}\n')
    with pytest.raises(CudaError, match=r'kernel\.cu\(2\): error: identifier "nonsense"'):
        compiled(source, {"HALF": 0})
    assert not empty_cache.exists()


@needs_nvrtc
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("slots", "half"),
    every_other(
        [{}, {"SLOTS": 1}, {"SLOTS": 3}, {"SLOTS": 3, "DIM": 64}, {"SLOTS": 3, "DIM": 256}],
        [False, True],
    ),
    ids=str,
)
def test_tree_attention_compiles(half: bool, slots: dict[str, int]) -> None:
    assert compiled(hopper_attention.SOURCE, {"HALF": half, **slots}).startswith(ELF)


@needs_nvrtc
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("dim", "own"), [(64, 128), (256, 64), pytest.param(128, 64, marks=pytest.mark.slow)]
)
def test_merging_compiles(dim: int, own: int) -> None:
    constants = {"HALF": 0, "DIM": dim, "OWN": own}
    assert compiled(hopper_attention.MERGE_SOURCE, constants).startswith(ELF)


@needs_nvrtc
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(("dim", "half"), every_other(prompt_attention.DIMS, [False, True]))
def test_prompt_attention_compiles(half: bool, dim: int) -> None:
    constants = {"HALF": half, "PROMPT": True, "DIM": dim}
    assert compiled(hopper_attention.SOURCE, constants).startswith(ELF)


@needs_nvrtc
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("shape", "normed"), every_other([(PLAIN, 8), (GATED, 96), (ROTATED, 16)], [False, True])
)
def test_products_of_small_weights_compile(shape: tuple[int, int], normed: bool) -> None:
    kind, rows = shape
    constants = {"ROWS": rows, "INPUTS": 896, "KIND": kind, "HALF": normed, "ACTIVATION": kind}
    constants |= {"NORMED": normed, "HEAD": 64 if kind == ROTATED else 2}
    assert compiled(SMALL_SOURCE, constants).startswith(ELF)


@pytest.mark.every(3)
@needs_nvrtc
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("tiles", "kind", "rows"),
    [
        pytest.param(*cell, marks=pytest.mark.slow if number % 3 else ())
        for number, cell in enumerate(pairwise(TILES, [PLAIN, GATED, ROTATED], [4096, 28672]))
    ],
)
def test_products_of_packed_weights_compile(tiles: int, kind: int, rows: int) -> None:
    formats = ["FP8"] if rows == 4096 else ["Q4_K"] if kind == GATED else ["Q4_K", "Q6_K"]
    given = {"KIND": kind, "HEAD": 128 if kind == ROTATED else 2, "ACTIVATION": kind, "HALF": 0}
    bits = [packed_product.BITS[name] for name in formats]
    given |= {"TILES": tiles, "FIRST": bits[0], "SECOND": bits[-1]}
    launch = packed_product.plan(tiles, rows, 16, formats, 132)
    constants = {name.upper(): int(value) for name, value in asdict(launch).items()}
    constants |= {"STAGES": launch.stages(tiles, formats)[0]}
    assert compiled(PACKED_SOURCE, given | constants).startswith(ELF)


@needs_nvrtc
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(("kind", "tiles"), every_other([PLAIN, GATED], [1, 2]))
def test_products_with_experts_compile(kind: int, tiles: int) -> None:
    given = {"KIND": kind, "TILES": tiles, "HALF": 0, "CLAMPED": kind, "ACTIVATION": kind}
    given |= {"RESIDENT": experts_product.LAUNCHES[tiles][2]}
    assert compiled(experts_product.EXPERTS_SOURCE, given).startswith(ELF)


@needs_nvrtc
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("dim", "tiles"), every_other([64, 128], [1, 3, hopper_attention.MOST_TILES])
)
def test_attention_to_a_short_cache_compiles(dim: int, tiles: int) -> None:
    constants = {"TILES": tiles, "DIM": dim, "HALF": tiles == 3}
    assert compiled(hopper_attention.SHORT_SOURCE, constants).startswith(ELF)


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    "kind",
    [PLAIN, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (GATED, ROTATED))],
)
def test_every_launch_of_a_product_compiles(kind: int) -> None:
    """In one of the two types each, which the source only names.

    Those of gates and of rotated heads are the same, so each of these kinds has half of them.
    """
    sides = 1 if kind == PLAIN else 2
    launches = {
        plan(rows // sides, inputs, sides, 132)
        for rows in (64, 896, 1536, 4096, 6144, 22016, 28672, 128256)
        for inputs in (1024, 8960)
    }
    head = {"HEAD": 128} if kind == ROTATED else {}
    for number, launch in enumerate(sorted(launches, key=str)):
        if number % 2 == {GATED: 0, ROTATED: 1}.get(kind):
            continue
        constants = {name.upper(): value for name, value in asdict(launch).items()}
        constants |= {"KIND": kind, "HALF": number % 2, **head}
        if kind == GATED:
            constants["ACTIVATION"] = number % len(ACTIVATIONS)
        assert compiled(hopper_product.SOURCE, constants).startswith(ELF)
