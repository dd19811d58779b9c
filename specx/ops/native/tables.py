"""The int64 tables that a pass reads: sizes, addresses, and float32 as bits."""

from collections.abc import Sequence

from specx.ops.native.emitter import UNIT

BLOCK = 512  # keys that are attended to at a time: their scores, keys and values stay in the cache

GATHERED = 64  # keys behind the prefix that are gathered by row, at most
WIDENED = 64  # keys or values in 8 bits that are float32 at a time, in the cache
SCORES = BLOCK + GATHERED + UNIT  # numbers between the scores of one line and of the next

# Of a piece of a pass: its layers, the recorded layers before them, whether it is the last piece,
# and the output of the experts of its first layer, whose attention the piece before has computed.
# Without such an output (0), it is the first piece.
PIECE = ("first_layer", "end_layer", "noted", "is_last", "added")
CALL = (  # of one pass
    "tokens", "positions", "text_rows", "places", "prefix", "sets", "words", "behind", "gathers",
    "segments", "logit_rows", "logits_to_keep", "logits", "kept", *PIECE,
)  # fmt: skip
MODEL = (
    "layer_count", "hidden", "vocabulary", "embedding", "embedding_layout", "embedding_scale",
    "ropes", "rope_count", "layers", "norm", "norm_bias", "eps", "head", "head_bias",
    "head_layout", "logit_scale", "logit_cap", "bounds",
)  # fmt: skip
# Memory of each thread, ``stride`` elements behind that of the thread before it.
AREAS = (
    "hidden_rows", "angles", "normed", "heads", "queries", "scores", "sums", "row_max",
    "denominators", "widened", "attended", "gates", "after_attention", "after_mlp",
)  # fmt: skip
# Memory of all threads where none has heads of its own.
COMMON = ("all_heads", "all_sums", "all_row_max", "all_denominators")
FRAME = (*CALL, *MODEL, "rows", "threads", *AREAS, "stride", *COMMON)
PLACE_OF = ("storage", "capacity", "kept_as")  # of a layer's keys and values
WHOLE, HALF, BYTES = range(3)  # kept as float32, float16, in 8 bits
KEPT = ("kept_layer", "queries_kept", "ends_kept")  # of each recorded layer; −1 ends the table
ROPE = ("frequencies", "attention_factor", "rope_size", "rope_offset")
MAPS = ("qkv", "out", "gate_up", "down")
MAP = ("", "_bias", "_layout")
# One more: in bfloat16. Packed: in blocks, of which there is a table.
BY_ROW, BY_COLUMN, PACKED = 0, 2, 4
NORMS = ("input", "output", "attended", "mlp")
SIZES = ("query_heads", "kv_heads", "head_dim", "inner")
LAYER = (  # begins with its sizes, which are read alone where all layers have the same
    *SIZES, "kind", "scaling", "rotates", "angles_offset",
    *(f"{norm}_{part}" for norm in NORMS for part in ("norm", "norm_bias", "eps")),
    "query_norm", "query_step", "key_norm", "key_step", "head_eps", "ones", "value_eps",
    "beta", "length", "window", "cap", "sinks", "residual_scale", "scalar",
    *(f"{name}{part}" for name in MAPS for part in MAP),
)  # fmt: skip
ALWAYS = 2**40  # a window without end
UNEVEN = 512  # elements by which a thread's share may be larger than another's, of whole blocks
GROWTH = 16  # segments in a range of rows from one end to twice as far


def bounds_to(rows: int) -> list[int]:
    """Return the borders of the key segments that threads share, and the end of the keys.

    They depend only on the number of rows in the text, so that a token's attention is always summed
    in the same order. Segments grow with the text, so that their number stays limited.
    """
    bounds = [0]
    while bounds[-1] < rows:
        size = 2 ** (bounds[-1].bit_length() - 1) // GROWTH if bounds[-1] else 0
        bounds.append(bounds[-1] + max(BLOCK, size))
    return bounds


def area_sizes(
    sizes: tuple[int, int, int, int], *, rows: int, threads: int, hidden: int, angles: int
) -> dict[str, int]:
    """Return the maximum size, in elements, of each memory area of a thread, in order.

    ``sizes``: a layer's ``sizes_of``; ``angles``: the number of RoPE angles of a row.
    """
    query_heads, kv_heads, dim, inner = sizes
    group, own_kv = query_heads // kv_heads, -(-kv_heads // threads)
    lines = own_kv * group * rows
    found = {
        "hidden_rows": rows * hidden, "angles": rows * angles, "normed": rows * hidden,
        "heads": rows * (query_heads + 2 * kv_heads) * dim,
        "queries": lines * dim, "scores": group * rows * SCORES,
        "sums": lines * dim, "row_max": lines, "denominators": lines,
        "widened": WIDENED * dim, "attended": lines * dim + rows * UNEVEN,
        "gates": rows * 2 * (inner // threads + UNEVEN),
        "after_attention": rows * hidden, "after_mlp": rows * hidden,
    }  # fmt: skip
    return {name: _whole(size) for name, size in found.items()}


def common_sizes(sizes: tuple[int, int, int, int], *, rows: int, segments: int) -> dict[str, int]:
    """Return the elements of each memory area that threads share, for a layer with shared heads."""
    query_heads, kv_heads, dim, _ = sizes
    lines = query_heads * rows * segments
    found = {
        "all_heads": rows * (query_heads + 2 * kv_heads) * dim,
        "all_sums": lines * dim, "all_row_max": lines, "all_denominators": lines,
    }  # fmt: skip
    return {name: _whole(size) for name, size in found.items()}


def largest(areas: Sequence[dict[str, int]]) -> dict[str, int]:
    """Return the largest size of each area, so that one set of areas serves all layers."""
    return {name: max(each[name] for each in areas) for name in areas[0]}


def _whole(size: int) -> int:
    return -(-size // UNIT) * UNIT
