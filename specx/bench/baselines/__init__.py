"""Drafters to compare with: chains, and targets that draft for themselves.

As in ``specx/decoding/policies.py``, nothing here waits for the device between two steps.
"""
