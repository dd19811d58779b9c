"""GGUF files written byte by byte, so that any byte of them can be wrong."""

import struct
from dataclasses import dataclass, field
from typing import Any

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
_LETTERS = {UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "?"}
LAYERS, HIDDEN, HEADS, WIDE = 2, 64, 4, 96
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "ab", "▁a"]


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind: int, value: Any) -> bytes:
    return text(value) if kind == STRING else struct.pack(f"<{_LETTERS[kind]}", value)


def key(name: str | bytes, kind: int, value: Any) -> bytes:
    """Return a key with its value; of a list, ``kind`` is that of its values."""
    head = text(name)
    if isinstance(value, list):
        values = b"".join(scalar(kind, each) for each in value)
        return head + struct.pack("<IIQ", ARRAY, kind, len(value)) + values
    return head + struct.pack("<I", kind) + scalar(kind, value)


def keys_of_llama() -> dict[str, bytes]:
    """Return the keys of a tiny Llama with a SentencePiece vocabulary, each with its value."""
    counts = {
        "llama.block_count": LAYERS,
        "llama.context_length": 512,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": WIDE,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": 2,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    kinds = [2, 3, 3, *[6] * 256, *[1] * 5]
    scores = [0.0] * 259 + [-1.0, -2.0, -3.0, -4.0, -5.0]
    return {
        "general.architecture": key("general.architecture", STRING, "llama"),
        **{name: key(name, UINT32, value) for name, value in counts.items()},
        "llama.attention.layer_norm_rms_epsilon": key(
            "llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5
        ),
        "tokenizer.ggml.model": key("tokenizer.ggml.model", STRING, "llama"),
        "tokenizer.ggml.tokens": key("tokenizer.ggml.tokens", STRING, TOKENS),
        "tokenizer.ggml.token_type": key("tokenizer.ggml.token_type", INT32, kinds),
        "tokenizer.ggml.scores": key("tokenizer.ggml.scores", FLOAT32, scores),
    }


@dataclass
class Described:
    """What a file says about one tensor, the fastest dimension first."""

    name: str | bytes
    dims: tuple[int, ...]
    kind: int = 0
    offset: int = 0
    size: int = 0

    def packed(self) -> bytes:
        dims = struct.pack(f"<I{len(self.dims)}Q", len(self.dims), *self.dims)
        return text(self.name) + dims + struct.pack("<IQ", self.kind, self.offset)


def tensors_of_llama() -> list[Described]:
    """Return the tensors of the same model, all float32."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (HIDDEN, len(TOKENS))}
    for i in range(LAYERS):
        matrices = {
            **{"attn_q": (HIDDEN, HIDDEN), "attn_k": (HIDDEN, 32), "attn_v": (HIDDEN, 32)},
            **{"attn_output": (HIDDEN, HIDDEN), "ffn_down": (WIDE, HIDDEN)},
            **{"ffn_gate": (HIDDEN, WIDE), "ffn_up": (HIDDEN, WIDE)},
            **{"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)},
        }
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in matrices.items()}
    shapes["output_norm.weight"] = (HIDDEN,)
    tensors, at = [], 0
    for name, dims in shapes.items():
        size = 4 * dims[0] * (dims[1] if len(dims) > 1 else 1)
        tensors.append(Described(name=name, dims=dims, offset=at, size=size))
        at += -(-size // 32) * 32
    return tensors


@dataclass
class RawGguf:
    """A file in parts. ``counts``: the numbers of tensors and keys, if they are to be wrong."""

    magic: bytes = b"GGUF"
    version: int = 3
    keys: dict[str, bytes] = field(default_factory=keys_of_llama)
    tensors: list[Described] = field(default_factory=tensors_of_llama)
    counts: tuple[int | None, int | None] = (None, None)

    def set(self, name: str, kind: int, value: Any) -> None:
        self.keys[name] = key(name, kind, value)

    def tensor(self, name: str) -> Described:
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def bytes(self) -> bytes:
        tensors, keys = self.counts
        tensors = len(self.tensors) if tensors is None else tensors
        keys = len(self.keys) if keys is None else keys
        head = self.magic + struct.pack("<IQQ", self.version, tensors, keys)
        head += b"".join(self.keys.values())
        head += b"".join(tensor.packed() for tensor in self.tensors)
        head += bytes(-len(head) % 32)
        ends = [tensor.offset + tensor.size for tensor in self.tensors]
        return head + bytes(max((end for end in ends if end < 1 << 30), default=0))
