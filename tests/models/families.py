"""Small random models of every family: the oracle that decoders are held against."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from specx.kernels.ancestors import AncestorMask
from specx.kernels.ops import Ops
from specx.kernels.torch.backend import CpuOps
from specx.models.call import PrefillCall, SlotMapping, TreeCall
from specx.models.decoder import Decoder
from specx.models.families import read_architecture
from specx.models.families.weight_map import WeightReader

CPU = torch.device("cpu")
WINDOW = 12
SIZES = {
    "vocab_size": 131,
    "hidden_size": 144,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 32,  # not 144 / 9
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOWED = {"sliding_window": WINDOW}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"]}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
DIVIDED = {key: value for key, value in SIZES.items() if key != "head_dim"}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
PER_LAYER = {"vocab_size_per_layer_input": 131, "hidden_size_per_layer_input": 6}
GEMMA4 = SIZES | {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": WINDOW,
}


@dataclass(frozen=True)
class Cell:
    """A model of a family: what is special about it, and the settings of its config.

    ``length``: tokens of a text.
    """

    family: str
    feature: str
    settings: dict[str, Any]
    length: int = 40

    def __str__(self) -> str:
        return f"{self.family}: {self.feature}"


def _cells() -> Iterator[Cell]:
    tied = {"tie_word_embeddings": True}
    untied = {"tie_word_embeddings": False}
    bias = {"attention_bias": True}
    yield Cell("llama", "9 heads, 3 key heads", SIZES)
    yield Cell("llama", "tied, biases", SIZES | tied | bias | {"mlp_bias": True})
    yield Cell("llama", "llama3 frequencies", SIZES | {"rope_parameters": LLAMA3})
    linear = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    yield Cell("llama", "linear frequencies", SIZES | {"rope_parameters": linear})
    yield Cell("llama", "yarn", SIZES | {"rope_parameters": YARN})
    dynamic = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 3.0}
    ntk = SIZES | {"rope_parameters": dynamic, "max_position_embeddings": 24}
    yield Cell("llama", "dynamic NTK, short", ntk, length=22)
    yield Cell("llama", "dynamic NTK, long", ntk)
    yield Cell("mistral", "a window in all layers", SIZES | WINDOWED)
    yield Cell("mistral", "no window", SIZES | {"sliding_window": None})
    yield Cell("ministral", "windows in some layers", SIZES | WINDOWED | ALTERNATING)
    rope3 = YARN | {"llama_4_scaling_beta": 0.3, "mscale": 1.0, "mscale_all_dim": 1.0}
    yield Cell("ministral3", "temperature of queries", SIZES | {"rope_parameters": rope3})
    yield Cell("qwen2", "biases of heads", SIZES)
    windows = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
    yield Cell("qwen2", "windows in some layers, tied", SIZES | windows | tied)
    yield Cell("qwen3", "norms of heads", SIZES)
    yield Cell("qwen3", "windows in some layers, biases, tied", SIZES | windows | tied | bias)
    yield Cell("smollm3", "layers without positions", SIZES | {"no_rope_layers": [1, 0]})
    yield Cell("phi3", "joined maps", DIVIDED)
    partial = {"partial_rotary_factor": 0.75, "original_max_position_embeddings": 24}
    phi4 = DIVIDED | partial | {"rope_parameters": LONGROPE} | tied
    yield Cell("phi3", "longrope of a part, short", phi4, length=24)
    yield Cell("phi3", "longrope of a part, long", phi4)
    yield Cell("phi3", "a window in all layers", DIVIDED | WINDOWED)
    yield Cell("gemma", "wide norms, scaled embeddings", SIZES)
    scalar = {"query_pre_attn_scalar": 24}
    yield Cell("gemma2", "caps of scores and logits", SIZES | scalar | WINDOWED | ALTERNATING)
    capped = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0}
    yield Cell("gemma2", "low caps", SIZES | scalar | WINDOWED | ALTERNATING | capped | untied)
    yield Cell(
        "gemma3_text", "frequencies by kind of layer", SIZES | scalar | WINDOWED | ALTERNATING
    )
    both = {
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    scaled = SIZES | scalar | WINDOWED | ALTERNATING | {"rope_parameters": both}
    yield Cell("gemma3_text", "scaled frequencies, biases", scaled | bias)
    last = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_hidden_layers": 4}
    yield Cell("gemma4_text", "two head sizes", GEMMA4 | ALTERNATING | PER_LAYER)
    shared = {"num_kv_shared_layers": 2, "use_double_wide_mlp": True}
    yield Cell("gemma4_text", "shared keys and values", GEMMA4 | last | PER_LAYER | shared)
    equal = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
    none = {"hidden_size_per_layer_input": 0, "final_logit_softcapping": 3.0}
    yield Cell("gemma4_text", "keys as values", GEMMA4 | ALTERNATING | equal | none)
    yield Cell("olmo2", "norms of whole heads, behind", SIZES)
    yield Cell("olmo3", "windows in some layers", SIZES | WINDOWED | ALTERNATING)
    scaled = {
        "full_attention": YARN,
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    yield Cell("olmo3", "yarn", SIZES | WINDOWED | ALTERNATING | {"rope_parameters": scaled})
    loud = {"logit_scale": 0.7}
    yield Cell("cohere", "parallel, interleaved", SIZES | bias | loud)
    normed = SIZES | {"use_qk_norm": True} | untied | loud
    yield Cell("cohere", "norms of single heads", normed)
    yield Cell("cohere2", "windows beside no positions", DIVIDED | WINDOWED | ALTERNATING | loud)
    scales = {
        "embedding_multiplier": 3.0,
        "logits_scaling": 2.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
    }
    yield Cell("granite", "multipliers", SIZES | scales | bias)
    hybrid = (
        SIZES
        | scales
        | {
            "num_local_experts": 0,
            "shared_intermediate_size": 80,
            "layer_types": ["full_attention"] * 2,
            "mamba_n_heads": 12,
        }
    )
    yield Cell("granitemoehybrid", "no positions", hybrid)
    yield Cell(
        "granitemoehybrid", "positions, tied", hybrid | {"position_embedding_type": "rope"} | tied
    )
    yield Cell("glm", "a part interleaved, biases", SIZES)
    yield Cell("glm4", "norms on both sides", SIZES | {"attention_bias": False})
    yield Cell("seed_oss", "biases of heads", SIZES)
    yield Cell("seed_oss", "all biases", SIZES | {"attention_out_bias": True, "mlp_bias": True})
    yield Cell("ernie4_5", "interleaved, tied", SIZES)
    yield Cell("ernie4_5", "biases", SIZES | {"use_bias": True} | untied)
    yield Cell("starcoder2", "LayerNorm, plain MLP", SIZES)
    yield Cell("starcoder2", "a window, no biases", SIZES | WINDOWED | {"use_bias": False} | untied)
    yield Cell("apertus", "xielu", SIZES | {"rope_parameters": LLAMA3})
    yield Cell("arcee", "squared ReLU", SIZES | {"mlp_bias": True})
    yield Cell("hunyuan_v1_dense", "norms behind RoPE", SIZES)
    alpha = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}
    yield Cell("hunyuan_v1_dense", "NTK by alpha", SIZES | {"rope_parameters": alpha} | tied)
    yield Cell("exaone4", "windows beside no positions", SIZES | WINDOWED | ALTERNATING)
    full = {"sliding_window": None, "layer_types": ["full_attention"] * 2}
    yield Cell("exaone4", "no windows", SIZES | full | tied)


CELLS = tuple(_cells())
# A cell for each feature, for every run; the others are slow.
FEATURES = frozenset(
    {
        "tied, biases", "windows in some layers", "temperature of queries", "norms of heads",
        "layers without positions", "longrope of a part, long", "low caps", "two head sizes",
        "frequencies by kind of layer", "shared keys and values", "keys as values",
        "norms of whole heads, behind", "parallel, interleaved", "norms of single heads",
        "multipliers", "a part interleaved, biases", "LayerNorm, plain MLP", "xielu",
        "squared ReLU", "norms behind RoPE",
    }
)  # fmt: skip
# Of these, where machine code is tried in every run: it is compiled for each kind of layers.
COMPILED = frozenset({"tied, biases", "low caps", "norms of whole heads, behind"})
# What machine code has no passes for; layers are computed one by one.
LAYER_BY_LAYER = frozenset({"two head sizes", "shared keys and values", "xielu"})


class Layered(CpuOps):
    """Operations on a CPU by which layers are computed one by one."""

    def whole_pass(self, weights: Any) -> None:  # noqa: ARG002
        return None


LAYERED = Layered()
AT_ONCE = CpuOps()  # passes over few rows in machine code, where that is written for a model


class Read:
    """The tensors of a file, by name (``Tensors``)."""

    def __init__(self, tensors: dict[str, Tensor], dtype: torch.dtype) -> None:
        self.tensors, self.dtype, self.read = tensors, dtype, set[str]()

    @property
    def names(self) -> set[str]:
        return set(self.tensors)

    def joined(self, names: Any) -> Tensor:
        self.read |= set(names)
        found = [self.tensors[name].to(self.dtype) for name in names]
        return found[0] if len(found) == 1 else torch.cat(found)


@dataclass
class Pair:
    """A model of transformers, the config and the tensors that it writes, and our decoder."""

    cell: Cell
    oracle: Any
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    made: dict[Any, Decoder] = field(default_factory=dict)

    def decoder(self, length: int | None = None, ops: Ops = LAYERED) -> Decoder:
        """The decoder for texts of so many tokens."""
        key = length, type(ops)
        if key not in self.made:
            architecture = read_architecture(self.config, "The model", length)
            tensors = Read(self.tensors, self.oracle.dtype)
            reader = WeightReader(
                spec=architecture.spec,
                weight_map=architecture.weights,
                tensors=tensors,
                arranged=ops.arranged,
            )
            self.made[key] = Decoder(reader.decoder(lambda: float("inf")), ops)
            assert tensors.read == architecture.weights.names(architecture.spec)
        return self.made[key]

    @cached_property
    def prompt(self) -> Tensor:
        return torch.randint(
            3, 131, (self.cell.length,), generator=torch.Generator().manual_seed(5)
        )

    @torch.no_grad()
    def expected(self, texts: list[list[int]]) -> Tensor:
        """The oracle's logits [N, L, V] of texts, each as long as the cell's length or padded."""
        longest = max(self.cell.length, *map(len, texts))
        ids = torch.tensor([text + [3] * (longest - len(text)) for text in texts])
        return self.oracle(ids, use_cache=False).logits

    def written(self, prompt: Tensor) -> list[int]:
        """Return the text that the oracle writes greedily behind a prompt, with it.

        Its ``generate`` changes frequencies that depend on the length while it writes. For these,
        the text is the one that the frequencies of its whole length give.
        """
        if "long" not in self.cell.feature.split():
            settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            written = self.oracle.generate(prompt[None], max_length=self.cell.length, **settings)
            return written[0].tolist()
        ids: list[int] = prompt.tolist()
        while len(ids) < self.cell.length:
            ids.append(int(self.expected([ids])[0, len(ids) - 1].argmax()))
        return ids


def make_pair(cell: Cell, folder: Path, dtype: torch.dtype = torch.float32) -> Pair:
    """Draw a model, write it, and read its config and tensors."""
    settings = {key: value for key, value in cell.settings.items() if value is not None}
    settings |= {
        key: None
        for key in ("pad_token_id", "sliding_window")
        if key in cell.settings and cell.settings[key] is None
    }
    config = AutoConfig.for_model(cell.family, **json.loads(json.dumps(settings)))
    torch.manual_seed(1)
    oracle = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype)
    randomize(oracle)
    oracle.eval().save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    return Pair(cell, oracle, written, load_file(folder / "model.safetensors"))


@torch.no_grad()
def randomize(model: Any) -> None:
    """Draw every weight, so that each matters: norms, biases and constants, too."""
    generator = torch.Generator().manual_seed(3)
    named = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in named:
        if "inv_freq" in name or name.endswith(("embed_scale", ".beta", ".eps")):
            continue
        drawn = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
        if tensor.ndim > 1 and "norm" not in name:
            tensor.copy_(drawn / tensor.shape[-1] ** 0.5)
        elif "norm" in name and name.endswith("weight"):
            tensor.add_(drawn * 0.3)  # around 1, or 0 where that is an offset
        else:
            tensor.add_(drawn * 0.3)


class Text:
    """A text in a decoder's storage: what it has read."""

    def __init__(self, decoder: Decoder, capacity: int = 96, ahead: int | None = None) -> None:
        """``ahead``: rows behind the text for which layers with a window have a ring."""
        self.decoder, self.length = decoder, 0
        self.storage: list[Tensor] = []
        for layer in decoder.spec.layers:
            attention = layer.attention
            if attention.shared is not None:
                self.storage.append(self.storage[attention.shared])
                continue
            rows = capacity
            if ahead is not None and attention.window is not None:
                rows = min(capacity, attention.window + ahead)
            shape = (2, attention.kv_heads, rows, attention.head_dim)
            self.storage.append(torch.full(shape, torch.nan, dtype=decoder.dtype))

    @torch.no_grad()
    def read(self, ids: Tensor, kept: Tensor | int = 0, shift: int = 0, **options: Any) -> Tensor:
        """Prefill; returns logits. ``shift``: of the positions, from those that rows have."""
        rows = torch.arange(self.length, self.length + len(ids))
        call = PrefillCall(
            ops=self.decoder.ops,
            mapping=SlotMapping(self.storage, rows),
            past=self.length,
            **options,
        )
        logits = self.decoder.run(ids, rows + shift, call, kept)
        self.length += len(ids)
        return logits

    @torch.no_grad()
    def verify(
        self, ids: Tensor, parents: list[int], kept: Tensor | int = 0, **options: Any
    ) -> Tensor:
        """Read a tree, whose rows may be kept; returns logits."""
        sets, depths = [1], [0]
        for row, parent in enumerate(parents[1:], 1):
            sets.append(sets[parent] | 1 << row)
            depths.append(depths[parent] + 1)
        call = TreeCall(
            ops=self.decoder.ops,
            mapping=SlotMapping(self.storage, self.length + torch.arange(len(ids))),
            prefix=torch.tensor([self.length]),
            mask=AncestorMask(torch.tensor(sets)[:, None], len(ids)),
            **options,
        )
        return self.decoder.run(ids, self.length + torch.tensor(depths), call, kept)

    def keep(self, path: list[int]) -> None:
        """Keep rows of the last tree."""
        for storage in {id(each): each for each in self.storage}.values():
            capacity = storage.shape[2]
            taken = storage[:, :, [(self.length + row) % capacity for row in path]]
            to = [(self.length + place) % capacity for place in range(len(path))]
            storage[:, :, to] = taken
        self.length += len(path)


@cache
def ancestors_of(parents: tuple[int, ...]) -> list[list[int]]:
    """Return the path of each row of a tree, itself included."""
    paths = [[0]]
    for row, parent in enumerate(parents[1:], 1):
        paths.append([*paths[parent], row])
    return paths
