"""The models of the embedded pair, and their training curricula."""

from dataclasses import dataclass, field, replace

from transformers import LlamaConfig, PreTrainedTokenizerFast

from specx.training.objective import Pointer
from specx.training.task import Mixture


@dataclass(frozen=True)
class Phase:
    """``steps`` optimizer steps of ``tokens`` tokens, all GPUs together.

    Each step draws one of ``lengths`` for its documents.
    """

    lengths: tuple[int, ...]
    steps: int
    tokens: int = 65536


@dataclass(frozen=True)
class Recipe:
    """A model and its curriculum."""

    config: LlamaConfig
    phases: tuple[Phase, ...]
    mixture: Mixture = field(default_factory=Mixture)
    learning_rate: float = 2e-3
    warmup: int = 200
    floor: float = 0.03  # of the learning rate, reached at the last step
    judged_layers: tuple[int, int] | None = None  # layers below the judge, None: no judge
    pointers: tuple[Pointer, ...] = ()

    def shortened(self, share: float) -> "Recipe":
        """Return the curriculum with this share of its steps, at least one per phase."""
        phases = tuple(replace(p, steps=max(1, round(p.steps * share))) for p in self.phases)
        return replace(self, phases=phases, warmup=max(1, round(self.warmup * share)))


def _llama(tokenizer: PreTrainedTokenizerFast, theta: float, **shape: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )


FURTHER_SORTS = {"real": 0.25, "names": 0.15, "echoes": 0.35, "random": 0.02, "alphabet": 0.1,
                 "phrases": 0.03, "variants": 0.1}  # fmt: skip
JUDGED_LAYERS = (3, 5)  # of 8: three to see which words return, two for leads, three to choose


def target_recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    """Return the target's first course: documents of 256 to 24K tokens."""
    short, middle = (512, 1024, 2048), (512, 1024, 2048, 4096, 8192)
    long = (*middle, 4096, 8192, 16384, 16384, 24576)
    phases = (
        Phase((512,), 600),
        Phase((512, 1024), 1200),
        Phase((*short, 4096), 1200),
        Phase(middle, 1500),
        Phase(long, 9000),
        Phase((*long, 8192, 16384, 24576, 24576), 4500),
    )
    return Recipe(_target_config(tokenizer), phases, judged_layers=JUDGED_LAYERS)


def further_target_recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    """Return the target's second course, which starts from the weights of the first.

    It consists mostly of long documents, in which words and names recur with different
    continuations. Key heads of two layers are trained to attend to the source of the next copied
    token; the first course, which does not train that, made these layers do it already.
    """
    lengths = (1024, 2048, 4096, 8192, 16384, 16384, 24576, 24576)
    return Recipe(
        _target_config(tokenizer),
        (Phase((*lengths, 8192), 7000, tokens=196608), Phase(lengths, 7000, tokens=196608)),
        Mixture(FURTHER_SORTS),
        learning_rate=1e-3,
        floor=0.01,
        judged_layers=JUDGED_LAYERS,
        pointers=(Pointer(layer=5, kv_head=0), Pointer(layer=6, kv_head=1)),
    )


def _target_config(tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    return _llama(
        tokenizer,
        theta=1e6,
        hidden_size=256,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=1024,
        max_position_embeddings=24576,
    )


def draft_recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    """Return the draft's course: 1.7 M parameters, on documents of at most 1,024 tokens.

    The draft learns nothing about long input.
    """
    shape = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 32}
    shape |= {"num_key_value_heads": 4, "intermediate_size": 384}
    config = _llama(tokenizer, theta=1e4, max_position_embeddings=1024, **shape)
    return Recipe(config, (Phase((512,), 4000), Phase((512, 1024, 1024), 4000)))


RECIPES = {
    "target": target_recipe,
    "target-further": further_target_recipe,
    "draft": draft_recipe,
}
