"""Drafters to compare with.

As in ``specx/decoding/model_drafter.py``, no method waits for the device between two steps.
"""
