"""Sources on a CUDA device: what the operation takes at the end of a text."""

from statistics import median

import pytest
import torch

from specx.ops.contract import built_in_ops
from specx.ops.torch.backend import TorchOps

pytestmark = pytest.mark.gpu

HEADS, KV_HEADS, DIM = 32, 8, 128  # of Llama 3.1 8B
LENGTH, TOKENS = 16_384, 300
MOST_MS, MOST_BYTES = 30.0, 1 << 30


def test_300_tokens_at_16k_take_30_ms_at_most() -> None:
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device).bfloat16()

    queries, keys = normal(HEADS, TOKENS, DIM), normal(KV_HEADS, LENGTH + TOKENS, DIM)
    document, scaling = range(60, LENGTH - 40), DIM**-0.5
    ops = built_in_ops(device)

    def attend() -> torch.Tensor:
        return ops.passage_attention(queries, keys, LENGTH, document, scaling)

    found = attend()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(9):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        attend()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    memory = torch.cuda.max_memory_allocated() - before
    print(f"{median(times):.2f} ms, {memory / 1e6:.0f} MB beside queries and keys")
    # The last tokens, in float64.
    rows = slice(TOKENS - 8, TOKENS)
    wide = queries[:, rows].double().cpu(), keys.double().cpu()
    expected = TorchOps().passage_attention(*wide, LENGTH + TOKENS - 8, document, scaling)
    torch.testing.assert_close(found[rows].double().cpu(), expected, atol=1e-6, rtol=1e-3)
    assert median(times) <= MOST_MS
    assert memory <= MOST_BYTES
