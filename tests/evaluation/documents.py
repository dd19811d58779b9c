"""Real documents by package: for development, for evaluation only, and PDFs of many producers.

The packages are Debian's (release 12), and each path is that inside its package. ``fetch.py``
brings them into a folder, and ``SPECX_DOCUMENTS_FOLDER`` names that folder to slow tests. The sets
``dev`` and ``eval`` share no package: nobody looks at ``eval`` while building, and nothing is tuned
on it. ``pdfs`` holds the PDFs of ``dev`` and more, for the words of PDFs.
"""

from dataclasses import dataclass

_DOC = "usr/share/doc/"
_SITE = "usr/lib/R/site-library/"
_MANUAL = "usr/share/R/doc/manual/"


@dataclass(frozen=True)
class RealDocument:
    """One document: its name in the folder, and where it comes from.

    A package may hold the file compressed, as ``path`` with ``.gz`` behind it. A document with a
    ``maker`` is made of that file: DOCX and ODT by pandoc, PDF by the other makers.
    """

    name: str
    package: str
    path: str
    maker: str | None = None


_Rows = tuple[tuple[str, ...], ...]


def _documents(rows: _Rows) -> tuple[RealDocument, ...]:
    return tuple(RealDocument(*row) for row in rows)


_DB = _DOC + "db5.3-doc/"
_RCPP = _SITE + "Rcpp/doc/"
_SQLITE = _DOC + "sqlite3/"
DEV = _documents(
    (
        ("hash_usenix.pdf", "db5.3-doc", _DB + "programmer_reference/hash_usenix.pdf"),
        ("libtp_usenix.pdf", "db5.3-doc", _DB + "programmer_reference/libtp_usenix.pdf"),
        ("bdb_usenix.pdf", "db5.3-doc", _DB + "programmer_reference/bdb_usenix.pdf"),
        ("in-memory.pdf", "db5.3-doc", _DB + "articles/inmemory/C/InMemoryDBApplication.pdf"),
        ("cvs-paper.pdf", "cvs", _DOC + "cvs/cvs-paper.pdf"),
        ("cvsclient.pdf", "cvs", _DOC + "cvs/cvsclient.pdf"),
        ("dtc-paper.pdf", "device-tree-compiler", _DOC + "device-tree-compiler/dtc-paper.pdf"),
        (
            "debref.ja.pdf",
            "debian-reference-ja",
            "usr/share/debian-reference/debian-reference.ja.pdf",
        ),
        ("bashref.pdf", "bash-doc", _DOC + "bash/bashref.pdf"),
        ("bash.pdf", "bash-doc", _DOC + "bash/bash.pdf"),
        ("fitdistr.pdf", "r-cran-fitdistrplus", _SITE + "fitdistrplus/doc/paper2JSS.pdf"),
        ("fitdistr-faq.html", "r-cran-fitdistrplus", _SITE + "fitdistrplus/doc/FAQ.html"),
        (
            "bridgesampling.pdf",
            "r-cran-bridgesampling",
            _SITE + "bridgesampling/doc/bridgesampling_paper.pdf",
        ),
        (
            "bridgesampling-tutorial.pdf",
            "r-cran-bridgesampling",
            _SITE + "bridgesampling/doc/bridgesampling_tutorial.pdf",
        ),
        ("R-FAQ.html", "r-doc-html", _MANUAL + "R-FAQ.html"),
        ("R-FAQ.pdf", "r-doc-pdf", _MANUAL + "R-FAQ.pdf"),
        ("R-data.pdf", "r-doc-pdf", _MANUAL + "R-data.pdf"),
        ("corrupt.html", "sqlite3-doc", _SQLITE + "howtocorrupt.html"),
        ("wal.html", "sqlite3-doc", _SQLITE + "wal.html"),
        ("corrupt.docx", "sqlite3-doc", _SQLITE + "howtocorrupt.html", "pandoc"),
        ("testing.odt", "sqlite3-doc", _SQLITE + "testing.html", "pandoc"),
        ("fhs.pdf", "debian-policy", _DOC + "debian-policy/fhs/fhs-3.0.pdf"),
        ("policy.epub", "debian-policy", _DOC + "debian-policy/policy.epub"),
        ("policy.txt", "debian-policy", _DOC + "debian-policy/policy.txt"),
        ("maint-guide.pdf", "maint-guide", _DOC + "maint-guide/maint-guide.en.pdf"),
        ("bzip2.pdf", "bzip2-doc", _DOC + "bzip2/manual.pdf"),
        ("libtasn1.pdf", "libtasn1-doc", _DOC + "libtasn1-doc/libtasn1.pdf"),
        (
            "reportlab.pdf",
            "python-reportlab-doc",
            _DOC + "python-reportlab-doc/reportlab-userguide.pdf",
        ),
        (
            "odyssey.txt",
            "python-reportlab-doc",
            _DOC + "python-reportlab-doc/examples/odyssey/odyssey.txt",
        ),
        ("gutenprint.pdf", "gutenprint-doc", _DOC + "gutenprint-doc/gutenprint-users-manual.pdf"),
        ("gutenprint.odt", "gutenprint-doc", _DOC + "gutenprint-doc/gutenprint-users-manual.odt"),
        ("rcpp.pdf", "r-cran-rcpp", _RCPP + "Rcpp-introduction.pdf"),
        ("rcpp-faq.pdf", "r-cran-rcpp", _RCPP + "Rcpp-FAQ.pdf"),
        ("zoo.pdf", "r-cran-zoo", _SITE + "zoo/doc/zoo.pdf"),
        ("slide-demo.pdf", "groff", _DOC + "groff-base/examples/mom/slide-demo.pdf"),
        ("mom-samples.pdf", "groff", _DOC + "groff-base/examples/mom/sample_docs.pdf"),
        ("mom-pdf.pdf", "groff", _DOC + "groff-base/examples/mom/mom-pdf.pdf"),
        ("pdfmark.pdf", "groff", _DOC + "groff-base/pdf/pdfmark.pdf"),
        ("refcard.pdf", "debian-refcard", _DOC + "debian-refcard/refcard-en-a4.pdf"),
        ("refcard-fr.pdf", "debian-refcard", _DOC + "debian-refcard/refcard-fr-a4.pdf"),
        (
            "debian-edu.epub",
            "debian-edu-doc-en",
            _DOC + "debian-edu-doc-en/debian-edu-bookworm-manual.epub",
        ),
        ("debmake.pdf", "debmake-doc", _DOC + "debmake-doc/debmake-doc.en.pdf"),
        ("icccm.pdf", "xorg-docs", _DOC + "xorg-docs/icccm/icccm.pdf"),
        ("xace.pdf", "xorg-docs", _DOC + "xorg-docs/Xserver/XACE-Spec.pdf"),
        ("zsh-faq.html", "zsh-doc", _DOC + "zsh-common/html/FAQ03.html"),
        ("aptitude.fr.html", "aptitude-doc-fr", _DOC + "aptitude/html/fr/ch02s03s05.html"),
        ("cookbook.html", "r-doc-html", _MANUAL + "R-data.html"),
    )
)

