"""Every operation on tensors that has more than one implementation.

``contract.py`` has one signature and docstring for each; ``torch/``, ``triton/`` and ``hopper/`` have
the implementations. ``trees.py``, ``chunks.py``, ``ancestors.py`` and ``layers.py`` are the records
that operations are given.
"""
