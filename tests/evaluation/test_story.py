"""The paper's story on a laptop: acceptance length against input length, by method.

One tree of 50 nodes and depth 10 everywhere, no fallback. 1K, 4K and 16K tokens of the target are
the beginnings of the longest documents.
"""

import pytest

from specx.decoding.loop import decode
from specx.decoding.methods import Pair
from specx.documents.digest import Digest
from specx.documents.document import Document
from specx.documents.prompt import Prompt
from specx.profile import Profile, TreeSettings
from specx.records import Method, Step, Tally

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

LENGTHS = {"1K": 1024, "4K": 4096, "16K": 16384}
METHODS: tuple[Method, ...] = ("tree", "streaming", "specextend")
DOCUMENTS, TOKENS = 6, 200


def beginning(digest: Digest, document: Document, tokens: int) -> Prompt:
    """A prompt of as many whole paragraphs as fit into ``tokens``."""
    low, high = 1, len(document.paragraphs)
    while low < high:
        middle = (low + high + 1) // 2
        fits = len(digest.prompts(_first(document, middle), 10**9)[0].token_ids) <= tokens
        low, high = (middle, high) if fits else (low, middle - 1)
    return digest.prompts(_first(document, low), 10**9)[0]


def _first(document: Document, paragraphs: int) -> Document:
    return Document(document.name, "text", (), document.paragraphs[:paragraphs])


def test_retrieval_brings_back_what_length_takes(
    govreport: dict[str, list[Document]], pair: Pair, mini: Profile
) -> None:
    digest = Digest(pair.target.tokenizer, sentences=8)
    profile = mini.model_copy(
        update={
            "tree": TreeSettings(nodes=50, depth=10, threshold=0.7),
            "generation": mini.generation.model_copy(update={"max_new_tokens": TOKENS}),
        }
    )
    table: dict[Method, dict[str, float]] = {method: {} for method in METHODS}
    for label, tokens in LENGTHS.items():
        for method in METHODS:
            tally = Tally()
            for document in govreport["16K"][:DOCUMENTS]:
                prompt = beginning(digest, document, tokens).token_ids
                for event in decode(pair, profile, method, prompt):
                    if isinstance(event, Step):
                        tally.add(event)
            table[method][label] = tally.acceptance_length
    for method, row in table.items():
        print(f"\n{method:12}", *(f"{label} {tau:.2f}" for label, tau in row.items()), sep="  ")
    assert table["specextend"]["16K"] >= 2 * table["tree"]["16K"]
