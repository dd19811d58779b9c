"""Drafters to compare with: chains, and targets that draft for themselves.

As in ``specx/decoding/model_drafter.py``, nothing here waits for the device between two steps.
"""
