"""Drafters to compare with: chains, and targets that draft for themselves.

As in ``specx/decoding/model_drafter.py``, no method waits for the device between two steps.
"""
