"""What the nodes of a level stand on, by a kernel and by plain torch, over a growing tree."""

import pytest
import torch
from specx.engine.growth import Footing, footing

from specx.engine.kv_cache import CacheShape, PreallocatedCache
from specx.kernels import fused
from specx.kernels.trees import Level
from specx.models.call import single_sets, unpack_sets, words_for

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(not fused.IS_AVAILABLE, reason="needs Triton")
@pytest.mark.parametrize("width", [1, 2, 33, 63])
@pytest.mark.parametrize("text", [1, 40])
def test_kernel_and_torch_agree_level_by_level(width, text, monkeypatch):
    depth = 6
    cache = PreallocatedCache(CacheShape(1, 1, 16, torch.float32, DEVICE), text + depth * width)
    cache.commit(text)
    words = words_for((depth - 1) * width)
    generator = torch.Generator().manual_seed(width)
    ground: Footing | None = None
    seen = torch.zeros(width, 0, dtype=torch.bool)
    for number in range(1, depth):
        parents = torch.randint(0, width, (width,), generator=generator)
        level = Level(*[parents.to(DEVICE)] * 2, torch.zeros(width, device=DEVICE))
        own = single_sets((number - 1) * width, width, words, DEVICE)
        found = []
        for serves in (False, True):
            monkeypatch.setattr(fused, "serves", lambda _, serves=serves: serves)
            found.append(footing(level, ground, own, number, cache))
        plain, ground = found
        assert torch.equal(plain.visible, ground.visible)
        assert torch.equal(plain.positions, ground.positions)
        assert torch.equal(plain.rows.places, ground.rows.places)
        assert ground.rows.storage is plain.rows.storage is cache.storage

        above = seen[parents] if number > 1 else seen
        seen = torch.cat([above, torch.eye(width, dtype=torch.bool)], 1)
        assert torch.equal(unpack_sets(ground.visible, number * width).cpu(), seen)
        assert not unpack_sets(ground.visible, 64 * words)[:, number * width :].any()
        assert ground.positions.tolist() == [text + number - 1] * width
        start = text + (number - 1) * width
        assert ground.rows.places.tolist() == list(range(start, start + width))
        cache.wrote(width)
