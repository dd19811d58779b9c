"""Tell the captions of figures, tables and listings from text."""

import re

_WORDS = (
    "fig(?:ure|s?\\.|s)?|tables?|tab\\.|listings?|algorithms?|schemes?|exhibits?|plates?|charts?"
    "|maps?|photos?|abbildung|abb\\.|bild|tabelle|tableau|illustration|figura|tabla|tabela"
    "|tabella|рис(?:унок|\\.)|таблица|табл\\.|[图圖図表]"
)
_NUMBER = r"(?:[A-Z]{1,2}[.-]?)?\d{1,3}(?:[.–-]\d{1,3})*[a-z]?|[IVXL]{1,6}"
_CAPTION = re.compile(
    rf"(?i:(?:(?:online|extended data|supplementary|appendix) )?(?:{_WORDS}))\s*(?:{_NUMBER})"
    # A verb in small letters behind the number makes it a sentence: "Figure 3 shows …".
    r"(?:\s*\([a-z0-9]{1,3}\))?(?:\s*[:.|：．—–-]+(?:\s|$|(?<=[—：．]))|\s*$|\s+[\"'“‘(]?[A-Z0-9\u0400-\u042f]"
    r"|\s*[\u3040-\u30ff\u3400-\u9fff])"
)


def is_caption(text: str) -> bool:
    """Return True for text that begins as a caption does: ``Figure 3: …``, ``Table 2``."""
    return _CAPTION.match(text) is not None
