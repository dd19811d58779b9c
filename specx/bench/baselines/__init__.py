"""Drafters to compare with: chains, and targets that draft for themselves.

As in ``specx/engine/policies.py``, nothing here waits for the device between two steps.
"""
