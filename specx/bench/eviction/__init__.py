"""Other ways to choose what a draft remembers, to compare cross-model retrieval with.

Like ``specx/decoding/memory.py``, nothing here waits for the device between two steps.
"""
