"""Bring the real documents of ``documents.py`` into a folder, each set in a folder of its own.

    python -m tests.evaluation.fetch FOLDER

Packages are downloaded with apt-get and unpacked beside the documents; none is installed. What is
there already stays. A document whose maker (pandoc, Ghostscript, LibreOffice, Chromium) is missing
is named and passed over.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.evaluation.documents import SETS, RealDocument

_OFFICE = ("soffice", "--headless", "--convert-to", "pdf:writer_web_pdf_Export", "--outdir")
_CHROMIUM = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer")


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, cwd=cwd, capture_output=True, timeout=600)


def _unpacked(package: str, folder: Path) -> Path:
    """Return the folder that holds the files of ``package``, downloaded if it isn't there."""
    place = folder / "packages" / package
    if not place.is_dir():
        with tempfile.TemporaryDirectory() as downloads:
            _run("apt-get", "download", package, cwd=Path(downloads))
            (archive,) = Path(downloads).glob("*.deb")
            unfinished = place.with_name(f"{package}.part")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            _run("dpkg", "-x", archive, unfinished)
            unfinished.rename(place)
    return place


def _make(maker: str, source: Path, target: Path, work: Path) -> None:
    if maker == "pandoc":
        _run("pandoc", source, "-o", target)
    elif maker == "ghostscript":
        _run("ps2pdf", source, target)
    elif maker == "chromium":
        _run(*_CHROMIUM, f"--user-data-dir={work}", f"--print-to-pdf={target}", source.as_uri())
    elif maker == "libreoffice":
        _run(*_OFFICE, work, source)
        shutil.move(work / f"{source.stem}.pdf", target)
    else:
        raise ValueError(f"no maker {maker}")


def _fetch(document: RealDocument, target: Path, folder: Path) -> None:
    source = _unpacked(document.package, folder) / document.path
    with tempfile.TemporaryDirectory() as work:
        packed = source.with_name(f"{source.name}.gz")
        if packed.is_file():
            source = Path(work) / source.name
            source.write_bytes(gzip.decompress(packed.read_bytes()))
        if document.maker is None:
            shutil.copyfile(source, target)
        else:
            _make(document.maker, source.resolve(), target, Path(work))


def main(folder: Path) -> int:
    """Fetch all sets into ``folder`` and return 1 if a document is missing."""
    missing = []
    for name, documents in SETS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for document in documents:
            target = folder / name / document.name
            if target.exists():
                continue
            try:
                _fetch(document, target, folder)
            except (OSError, subprocess.SubprocessError) as error:
                missing.append(target)
                said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
                print(f"{name}/{document.name} ({document.package}): {error} {said[-300:]}")
    print(f"{sum(map(len, SETS.values())) - len(missing)} documents, {len(missing)} missing")
    return 1 if missing else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.umask(0o022)
    sys.exit(main(Path(sys.argv[1]).resolve()))
