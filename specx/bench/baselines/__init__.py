"""Drafters to compare with: other ways to draft, and to choose what a draft remembers.

As in ``specx/engine/policies.py``, nothing here waits for the device between two steps.
"""
