"""The forty documents, by kind."""

from tests.corpus.long_cases import LONG_CASES
from tests.corpus.short_cases import SHORT_CASES

CASES = (*LONG_CASES, *SHORT_CASES)
