"""Cores, quotas and neighbours, on made-up trees of /proc and /sys."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specx import cores
from specx.cores import LoadMonitor, cgroup_quota, choose_threads, usable_cores


def tree(root: Path, own: str, **files: str) -> Path:
    """Make a tree: ``own`` is /proc/self/cgroup, ``files`` lie in sys/fs/cgroup, __ is a slash."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for name, text in files.items():
        group, _, file = name.replace("__", "/").rpartition("/")
        folder = root / "sys/fs/cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / re_dot(file)).write_text(text)
    return root


def re_dot(name: str) -> str:
    return name.replace("cpu_", "cpu.", 1)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"job__cpu_max": "150000 100000\n"}, 1.5),
        ({"job__cpu_max": "max 100000\n"}, None),
        ({}, None),
        ({"job__cpu_max": "max 100000\n", "cpu_max": "50000 100000\n"}, 0.5),
        ({"job__cpu_max": "300000 100000\n", "cpu_max": "200000 100000\n"}, 2.0),
        ({"job__cpu_max": "nonsense"}, None),
        ({"job__cpu_max": "1000 0"}, None),
    ],
)
def test_version_2(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert cgroup_quota(tree(tmp_path, "0::/job\n", **files)) == quota


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(
    ("given", "period", "quota"),
    [("100000", "100000", 1.0), ("-1", "100000", None), ("50000", "20000", 2.5)],
)
def test_version_1(
    tmp_path: Path, mount: str, given: str, period: str, quota: float | None
) -> None:
    files = {
        f"{mount}__a__b__cpu_cfs_quota_us": given,
        f"{mount}__a__b__cpu_cfs_period_us": period,
    }
    own = f"5:memory:/other\n4:{'cpu,cpuacct' if ',' in mount else 'cpu'}:/a/b\n0::/\n"
    assert cgroup_quota(tree(tmp_path, own, **files)) == quota


def test_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    """The path of the host's group is not there: its files lie at the mount."""
    assert cgroup_quota(tree(tmp_path, "0::/docker/1a2b\n", cpu_max="25000 100000")) == 0.25


def test_no_interface_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "number"), [("10000", 1), ("100000", 1), ("100500", 1)])
def test_a_quota_is_rounded_up(tmp_path: Path, quota: str, number: int) -> None:
    assert usable_cores(tree(tmp_path, "0::/\n", cpu_max=f"{quota} 100000")) == number


def test_never_more_than_the_affinity_mask(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/\n", cpu_max="9900000 100000")
    assert usable_cores(root) == len(os.sched_getaffinity(0))


# ---------------------------------------------------------------- what others do


def stat(root: Path, seconds: float, *, nice: float = 0, idle: float = 0) -> None:
    """Write a /proc/stat in which the usable cores have together had these seconds."""
    usable = sorted(os.sched_getaffinity(0))
    ticks = [round(part * os.sysconf("SC_CLK_TCK")) for part in (seconds, nice, 0, idle, 0)]
    rows = [f"cpu{usable[0]} {' '.join(map(str, ticks))}"]
    rows += [f"cpu{core} 0 0 0 0 0" for core in usable[1:]]
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat").write_text("cpu 1 2 3\n" + "\n".join(rows) + "\nintr 5\n")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The wall clock and the process's own time, which a test moves on."""
    now = [0.0, 0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "process_time", lambda: now[1])
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return now


def test_busy_is_what_is_neither_idle_nor_our_own(tmp_path: Path, clock: list[float]) -> None:
    count = len(os.sched_getaffinity(0))
    stat(tmp_path, 0)
    others = LoadMonitor(tmp_path)
    clock[:] = [10.0, 4.0]
    stat(tmp_path, 10 * count - 3, idle=3)
    assert others.busy() == pytest.approx(count - 0.3 - 0.4)


def test_work_of_lower_priority_counts(tmp_path: Path, clock: list[float]) -> None:
    count = len(os.sched_getaffinity(0))
    stat(tmp_path, 0)
    others = LoadMonitor(tmp_path)
    clock[:] = [10.0, 10.0 * count - 10]
    stat(tmp_path, 10 * count - 10, nice=10)
    assert others.busy() == pytest.approx(1.0)


def test_waiting_for_a_core_counts(tmp_path: Path, clock: list[float]) -> None:
    """Two of three threads waited for a second each, of ten; others took nothing to speak of."""
    count = len(os.sched_getaffinity(0))
    stat(tmp_path, 0)
    for number in range(3):
        task = tmp_path / f"proc/self/task/{number}"
        task.mkdir(parents=True)
        (task / "schedstat").write_text("5000 0 7\n")
    others = LoadMonitor(tmp_path)
    clock[:] = [10.0, 10.0 * count]
    stat(tmp_path, 10 * count)
    for number in range(2):
        (tmp_path / f"proc/self/task/{number}/schedstat").write_text("9000 1000000000 9\n")
    assert others.busy() == pytest.approx(0.2)


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    assert LoadMonitor(tmp_path).busy() is None
    assert LoadMonitor(tmp_path).taken(2) is None


def test_a_sandbox_whose_counters_stand_still_tells_nothing(
    tmp_path: Path, clock: list[float]
) -> None:
    stat(tmp_path, 0)
    watched = LoadMonitor(tmp_path)
    clock[:] = [10.0, 4.0]
    assert watched.taken(2) is None
    clock[:] = [20.0, 8.0]
    assert watched.busy() is None


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("threads", "others", "share"),
    [
        (8, 0.0, 0.0),
        (8, 2.0, 0.25),
        (8, 8.0, 1.0),
        (2, 6.0, 0.0),  # there are cores enough for both
        (2, 7.0, 0.5),
        (1, 7.5, 0.5),  # beside a GPU one thread works
        (16, 2.0, 0.25),
    ],
)
def test_others_take_the_cores_that_both_want(
    tmp_path: Path, clock: list[float], threads: int, others: float, share: float
) -> None:
    own = min(threads, 8 - others)
    stat(tmp_path, 0)
    watched = LoadMonitor(tmp_path)
    clock[:] = [10.0, 10 * own]
    stat(tmp_path, 10 * (own + others), idle=10 * (8 - own - others))
    assert watched.taken(threads) == pytest.approx(share)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("threads", "share"), [(8, 0.3), (4, 0.3), (9, 0.0)])
