"""From the config of a head, in its project's format, to its ``HeadSpec``.

Three projects write heads, and the same key may have two meanings (``docs/heads.md``). A head with
ambiguous files is refused, unless the profile decides.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specx.errors import ModelError
from specx.models.facts import FIXED
from specx.models.families import family_of
from specx.models.families.config import FULL
from specx.models.loaded import LoadedModel, ModelSpec
from specx.ops.spec import InputSpec
from specx.profile import MTP_TYPES

# A kind of head is a row here, and a function below that reads its config.
EAGLE = InputSpec(fc="joined")
MTP = InputSpec(fc="joined", norms=("pre_fc_norm_embedding", "pre_fc_norm_hidden"), input_norm=True)
EAGLE3 = InputSpec(fc="features", norms=("layers.0.input_layernorm", "layers.0.hidden_norm"))


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """The shape of a head, and every flag that changes its computation.

    ``config``: the config.json of the head's layers, with all sizes stated. ``features``: the
    target layers whose inputs the head reads, counted from 0 (the number of layers means the last
    layer's output); empty: it reads the normed output, as in EAGLE. ``feature_size``: elements of
    one such input. ``vocabulary``: rows of the head's lm head; None: it uses the target's.
    ``embeds``: the head has its own embeddings.

    ``norms_residual``: the first residual is the normed state. ``feature_norm``: before ``fc``, one
    norm over all features, or one for each. ``final_norm``: a norm precedes the lm head.
    ``feeds_normed``: the state passed to the next row is the normed output. ``window``: the maximum
    number of rows that a row attends to, including its own; None: all. ``qkv_bias``: only queries,
    keys and values have a bias. ``mask_token``: for P-EAGLE, the id in place of tokens that the
    target has not read; this id has its own features. ``stored``: the names of the head's tensors,
    if its format allows several.
    """

    input: InputSpec
    config: dict[str, Any]
    features: tuple[int, ...]
    feature_size: int
    vocabulary: int | None
    embeds: bool
    fc_bias: bool = False
    norms_residual: bool = False
    feature_norm: Literal["none", "all", "each"] = "none"
    final_norm: bool = True
    feeds_normed: bool = False
    window: int | None = None
    qkv_bias: bool = False
    mask_token: int | None = None
    stored: frozenset[str] = frozenset()

    @property
    def width(self) -> int:
        """Elements of the features of one token."""
        return max(1, len(self.features)) * self.feature_size


Project = Literal["speculators", "SpecForge", "SafeAILab"]
Shapes = Mapping[str, tuple[int, ...]]
IDS = "eagle_aux_hidden_state_layer_ids"
MASK = "mask_hidden"  # the tensor that makes an EAGLE-3 head one of P-EAGLE
_MASK_TOKENS = ("mask_token_id", "ptd_token_id", "pard_token")  # its key, by project and age
THETA = 10_000.0  # where a head states none; never the target's
_NEEDED = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
_UP_TO = 1 << 24  # for any size in a config; more is damage
_LARGEST = 1e12  # the same for any other number
_KINDS, _AS_LLAMA = ("llama", "qwen3"), ("phi3", "qwen2")


def project_of(raw: dict[str, Any], label: str) -> Project | None:
    """Return the project that defined the format of a head's config; None for other configs."""
    kind = raw.get("speculators_model_type")
    if kind is not None and kind not in ("eagle3", "peagle"):
        raise ModelError(
            f"{label} has speculators_model_type {kind!r}, which is not supported; choose an "
            "EAGLE-3 head (eagle3) or a P-EAGLE head (peagle)."
        )
    if kind:
        return "speculators"
    names = raw.get("architectures")
    marked = isinstance(names, list) and any("eagle3" in str(name).lower() for name in names)
    if marked or "eagle_config" in raw:
        return "SpecForge"
    return "SafeAILab" if "draft_vocab_size" in raw else None


def mtp_spec(text: Mapping[str, Any], stored: Collection[str], label: str) -> HeadSpec:
    """Read the spec of a head for multi-token prediction (MTP) in a target's own checkpoint.

    ``text``: the config of the target's text decoder. The head's layer is like the target's layers
    with full attention. Raises ModelError for a family whose heads are unknown.
    """
    family = family_of(text)
    if family is None or text.get("model_type") not in MTP_TYPES:
        raise ModelError(
            f"{label} has no supported head for multi-token prediction; name a separate draft."
        )
    config = {**family.defaults, **text, "num_hidden_layers": 1, "layer_types": [FULL]}
    config |= {"mlp_only_layers": [], "first_k_dense_replace": 0, "tie_word_embeddings": False}
    hidden = _size(config, "hidden_size", label)
    return HeadSpec(
        input=MTP,
        config=config,
        features=(),
        feature_size=hidden,
        vocabulary=None,
        embeds=False,
        feeds_normed=text["model_type"] != "glm4_moe",
        stored=frozenset(stored),
    )


def read_head_spec(
    raw: dict[str, Any], shapes: Shapes, target: LoadedModel, chosen: ModelSpec, label: str
) -> HeadSpec:
    """Read a head's spec.

    ``shapes``: the shapes of its tensors, by speculators' names. Raises ModelError naming the key
    at fault.
    """
    project = project_of(raw, label) or "SafeAILab"
    is_eagle3 = "layers.0.hidden_norm.weight" in shapes or project != "SafeAILab"
    if not is_eagle3 and "lm_head.weight" in shapes:
        raise ModelError(
            f"{label} lacks the tensor layers.0.hidden_norm.weight, which an EAGLE-3 head needs."
        )
    layer = raw.get("transformer_layer_config") if project == "speculators" else raw
    if not isinstance(layer, dict):
        raise ModelError(f"{label} has no transformer_layer_config in its config.json.")
    config = _layer_config(layer, shapes, project, label)
    if config["vocab_size"] < target.vocab_size and "embed_tokens.weight" in shapes:
        raise _other_target(label, "vocab_size", config["vocab_size"], target.vocab_size)
    if is_eagle3:
        return _eagle3(raw, layer, config, shapes, (target, chosen, project, label))
    if config["hidden_size"] != target.hidden_size:
        raise _other_target(label, "hidden_size", config["hidden_size"], target.hidden_size)
    return HeadSpec(
        input=EAGLE,
        config=config,
        features=(),
        feature_size=target.hidden_size,
        vocabulary=None,
        embeds="embed_tokens.weight" in shapes,
        fc_bias=_flag(raw, "bias", default=True, label=label),
        final_norm=False,
        qkv_bias=_flag(raw, "qkv_bias", default=False, label=label),
    )


def _eagle3(
    raw: dict[str, Any],
    layer: dict[str, Any],
    config: dict[str, Any],
    shapes: Shapes,
    known: tuple[LoadedModel, ModelSpec, Project, str],
) -> HeadSpec:
    target, chosen, project, label = known
    size = raw.get("target_hidden_size") or config["hidden_size"]
    if size != target.hidden_size:
        key = "target_hidden_size" if raw.get("target_hidden_size") else "hidden_size"
        raise _other_target(label, key, size, target.hidden_size)
    embeds, size = "embed_tokens.weight" in shapes, config["hidden_size"]
    if size != target.hidden_size and not embeds:
        raise ModelError(
            f"{label} lacks the tensor embed_tokens.weight, which a head needs if its hidden_size "
            f"differs from the target's ({config['hidden_size']} and {target.hidden_size})."
        )
    means = _norm_output(raw, chosen, project, label)
    return HeadSpec(
        input=EAGLE3,
        config=config,
        features=_features(raw, shapes, target, chosen, project, label),
        feature_size=target.hidden_size,
        vocabulary=_size(raw, "draft_vocab_size", label, default=config["vocab_size"]),
        embeds=embeds,
        norms_residual=_flag(raw, "norm_before_residual", default=False, label=label),
        feature_norm=_feature_norm(raw, label),
        final_norm=means != ("lm-head", False),
        feeds_normed=means == ("fed-back", True),
        window=_window(layer, label),
        qkv_bias=_flag(raw, "qkv_bias", default=False, label=label),
        mask_token=_mask_token(raw, config, label) if MASK in shapes else None,
    )


def _mask_token(raw: dict[str, Any], config: dict[str, Any], label: str) -> int:
    """Return the id that replaces tokens not read yet."""
    places = raw, raw.get("eagle_config"), raw.get("dflash_config")
    stated = [
        place[key]
        for place in places
        for key in _MASK_TOKENS
        if isinstance(place, dict) and place.get(key) is not None
    ]
    if not stated or type(stated[0]) is not int or not 0 <= stated[0] < config["vocab_size"]:
        raise ModelError(
            f"{label} has a tensor {MASK}, but its config.json names no token for it "
            f"({_MASK_TOKENS[0]})."
        )
    return stated[0]


def _norm_output(
    raw: dict[str, Any], chosen: ModelSpec, project: Project, label: str
) -> tuple[str, bool]:
    """Return the meaning of ``norm_output``, and its value.

    In speculators, the normed output is fed back. In SpecForge, a norm precedes the lm head.
    """
    own = {"speculators": "fed-back", "SpecForge": "lm-head", "SafeAILab": None}[project]
    meaning = chosen.norm_output or own
    if "norm_output" in raw and meaning is None:
        raise ModelError(
            f"{label} has norm_output in its config.json, which two projects understand "
            "differently; set draft.norm_output to fed-back (speculators) or lm-head (SpecForge)."
        )
    meaning = meaning or "lm-head"
    return meaning, _flag(raw, "norm_output", default=meaning == "lm-head", label=label)


def _features(
    raw: dict[str, Any],
    shapes: Shapes,
    target: LoadedModel,
    chosen: ModelSpec,
    project: Project,
    label: str,
) -> tuple[int, ...]:
    """Return the layers of the target whose inputs are read."""
    count = (shapes.get("fc.weight") or (0,))[-1] // target.hidden_size
    advice = "; set draft.layers"
    if chosen.head_layers is not None:
        layers, key, advice = chosen.head_layers, "draft.layers", ""
    elif (stated := _stated_layers(raw, project, label)) is not None:
        layers, key = stated, IDS
    else:
        layers, key = (2, target.num_layers // 2, target.num_layers - 3), "the default"
    if len(layers) != count:
        raise ModelError(
            f"{label} has an fc.weight for {count} layers of the target, but {key} names "
            f"{len(layers)}{advice}."
        )
    if any(not 0 <= each <= target.num_layers for each in layers) or len(set(layers)) < count:
        if key == IDS and project != "speculators":
            key = f"one more than in {IDS}, which names outputs"
        raise ModelError(
            f"{label} reads the inputs of layers {list(layers)} ({key}), but the target has "
            f"layers 0 to {target.num_layers - 1}{advice}."
        )
    return tuple(layers)


def _stated_layers(raw: dict[str, Any], project: Project, label: str) -> tuple[int, ...] | None:
    """Return the layers whose inputs are read. speculators states inputs, SpecForge outputs."""
    nested = raw.get("eagle_config") or {}
    if not isinstance(nested, dict):
        raise ModelError(f"{label} has an eagle_config that is not a JSON object.")
    if nested.get("use_aux_hidden_state") is False:
        raise ModelError(f"{label} has use_aux_hidden_state: false, which is not supported.")
    outer, inner = raw.get(IDS), nested.get(IDS)
    expected = inner is None if project == "speculators" else outer is None
    if not expected:
        raise ModelError(
            f"{label} has {IDS}, which may count layers' inputs or outputs; set draft.layers to "
            "the layers whose inputs the head reads."
        )
    for ids in (outer, inner):
        if ids is not None and not (
            isinstance(ids, list) and ids and all(type(each) is int for each in ids)
        ):
            raise ModelError(f"{label} has {IDS} {ids!r}, which is not a list of layers.")
    if outer is not None:
        return tuple(outer)
    return None if inner is None else tuple(each + 1 for each in inner)


def _feature_norm(raw: dict[str, Any], label: str) -> Literal["none", "all", "each"]:
    over_all = _flag(raw, "norm_before_fc", default=False, label=label)
    each = _flag(raw, "fc_norm", default=False, label=label)
    if over_all and each:
        raise ModelError(f"{label} has both norm_before_fc and fc_norm, which exclude each other.")
    return "all" if over_all else "each" if each else "none"


def _window(layer: dict[str, Any], label: str) -> int | None:
    stated = layer.get("layer_types") or []
    kinds = set(map(str, stated)) if isinstance(stated, list) else {repr(stated)}
    if kinds - {"full_attention", "sliding_attention"} or len(kinds) > 1:
        raise ModelError(
            f"{label} has layer_types {sorted(kinds)}, which are not supported; a head's layers "
            "must all have full attention, or all the same window."
        )
    if kinds != {"sliding_attention"}:
        return None
    return _size(layer, "sliding_window", label)


def _layer_config(
    layer: dict[str, Any], shapes: Shapes, project: Project, label: str
) -> dict[str, Any]:
    kind = str(layer.get("model_type", "llama"))
    if project == "SpecForge" and kind in _AS_LLAMA:  # of the target; the layers are Llama's
        kind = "llama"
    if kind not in _KINDS:
        known = " or ".join(_KINDS)
        raise ModelError(f"{label} has model_type {kind!r}; the layers of a head must be {known}.")
    if layer.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ModelError(f"{label} has hidden_act {layer['hidden_act']!r}; it must be silu.")
    sizes = {key: _size(layer, key, label) for key in _NEEDED}
    heads = sizes["num_attention_heads"]
    layers = {key.split(".")[1] for key in shapes if key.startswith("layers.")}
    sizes |= {
        "num_key_value_heads": _size(layer, "num_key_value_heads", label, default=heads),
        "head_dim": _size(layer, "head_dim", label, default=sizes["hidden_size"] // heads),
        "num_hidden_layers": len(layers) or 1,
    }
    if heads % sizes["num_key_value_heads"]:
        raise ModelError(f"{label} has num_key_value_heads that do not divide its {heads} heads.")
    settings = {
        "rms_norm_eps": _positive(layer.get("rms_norm_eps", 1e-6), "rms_norm_eps", label),
        "attention_bias": _flag(layer, "attention_bias", default=False, label=label),
        "rope_parameters": _rope(layer, project, label),
        "max_position_embeddings": layer.get("max_position_embeddings", 2048),
    }
    return {"model_type": kind, **sizes, **settings}


def _rope(layer: dict[str, Any], project: Project, label: str) -> dict[str, Any]:
    """Return the rotary settings of a head."""
    stated = layer.get("rope_parameters") or layer.get("rope_scaling") or {}
    if not isinstance(stated, dict):
        raise ModelError(f"{label} has a rope_scaling that is not a JSON object.")
    kind = str(stated.get("rope_type") or stated.get("type") or "default")
    if kind == "mrope":  # behind a text alone all three positions are one
        kind = "default"
    if kind not in FIXED:
        raise ModelError(
            f"{label} has {kind} RoPE (rope_scaling), but retrieval needs a RoPE type with fixed "
            f"frequencies: one of {', '.join(sorted(FIXED))}."
        )
    for key in ("factor", "original_max_position_embeddings"):
        if stated.get(key) is not None:
            _positive(stated[key], f"{key} (rope_scaling)", label)
    theta = stated.get("rope_theta") or layer.get("rope_theta") or THETA
    if project == "SafeAILab" and kind == "yarn":
        theta = THETA  # the code that wrote such heads does not read rope_theta
    return {**stated, "rope_type": kind, "rope_theta": _positive(theta, "rope_theta", label)}


def _size(raw: dict[str, Any], key: str, label: str, default: int | None = None) -> int:
    value = raw.get(key)
    value = default if value is None else value
    if type(value) is not int or not 1 <= value <= _UP_TO:
        stated = "lacks" if value is None else f"has {_brief(value)} for"
        raise ModelError(
            f"{label} {stated} {key} in its config.json; it must be a whole number from 1 to "
            f"{_UP_TO:,}."
        )
    return value


def _positive(value: Any, key: str, label: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _LARGEST:
        raise ModelError(
            f"{label} has {_brief(value)} for {key} in its config.json; it must be a positive "
            "number."
        )
    return float(value)


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _flag(raw: dict[str, Any], key: str, *, default: bool, label: str) -> bool:
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise ModelError(
            f"{label} has {value!r} for {key} in its config.json; it must be true or false."
        )
    return value


def _other_target(label: str, key: str, stated: object, size: int) -> ModelError:
    return ModelError(
        f"{label} was made for another target: its {key} is {stated}, the target needs {size}."
    )
