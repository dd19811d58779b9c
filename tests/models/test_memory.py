"""Free memory, as the kernel and the control groups tell it."""

from pathlib import Path

import pytest
import torch

from specx.cores import cgroup_free
from specx.errors import OutOfMemoryError
from specx.models import memory


def test_control_group_with_a_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    assert cgroup_free(tmp_path) == 450


def test_control_group_without_a_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("700\n")
    assert cgroup_free(tmp_path) is None
    assert cgroup_free(tmp_path / "missing") is None


def test_both_numbers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: 3_000_000_000)
    with pytest.raises(OutOfMemoryError, match=r"needs 16\.1 GB in main memory, but only 3\.0 GB"):
        memory.check_memory(16_100_000_000, torch.device("cpu"), "The target m")
    memory.check_memory(2_900_000_000, torch.device("cpu"), "The target m")


def test_an_unknown_amount_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: None)
    memory.check_memory(10**18, torch.device("cpu"), "The target m")
