"""specx: summarize long documents with speculative decoding that stays fast (SpecExtend)."""

__version__ = "0.1.0"
