"""Real manuals of Debian packages, where they are installed: their citations are on their pages."""

import gzip
import json
from pathlib import Path

import pytest

from specx.cli.main import run
from tests.corpus.independent import page_texts, stands_on

pytestmark = pytest.mark.slow

MANUALS = {
    "bzip2-doc": "bzip2/manual.pdf.gz",
    "libtasn1-doc": "libtasn1-doc/libtasn1.pdf",
    "debian-policy": "debian-policy/fhs/fhs-3.0.pdf.gz",
    "maint-guide": "maint-guide/maint-guide.en.pdf",
}


@pytest.mark.parametrize("package", MANUALS)
def test_citations_are_on_their_pages(package: str, tmp_path: Path) -> None:
    installed = Path("/usr/share/doc") / MANUALS[package]
    if not installed.is_file():
        pytest.skip(f"apt-get install {package} brings this manual")
    packed = installed.read_bytes()
    data = gzip.decompress(packed) if installed.suffix == ".gz" else packed
    manual, report = tmp_path / "manual.pdf", tmp_path / "report.json"
    manual.write_bytes(data)
    assert run(["summarize", str(manual), "--quiet", "--report", str(report)]) == 0
    citations = json.loads(report.read_text())["citations"]
    assert len(citations) == 8
    assert len({citation["sentence"] for citation in citations}) == 8
    pages = page_texts(data)
    wrong = [c for c in citations if not stands_on(c["sentence"], c["page"], pages)]
    assert wrong == []