_SURVIVAL = "usr/lib/R/library/survival/doc/"
_POSTGRES = _DOC + "postgresql-doc-15/html/"
_HANDBOOK = _DOC + "debian-handbook/html/en-US/"
EVAL = _documents(
    (
        ("sandwich.pdf", "r-cran-sandwich", _SITE + "sandwich/doc/sandwich-CL.pdf"),
        ("lme4.pdf", "r-cran-lme4", _SITE + "lme4/doc/lmer.pdf"),
        ("quantreg.pdf", "r-cran-quantreg", _SITE + "quantreg/doc/rq.pdf"),
        ("coin.pdf", "r-cran-coin", _SITE + "coin/doc/LegoCondInf.pdf"),
        ("timedep.pdf", "r-cran-survival", _SURVIVAL + "timedep.pdf"),
        ("strucchange.pdf", "r-cran-strucchange", _SITE + "strucchange/doc/strucchange-intro.pdf"),
        ("countreg.pdf", "r-cran-pscl", _SITE + "pscl/doc/countreg.pdf"),
        ("seriation.pdf", "r-cran-seriation", _SITE + "seriation/doc/seriation.pdf"),
        ("fastlink.pdf", "fastlink-doc", _DOC + "fastlink/paper2.ps", "ghostscript"),
        ("csdp.pdf", "coinor-csdp-doc", _DOC + "coinor-csdp/csdpuser.pdf"),
        ("fasta.pdf", "fasta3-doc", _DOC + "fasta3/fasta_guide.pdf"),
        ("color.pdf", "ghostscript-doc", _DOC + "ghostscript/GS9_Color_Management.pdf"),
        ("music.pdf", "music-doc", _DOC + "music-doc/music-manual.pdf"),
        ("fai.pdf", "fai-doc", _DOC + "fai-doc/fai-guide.pdf"),
        ("debian-faq.pdf", "debian-faq", _DOC + "debian/FAQ/debian-faq.en.pdf"),
        ("ctsim.pdf", "ctsim-doc", _DOC + "ctsim/ctsim.pdf"),
        ("eyes.fr.pdf", "expeyes-doc-fr", "usr/share/expeyes/doc/fr-eyesj-progman.pdf"),
        ("dvdisaster.pdf", "dvdisaster-doc", _DOC + "dvdisaster/manual.pdf"),
        ("bird.pdf", "bird2-doc", _DOC + "bird2/bird.pdf"),
        ("freefem.pdf", "freefem-doc", _DOC + "freefem-doc/freefem.pdf"),
        ("why3.pdf", "why3-doc-pdf", _DOC + "why3-doc-pdf/manual.pdf"),
        (
            "multiple-choice.ja.pdf",
            "auto-multiple-choice-doc-pdf",
            _DOC + "auto-multiple-choice/auto-multiple-choice.ja.pdf",
        ),
        (
            "tutorial-slides.pdf",
            "packaging-tutorial",
            _DOC + "packaging-tutorial/packaging-tutorial.pdf",
        ),
        ("asymptote-card.pdf", "asymptote-doc", _DOC + "asymptote/asyRefCard.pdf"),
        ("knitr-card.pdf", "r-cran-knitr", _SITE + "knitr/doc/knitr-refcard.pdf"),
        ("ncurses.html", "ncurses-doc", _DOC + "ncurses-doc/html/hackguide.html"),
        ("lirc.html", "lirc-doc", _DOC + "lirc/lirc.org/html/configuration-guide.html"),
        ("ocr.html", "ocrmypdf-doc", _DOC + "ocrmypdf/html/introduction.html"),
        ("archiving.html", "postgresql-doc-15", _POSTGRES + "continuous-archiving.html"),
        ("postfix.html", "postfix-doc", _DOC + "postfix/html/OVERVIEW.html"),
        ("borg.html", "borgbackup-doc", _DOC + "borgbackup/html/internals/security.html"),
        (
            "packaging.es.epub",
            "ubuntu-packaging-guide-epub-es",
            _DOC + "ubuntu-packaging-guide-epub-es/ubuntu-packaging-guide.epub",
        ),
        (
            "developers.de.epub",
            "developers-reference-de",
            "usr/share/developers-reference/de/developers-reference.epub",
        ),
        ("internals.docx", "debian-handbook", _HANDBOOK + "sect.debian-internals.html", "pandoc"),
        ("workflows.docx", "git-doc", _DOC + "git-doc/gitworkflows.html", "pandoc"),
        ("live.odt", "live-manual-odf", _DOC + "live-manual/odt/live-manual.en.odt"),
        ("constitution.txt", "doc-debian", _DOC + "debian/constitution.1.6.txt"),
        ("fftw-faq.txt", "libfftw3-doc", _DOC + "libfftw3-dev/fftw-faq.ascii"),
        ("uids.md", "systemd", _DOC + "systemd/UIDS-GIDS.md"),
        (
            "grpc.md",
            "golang-google-grpc-dev",
            _DOC + "golang-google-grpc-dev/examples/gotutorial.md",
        ),
    )
)

