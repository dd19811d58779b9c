"""The experiments of ``specx bench``, one file each, in the order of ``docs/results.md``."""
