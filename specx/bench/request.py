"""What is asked of a benchmark. No torch: the command line fills it before models are loaded."""

from dataclasses import dataclass

from specx.documents.document import Document
from specx.profile import Profile


@dataclass(frozen=True)
class Scale:
    """Shapes that the embedded pair is written into (``bench/shapes.py``)."""

    target: str
    draft: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be measured.

    ``documents``: none means reports made up from ``seed``; ``most``: how many at a length;
    ``tokens``: most tokens of an output, None as the profile says. ``larger_draft``: a second
    draft, to compare with (``embedded:draft-large`` for the embedded pair unless said otherwise).
    ``read_s``: seconds that reading the documents took.
    """

    profile: Profile
    documents: tuple[Document, ...]
    lengths: tuple[int, ...]
    methods: str
    tasks: tuple[str, ...]
    repeats: int
    most: int
    tokens: int | None
    seed: int
    device: str
    scale: Scale | None = None
    larger_draft: str | None = None
    read_s: float = 0.0