def test_others_take_the_time_in_which_a_thread_waits(
    tmp_path: Path, clock: list[float], threads: int, share: float
) -> None:
    """Others hardly run where threads spin; more threads than cores wait for each other."""
    stat(tmp_path, 0)
    task = tmp_path / "proc/self/task/1"
    task.mkdir(parents=True)
    (task / "schedstat").write_text("5000 0 7\n")
    watched = LoadMonitor(tmp_path)
    clock[:] = [10.0, 40.0]
    stat(tmp_path, 40, idle=40)
    (task / "schedstat").write_text("9000 3000000000 9\n")
    assert watched.taken(threads) == pytest.approx(share)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("others", "share"), [(5.0, 0.0), (7.25, 0.5)])
def test_under_a_quota_others_take_what_it_grants(
    tmp_path: Path, clock: list[float], others: float, share: float
) -> None:
    """Two threads with a core and a half; above it they wait for themselves."""
    tree(tmp_path, "0::/\n", cpu_max="150000 100000")
    stat(tmp_path, 0)
    task = tmp_path / "proc/self/task/1"
    task.mkdir(parents=True)
    (task / "schedstat").write_text("5000 0 7\n")
    watched = LoadMonitor(tmp_path)
    own = min(1.5, 8 - others)
    clock[:] = [10.0, 10 * own]
    (task / "schedstat").write_text("9000 5000000000 9\n")
    stat(tmp_path, 10 * (own + others), idle=10 * (8 - own - others))
    assert watched.taken(2) == pytest.approx(share)


# ---------------------------------------------------------------- the choice


class Busy(LoadMonitor):
    def __init__(self, cores: float | None) -> None:
        self.cores = cores

    def busy(self) -> float | None:
        return self.cores


@pytest.mark.parametrize(
    ("asked", "environment", "busy", "number", "spin"),
    [
        (None, {}, 0.0, None, True),
        (None, {}, None, None, True),
        (None, {}, 1.0, None, False),
        (1, {}, 1.0, 1, True),
        (2, {}, 1.0, 2, False),
        (8, {}, 0.0, 8, False),
        (None, {"OMP_NUM_THREADS": "1"}, 0.0, None, True),
        (None, {"OMP_WAIT_POLICY": "ACTIVE"}, 1.0, None, True),
        (None, {"GOMP_SPINCOUNT": "1000"}, 1.0, None, True),
    ],
)
def test_threads_spin_only_where_they_have_the_cores_for_themselves(
    monkeypatch: pytest.MonkeyPatch,
    asked: int | None,
    environment: dict[str, str],
    busy: float | None,
    number: int | None,
    spin: bool,
) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    threads = choose_threads(asked, environment, Busy(busy))
    assert (threads.number, threads.spin) == (number, spin)
    before = dict(environment)
    threads.set(environment)
    assert before.items() <= environment.items()  # what the user has set stays
    assert ("OMP_WAIT_POLICY" in environment) == (not spin or "OMP_WAIT_POLICY" in before)


@pytest.mark.parametrize("busy", [0.0, 1.0])
@pytest.mark.parametrize("waits", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}])
@pytest.mark.parametrize(
    ("asked", "set_number", "fixed"),
    [(None, {}, False), (2, {}, True), (8, {}, True), (None, {"OMP_NUM_THREADS": "2"}, True)],
)
def test_a_number_that_the_user_has_said_is_fixed(
    monkeypatch: pytest.MonkeyPatch,
    asked: int | None,
    set_number: dict[str, str],
    waits: dict[str, str],
    busy: float,
    fixed: bool,
) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: 2)
    assert choose_threads(asked, set_number | waits, Busy(busy)).fixed == fixed


def test_a_quota_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    threads = choose_threads(None, {}, Busy(0.0))
    assert (threads.number, threads.fixed) == (1, False)
    assert "1 of 8 cores" in threads.reason


def test_a_busy_neighbour_is_seen() -> None:
    code = "while True: pass"
    count = len(os.sched_getaffinity(0))
    workers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        time.sleep(0.2)
        others = LoadMonitor()
        time.sleep(0.3)
        busy = others.busy()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if busy is None:
        pytest.skip("this machine tells nothing of other processes")
    assert busy > 0.5 * count
