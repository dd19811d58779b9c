"""From a variant to the drafter of one document."""

from specx.bench.chain import ChainDrafter
from specx.bench.eviction.blind import RandomChunks, RecentFirst
from specx.bench.eviction.lexical import Lexical
from specx.bench.eviction.own_attention import OwnAttention
from specx.bench.eviction.reading import ReadingDrafter
from specx.bench.methods.variant import AT_PREFILL, Variant
from specx.engine.drafter import Drafter
from specx.engine.memory import CrossModel, Memory, Streaming
from specx.engine.methods import Pair, watched_layer
from specx.engine.model_drafter import DraftPlan, ModelDrafter
from specx.errors import UsageError
from specx.kernels.chunks import Grid, count_chunks
from specx.models.load import LoadedModel
from specx.profile import Profile


def build(variant: Variant, profile: Profile, pair: Pair, max_tokens: int) -> Drafter:
    """``profile``: as ``variant.change`` returned it; ``max_tokens``: of prompt and output.

    Raises UsageError for a layer that the target lacks.
    """
    if pair.draft is None or pair.draft_allowed is None:
        raise UsageError(f"profile {profile.name} has no draft, so it can only run plain")
    cache = profile.draft_cache
    memory = _memory(variant, profile, pair.target, pair.draft, max_tokens)
    watched = memory.watched if isinstance(memory, OwnAttention) else None
    chosen = memory
    if memory is not None and variant.settings.get(AT_PREFILL) is False:
        chosen = RecentFirst(cache, memory)
    kind = ChainDrafter if variant.chain else ModelDrafter
    # Evictions keep the request too: else it would be its loss that is measured.
    grids = {"cross-model": Grid.around, "random": Grid.ending}
    grids |= {"own-attention": Grid.ending, "lexical": Grid.ending}
    grid = grids.get(variant.memory, Grid.from_start)
    plan = DraftPlan(profile.tree, cache, chosen, watched, grid=grid)
    drafter = kind(pair.draft, pair.draft_allowed, plan, max_tokens)
    if isinstance(memory, OwnAttention | Lexical):
        return ReadingDrafter(drafter, memory)
    return drafter


def _memory(
    variant: Variant, profile: Profile, target: LoadedModel, draft: LoadedModel, max_tokens: int
) -> Memory | None:
    cache, path = profile.draft_cache, profile.tree.depth + 1
    chunks = count_chunks(max_tokens + path, cache.chunk)
    match variant.memory:
        case "full":
            return None
        case "streaming" | "window":
            return Streaming(cache)
        case "cross-model":
            return CrossModel(cache, watched_layer(cache, target))
        case "random":
            return RandomChunks(cache, chunks, draft.device)
        case "own-attention":
            return OwnAttention(cache, draft, path)
        case "lexical":
            vocabulary = max(target.vocab_size, draft.vocab_size)
            return Lexical(cache, vocabulary, chunks, draft.device)
