"""What is said to the driver, by a driver that only takes notes."""

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from specx.ops.hopper import driver
from specx.ops.hopper.driver import CudaError, Kernel, tensor_map


class Notes:
    """Takes the place of the library: every function returns ``code``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.code = 0

    def __getattr__(self, name: str) -> Any:
        def note(*arguments: Any) -> int:
            if name == "cuGetErrorString":
                ctypes.cast(arguments[1], ctypes.POINTER(ctypes.c_char_p))[0] = b"out of luck"
                return 0
            self.calls.append((name, arguments))
            return self.code

        return note


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    notes = Notes()
    monkeypatch.setattr(driver, "_driver", lambda: notes)
    driver._encoded.cache_clear()
    return notes


def numbers(array: Any) -> list[int]:
    return [int(each) for each in array]


def test_a_map_of_a_matrix(notes: Notes) -> None:
    matrix = torch.empty(30, 128, dtype=torch.bfloat16)[:, :72]
    found = tensor_map(matrix, (16, 64))
    assert ctypes.addressof(found) % 64 == 0
    name, (where, kind, rank, data, sizes, pitches, box, steps, *rest) = notes.calls[0]
    assert name == "cuTensorMapEncodeTiled"
    assert (where.value, kind.value, rank.value) == (ctypes.addressof(found), 9, 2)
    assert data.value == matrix.data_ptr()
    assert (numbers(sizes), numbers(pitches)) == ([72, 30], [256])
    assert (numbers(box), numbers(steps)) == ([64, 16], [1, 1])
    assert [each.value for each in rest] == [0, 3, 1, 0]


def test_a_map_of_the_heads_of_a_cache(notes: Notes) -> None:
    keys = torch.empty(2, 8, 100, 128, dtype=torch.float16)[1]
    tensor_map(keys, (1, 128, 64))
    _, (_, kind, rank, _, sizes, pitches, box, *_) = notes.calls[0]
    assert (kind.value, rank.value) == (6, 3)
    assert (numbers(sizes), numbers(pitches)) == ([128, 100, 8], [256, 25600])
    assert numbers(box) == [64, 128, 1]


def test_a_map_of_slices(notes: Notes) -> None:
    """Neighbours in memory may be far apart in the array."""
    weight = torch.empty(96, 256, dtype=torch.float16)
    tensor_map(weight.view(96, 4, 64).transpose(0, 1), (2, 32, 64))
    _, (_, _, rank, _, sizes, pitches, box, *_) = notes.calls[0]
    assert rank.value == 3
    assert (numbers(sizes), numbers(pitches)) == ([64, 96, 4], [512, 128])
    assert numbers(box) == [64, 32, 2]


@pytest.mark.parametrize(
    "matrix",
    [torch.empty(8, 20).half()[:, 2:18], torch.empty(8, 20).half(), torch.empty(16, 8).half().T],
    ids=["begins between 16 bytes", "rows of 40 bytes", "columns are contiguous"],
)
def test_what_the_copy_engine_cannot_read(matrix: torch.Tensor, notes: Notes) -> None:
    with pytest.raises(AssertionError):
        tensor_map(matrix, (8, 64))
    assert not notes.calls


@pytest.mark.parametrize("box", [(8, 32), (64,), (1, 8, 64)])
def test_boxes_that_are_none(box: tuple[int, ...], notes: Notes) -> None:
    with pytest.raises(AssertionError):
        tensor_map(torch.empty(64, 64, dtype=torch.float16), box)
    assert not notes.calls


@pytest.mark.parametrize("cluster", [1, 4])
def test_a_launch_is_early_and_in_clusters(
    cluster: int, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_current_stream", lambda: 77)
    found = tensor_map(torch.empty(64, 64, dtype=torch.float16), (64, 64))
    number = ctypes.c_int(5)
    kernel = Kernel(ctypes.c_void_p(99), shared=1000)
    kernel.launch((8, 2, 3), 160, [found, number], cluster)
    name, (configuration, function, parameters, extra) = notes.calls[-1]
    assert (name, function.value, extra) == ("cuLaunchKernelEx", 99, None)
    assert numbers(parameters) == [ctypes.addressof(found), ctypes.addressof(number)]
    said = configuration._obj
    assert (numbers(said.grid), numbers(said.block)) == ([8, 2, 3], [160, 1, 1])
    assert (said.shared, said.stream) == (1000, 77)
    early, clusters = said.attributes[0], said.attributes[1]
    assert (early.kind, numbers(early.value)) == (6, [1] + [0] * 15)
    assert said.number == (2 if cluster > 1 else 1)
    assert (clusters.kind, numbers(clusters.value)) == (4, [cluster, 1, 1] + [0] * 13)


def test_structures_are_as_large_as_the_driver_s() -> None:
    """``cuda.h``: CUlaunchAttribute, 8 bytes of which only 4 are used and a union of 64;
    CUlaunchConfig."""
    assert ctypes.sizeof(driver._Attribute) == 72
    assert driver._Attribute.value.offset == 8
    assert ctypes.sizeof(driver._Configuration) == 56
    assert driver._Configuration.stream.offset == 32


def test_a_refusal_is_an_error_with_the_driver_s_words(notes: Notes) -> None:
    notes.code = 1
    with pytest.raises(CudaError, match="cuTensorMapEncodeTiled: out of luck"):
        tensor_map(torch.empty(64, 64, dtype=torch.float16), (64, 64))


def test_a_machine_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    driver._driver.cache_clear()
    driver._encoded.cache_clear()
    with pytest.raises(CudaError, match=r"libcuda\.so\.1: cannot open"):
        tensor_map(torch.empty(64, 64, dtype=torch.float16), (64, 64))
