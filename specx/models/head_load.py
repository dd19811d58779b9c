"""From a head's files to a head at work with its target."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from specx.errors import ModelError
from specx.models.decoder_files import tensors_of
from specx.models.head_config import HeadChoices, read_head_spec
from specx.models.head_decoder import Borrowed, HeadDecoder, expected_shapes, head_weights
from specx.models.head_files import NO_LIMIT, HeadFiles, LoadedHead, checked, target_ids
from specx.models.load import DTYPES, LoadedModel, ModelSpec, attending_ops
from specx.models.rope import RopeFacts
from specx.ops.layers import LinearMap


class _Moved:
    """Tensors that were read, on their way to a device (``Tensors``)."""

    def __init__(
        self, tensors: dict[str, Tensor], device: torch.device, dtype: torch.dtype
    ) -> None:
        self._tensors, self._device, self._dtype = tensors, device, dtype

    @property
    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def joined(self, names: Sequence[str]) -> Tensor:
        found = [self._tensors[name].to(self._device, self._dtype) for name in names]
        return found[0] if len(found) == 1 else torch.cat(found)


def load_head(
    files: HeadFiles, spec: ModelSpec, target: LoadedModel, choices: HeadChoices
) -> LoadedHead:
    """Build the head for its target.

    Raises ModelError that names the key or tensor which is missing, superfluous or wrong.
    """
    label, tensors, dtype = files.label, files.tensors, DTYPES[spec.dtype] or target.dtype
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    shape = read_head_spec(files.raw, shapes, target, choices, label)
    if not target.is_ours and target.num_layers in shape.features:
        raise ModelError(
            f"{label} reads the output of the last layer of {target.source}, which transformers' "
            "modules do not show; choose another head."
        )
    weights = checked(tensors, dict(expected_shapes(shape, label)), label)
    ids = target_ids(tensors, shape, target, label).to(target.device)
    embedding, lm_head = target.vocabulary_weights
    own_head = LinearMap(lm_head, target.model.weights.head.bias)
    borrowed = Borrowed(embedding=embedding, head=own_head, target_ids=ids)
    dim = shape.config["head_dim"]
    ops = attending_ops(spec.model, target.ops.attention_by, target.device, dtype, dim)
    moved = _Moved(weights, target.device, dtype)
    head = HeadDecoder(head_weights(shape, moved, borrowed, ops.arranged, label), ops)
    (rope,) = head.decoder_spec.ropes
    theirs = {embedding.data_ptr(), lm_head.data_ptr()}
    own = {t.data_ptr(): t.nbytes for t in tensors_of(head.weights) if t is not ids}
    return LoadedHead(
        spec=shape,
        num_layers=len(head.layers),
        num_heads=shape.config["num_attention_heads"],
        num_kv_heads=shape.config["num_key_value_heads"],
        head_dim=dim,
        hidden_size=shape.config["hidden_size"],
        vocab_size=len(ids),
        window=shape.window or NO_LIMIT,
        eos_token_ids=target.eos_token_ids,
        rope=RopeFacts(shape.config["rope_parameters"]["rope_type"], rope.inv_freq, rope.amplitude),
        model=head,
        tokenizer=target.tokenizer,
        source=spec.model,
        dtype=dtype,
        device=target.device,
        weight_bytes=sum(size for place, size in own.items() if place not in theirs),
        ops=ops,
    )
