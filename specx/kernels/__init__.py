"""Every operation on tensors that has more than one implementation.

``ops.py`` has one signature and one docstring for each; ``torch/``, ``triton/`` and ``hopper/`` have
the implementations. ``trees.py``, ``chunks.py`` and ``ancestors.py`` are what operations are given.
"""
