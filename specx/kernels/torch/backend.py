"""The backend in plain torch: which function serves which operation."""

import torch

from specx.kernels.torch import attention, cache, layer, scores, softmax, trees


class TorchOps:
    """``Ops`` in torch, for any device and dtype."""

    name = "torch"

    store_rows = staticmethod(cache.store_rows)
    keep_rows = staticmethod(cache.keep_rows)
    append_rows = staticmethod(cache.append_rows)
    gather_chunks = staticmethod(cache.gather_chunks)

    tree_attention = staticmethod(attention.tree_attention)
    prefill_attention = staticmethod(attention.prefill_attention)
    merge_attention = staticmethod(softmax.merge)
    chunk_scores = staticmethod(scores.chunk_scores)
    best_chunks = staticmethod(scores.best_chunks)

    best_continuations = staticmethod(trees.best_continuations)
    level_inputs = staticmethod(trees.level_inputs)
    best_tree = staticmethod(trees.best_tree)
    most_probable = staticmethod(trees.most_probable)
    accept = staticmethod(trees.accept)

    layer_kernels = staticmethod(layer.TorchLayer)
    product = staticmethod(layer.TorchProduct)
    rms_norm = staticmethod(layer.rms_norm)
    rotary_angles = staticmethod(layer.rotary_angles)

    def fuses(self, dtype: torch.dtype) -> bool:  # noqa: ARG002
        return False  # transformers' own layers are as fast
