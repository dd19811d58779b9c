from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from specx.documents.discover import discover, require_file
from specx.errors import DocumentError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "x/b.txt",
        "x/a.pdf",
        "x/sub/c.MD",
        "x/.git/d.txt",
        "x/sub/d.markdown",
        "x/.e.txt",
        "x/f.png",
        "r.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_folder_gives_its_documents_in_order() -> None:
    found = discover(["x"])
    assert [source.path for source in found] == [
        "x/a.pdf",
        "x/b.txt",
        "x/sub/c.MD",
        "x/sub/d.markdown",
    ]
    assert [source.relative for source in found] == [PurePath(source.path) for source in found]


def test_an_absolute_folder_keeps_its_last_name(folder: Path) -> None:
    assert discover([str(folder / "x")])[0].relative == PurePath("x/a.pdf")


@pytest.mark.usefixtures("folder")
def test_the_current_folder_has_no_name_to_keep() -> None:
    assert discover(["."])[0].relative == PurePath("r.txt")


@pytest.mark.usefixtures("folder")
def test_files_and_stdin() -> None:
    found = discover(["x/f.png", "-", "r.txt"])
    assert [(source.path, str(source.relative)) for source in found] == [
        ("x/f.png", "f.png"),
        ("-", "stdin"),
        ("r.txt", "r.txt"),
    ]


@pytest.mark.usefixtures("folder")
def test_a_file_named_twice_is_read_once() -> None:
    assert [source.path for source in discover(["x/a.pdf", "x", "./x/a.pdf"])] == [
        "x/a.pdf",
        "x/b.txt",
        "x/sub/c.MD",
        "x/sub/d.markdown",
    ]


@pytest.mark.parametrize(
    ("named", "places"),
    [
        (["x/a.txt", "y/a.txt"], ["x/a.txt", "y/a.txt"]),
        (["x/a.txt", "y/a.txt", "r.txt"], ["x/a.txt", "y/a.txt", "r.txt"]),
        (["1/x/a.txt", "2/x/a.txt", "y/a.txt"], ["1/x/a.txt", "2/x/a.txt", "y/a.txt"]),
        (["1/x", "2/x"], ["1/x/a.txt", "2/x/a.txt"]),
        (["x", "1/x/a.txt", "y/a.txt"], ["here/x/a.txt", "1/x/a.txt", "y/a.txt"]),
        (["-", "y/stdin"], ["stdin", "y/stdin"]),
    ],
)
def test_files_of_the_same_name_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: list[str], places: list[str]
) -> None:
    here = tmp_path / "here"
    for name in ("x/a.txt", "y/a.txt", "y/stdin", "1/x/a.txt", "2/x/a.txt", "r.txt"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("text")
    monkeypatch.chdir(here)
    assert [str(source.relative) for source in discover(named)] == places
    assert [str(source.relative) for source in discover(named[::-1])] == places[::-1]


def test_the_place_of_a_file_never_leads_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "x")
    Path("r.txt").write_text("text")
    found = [source.relative for source in discover(["r.txt", "../r.txt"])]
    assert found == [PurePath("x/r.txt"), PurePath(folder.name, "r.txt")]


@pytest.mark.usefixtures("folder")
def test_missing_files_name_a_close_match() -> None:
    with pytest.raises(DocumentError, match=r"x/b\.text does not exist; did you mean x/b\.txt"):
        discover(["x/b.text"])
    with pytest.raises(DocumentError, match="nowhere/q does not exist; check the path"):
        discover(["nowhere/q"])


@pytest.mark.usefixtures("folder")
def test_a_folder_without_documents() -> None:
    with pytest.raises(DocumentError, match="empty holds no documents"):
        discover(["empty"])


@pytest.mark.usefixtures("folder")
def test_links_that_lead_back_end() -> None:
    Path("x/loop").symlink_to(Path("x").resolve(), target_is_directory=True)
    assert len(discover(["x"])) == 4


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        (
            "https://x.org/a b.pdf?c=1",
            "fetch it first with `curl -LO 'https://x.org/a b.pdf?c=1'`, or "
            "`curl -L 'https://x.org/a b.pdf?c=1' | specx summarize -`",
        ),
        ("HTTP://x.org/a", "fetch it first with `curl -LO HTTP://x.org/a`, or `curl -L HTTP://x.o"),
        ("file:///tmp/a.pdf", "name the file itself: /tmp/a.pdf"),
        ("file://localhost/tmp/a.pdf", "name the file itself: /tmp/a.pdf"),
    ],
)
def test_urls_are_not_read(source: str, advice: str) -> None:
    with pytest.raises(DocumentError) as caught:
        discover([source])
    expected = f"{source} is a URL, which specx does not read; {advice}"
    assert str(caught.value).startswith(expected)


def test_a_folder_that_cannot_be_opened_costs_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "x" / "locked").mkdir()
    real = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name == "locked":  # root may open every folder
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    before = [source.path for source in discover(["x"])]
    monkeypatch.setattr(Path, "iterdir", iterdir)
    found = discover(["x"])
    assert [source.path for source in found] == sorted([*before, "x/locked"])
    assert [str(source.error) for source in found if source.error] == [
        "x/locked cannot be opened: Permission denied"
    ]
    with pytest.raises(DocumentError, match=r"^x/locked cannot be opened: Permission denied$"):
        discover(["x/locked"])


def test_links_that_lead_nowhere_and_in_circles(folder: Path) -> None:
    (folder / "x" / "dangling.txt").symlink_to("no/such")
    (folder / "x" / "loop.txt").symlink_to("loop.txt")
    (folder / "x" / "back").symlink_to(folder)
    found = [source.path for source in discover(["x"])]
    assert {"x/dangling.txt", "x/loop.txt"} < set(found)
    assert not any("back" in path for path in found)
    with pytest.raises(DocumentError, match=r"dangling.txt is a link to no/such, which does not e"):
        require_file("x/dangling.txt")
    with pytest.raises(
        DocumentError, match=r"loop.txt cannot be read: Too many levels of symbolic"
    ):
        require_file("x/loop.txt")


def test_names_that_no_file_can_have(folder: Path) -> None:
    (folder / "plain").write_text("")
    with pytest.raises(DocumentError, match=r"^n{200}… cannot be read: File name too long$"):
        discover(["n" * 5000])
    with pytest.raises(DocumentError, match=r"^plain/b.txt does not exist; check the path$"):
        discover(["plain/b.txt"])