PDFS = tuple(document for document in DEV if document.name.endswith(".pdf")) + _documents(
    (
        ("valgrind.pdf", "valgrind", _DOC + "valgrind/valgrind_manual.pdf"),
        ("gri.pdf", "gri-pdf-doc", _DOC + "gri/gri.pdf"),
        ("docbook-xsl.pdf", "docbook-xsl-doc-pdf", _DOC + "docbook-xsl-doc-pdf/doc/reference.pdf"),
        ("camlidl.pdf", "camlidl-doc", _DOC + "camlidl/camlidl-1.04.doc.pdf"),
        ("loki.pdf", "loki-doc", _DOC + "loki/loki_doc.ps", "ghostscript"),
        ("wal-chromium.pdf", "sqlite3-doc", _SQLITE + "wal.html", "chromium"),
        ("faq-chromium.pdf", "r-doc-html", _MANUAL + "R-FAQ.html", "chromium"),
        ("locking-office.pdf", "sqlite3-doc", _SQLITE + "lockingv3.html", "libreoffice"),
    )
)
LONG_MANUAL = "valgrind.pdf"  # 397 pages
TWO_COLUMNS = {  # pages of ``PDFS`` whose text stands in ``two_columns``, in the order of reading
    "bdb_usenix.pdf": (2, 4, 7),
    "hash_usenix.pdf": (2, 6),
    "dtc-paper.pdf": (3, 6),
    "mom-samples.pdf": (11,),
    "rcpp.pdf": (2, 5),
    "rcpp-faq.pdf": (2, 8),
}
SETS = {"dev": DEV, "eval": EVAL, "pdfs": PDFS}
