"""Sources of the sentences that a model writes, from its own attention while it writes them."""

from dataclasses import replace

from specx.decoding.sources import SourceSettings
from specx.documents.document import Document
from specx.ops.chunks import PASSAGE, Passages
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Output, Prompt, PromptKind
from specx.prompts.sources import DocumentTokens, sentence_sources
from specx.runs.document_run import DecodedText
from specx.runs.provenance import cited


class SourceFinder:
    """Asks for the attention of a text's tokens, and tells its sentences' sources from it.

    Digests cite by themselves, and some tokenizers do not tell which tokens are the document's:
    then it does nothing.
    """

    def __init__(self, kind: PromptKind, layer: int) -> None:
        """``layer``: the layer to ask, from 0."""
        self._kind, self._layer = kind, layer

    def tokens(self, prompt: Prompt) -> DocumentTokens | None:
        """Return which tokens of a prompt are the document's, None where nothing can be told."""
        kind = self._kind
        return kind.document_tokens(prompt) if isinstance(kind, Instruct) else None

    def settings(self, text: DecodedText) -> SourceSettings | None:
        """Return what is to be kept while a text is written; None: nothing."""
        document = text.document
        if document is None:
            return None
        passages = Passages(first=document.first, tokens=len(document.spans))
        return SourceSettings(layer=self._layer, passages=passages)

    def told(self, output: Output, text: DecodedText, document: Document) -> Output:
        """Return the output of a text with the sources of its sentences."""
        if text.document is None:
            return output
        sources = sentence_sources(output, text.attention, text.prompt, text.document, PASSAGE)
        output = replace(output, sources=sources)
        return replace(output, cited=cited(document, output))
