"""The schema of a profile: every key with its values, default and meaning."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from specx.profile.wording import shown

Dtype = Literal["float32", "float16", "bfloat16", "auto"]
Layer = Literal["last", "auto"] | int
Device = Literal["cpu", "cuda"]

EMBEDDED = "embedded:"  # prefix of the models that ship inside the package
EMBEDDED_DRAFTS = ("draft", "draft-large")  # the second is an experiment's, twice as large
FEWEST_SENTENCES, MOST_SENTENCES = 4, 64
TOKENS_PER_SENTENCE = 82  # of a digest: a marker, at most 80 tokens of a sentence, one to spare


class Section(BaseModel):
    """A part of a profile: no unknown keys, no silent conversions, immutable."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False
    )


class DigestPrompt(Section):
    """The prompt of digest models: the document's paragraphs, each with its marker."""

    kind: Literal["digest"] = Field(
        default="digest", description="the model copies the sentences a document is about"
    )
    sentences: int = Field(
        default=8,
        ge=FEWEST_SENTENCES,
        le=MOST_SENTENCES,
        description="how many sentences the digest has, at most; of a document in parts, each part",
    )

    @property
    def longest_output(self) -> int:
        """Tokens that suffice for every sentence to end."""
        return self.sentences * TOKENS_PER_SENTENCE + 1


class InstructPrompt(Section):
    """The prompt of instruction-tuned models: an instruction and the document."""

    kind: Literal["instruct"] = Field(
        default="instruct", description="the model follows an instruction about the document"
    )
    instruction: str = Field(
        default="Summarize the document in at most 300 words.",
        min_length=1,
        description="what the model is asked to do with the document",
    )

    @property
    def longest_output(self) -> int:
        """Tokens that a summary of about 300 words takes."""
        return 512


class TargetSettings(Section):
    """The model whose output is printed."""

    model: str = Field(
        min_length=1, description="hub id, local folder, or `embedded:target` (shipped with specx)"
    )
    revision: str | None = Field(
        default=None, description="branch, tag or commit on the hub; null: the newest"
    )
    dtype: Dtype = Field(
        default="auto", description="number format of weights and caches; auto: the checkpoint's"
    )
    window: int | None = Field(
        default=None, ge=1, description="tokens the model can read; null: from the model's config"
    )

    @field_validator("model")
    @classmethod
    def _embedded_target(cls, model: str) -> str:
        return _known_embedded(model, "target")


class DraftSettings(Section):
    """The small model that proposes tokens. It must share the target's vocabulary."""

    kind: Literal["model"] = Field(
        default="model", description="an independent small language model"
    )
    model: str = Field(
        min_length=1, description="hub id, local folder, or `embedded:draft` (shipped with specx)"
    )
    revision: str | None = Field(
        default=None, description="branch, tag or commit on the hub; null: the newest"
    )
    dtype: Dtype | None = Field(
        default=None, description="number format of weights and caches; null: the target's"
    )
    trained_context: int = Field(
        ge=1,
        description="tokens of context the draft was trained on, beyond which it guesses badly",
    )

    @field_validator("model")
    @classmethod
    def _embedded_draft(cls, model: str) -> str:
        return _known_embedded(model, *EMBEDDED_DRAFTS)


class TreeSettings(Section):
    """The token tree that is drafted and verified in one step (OPT-Tree)."""

    nodes: int = Field(
        default=50, ge=1, le=63, description="drafted tokens in one tree, the root not counted"
    )
    depth: int = Field(
        default=10, ge=1, le=32, description="levels of the final tree; not more than `nodes`"
    )
    threshold: float = Field(
        default=0.7,
        ge=0,
        description="expected accepted tokens one more level must add, or growth stops (CPU only)",
    )

    width: int | None = Field(
        default=None,
        ge=1,
        description="how many nodes of a level the draft continues, the likeliest; null: all",
    )

    @property
    def continued(self) -> int:
        """Nodes of a level that the draft reads to grow the next one."""
        return self.nodes if self.width is None else self.width

    @field_validator("width")
    @classmethod
    def _width_fits_nodes(cls, width: int | None, info: ValidationInfo) -> int | None:
        nodes = info.data.get("nodes")
        if width is not None and nodes is not None and width > nodes:
            raise ValueError(f"is {width}, but a level has at most {nodes} nodes")
        return width

    @field_validator("depth")
    @classmethod
    def _depth_fits_nodes(cls, depth: int, info: ValidationInfo) -> int:
        nodes = info.data.get("nodes", depth)
        if depth > nodes:
            raise ValueError(f"is {depth}, but {nodes} nodes reach at most {nodes} levels")
        return depth


class AutoTree(TreeSettings):
    """``tree: auto``: the tree is chosen by measured costs while a document is summarized.

    ``nodes``, ``depth`` and ``width`` are those of the largest tree that may be chosen.
    """

    nodes: int = 63
    depth: int = 16
    threshold: float = 0.0
    width: int | None = 32

    @model_serializer
    def _word(self) -> str:
        return "auto"


def _auto_or_keys(tree: object) -> object:
    if tree == "auto":
        return AutoTree()
    if isinstance(tree, str):
        raise ValueError(f"is {shown(tree)}; it must be auto or keys of its own")
    return tree


Tree = Annotated[SerializeAsAny[TreeSettings], BeforeValidator(_auto_or_keys)]


class DraftCacheSettings(Section):
    """What the draft sees of a long prefix."""

    policy: Literal["full", "streaming", "cross-model"] = Field(
        default="cross-model",
        description="full: everything; streaming: the first chunks and the most recent; "
        "cross-model: the chunks the target attends to",
    )
    chunk: int = Field(default=32, ge=1, description="tokens in a chunk")
    top_k: int = Field(
        default=32, ge=1, description="chunks in the working cache (not used by full)"
    )
    every: int = Field(
        default=4,
        ge=1,
        description="steps between two retrievals (used by cross-model); `tree: auto` chooses it",
    )
    retrieve: Literal["regular", "adaptive"] = Field(
        default="regular",
        description="regular: every so many steps; adaptive: when a step accepts fewer drafts than "
        "the latest ones did, and after `every` steps at the latest (used by cross-model)",
    )
    layer: Layer = Field(
        default="last",
        description="target layer whose attention selects the chunks, counted from 0; "
        "last: the final one; auto: picked by measurement (used by cross-model)",
    )
    window: int | None = Field(
        default=512,
        ge=1,
        description="sliding window of the draft's prefill in tokens; null: full attention",
    )
    sink: int = Field(
        default=1,
        ge=0,
        description="chunks kept from the start of the prefix, out of `top_k` (used by streaming)",
    )

    @field_validator("layer", mode="before")
    @classmethod
    def _layer_is_known(cls, layer: object) -> object:
        if layer in ("last", "auto") or (type(layer) is int and layer >= 0):
            return layer
        raise ValueError(f"is {shown(layer)}; it must be last, auto or a layer counted from 0")

    @field_validator("sink")
    @classmethod
    def _sink_leaves_room(cls, sink: int, info: ValidationInfo) -> int:
        top_k = info.data.get("top_k", sink + 1)
        if info.data.get("policy") == "streaming" and sink >= top_k:
            raise ValueError(f"is {sink}; it must be less than top_k ({top_k})")
        return sink

    @property
    def working_tokens(self) -> int | None:
        """Size of the working cache in tokens, or None where the draft sees everything."""
        return None if self.policy == "full" else self.chunk * self.top_k


class GenerationSettings(Section):
    """How the target chooses its tokens."""

    max_new_tokens: int | None = Field(
        default=None,
        ge=1,
        description="tokens after which writing stops; null: enough for the sentences of a digest "
        f"({TOKENS_PER_SENTENCE} for each, and 1), otherwise 512",
    )
    temperature: float = Field(
        default=0.0, ge=0, description="0: the most probable token; more: sampling"
    )

    top_p: float = Field(
        default=1.0, gt=0, le=1, description="sample from this share of the probability; 1: all"
    )
    top_k: int = Field(default=0, ge=0, description="sample from so many tokens; 0: all")
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="seed of the sampling")

    @field_validator("temperature")
    @classmethod
    def _temperature_is_usable(cls, temperature: float) -> float:
        if 0 < temperature < 0.01:  # logits divided by less leave the range of float32
            raise ValueError(f"is {temperature:g}; it must be 0 or at least 0.01")
        return temperature


class FallbackSettings(Section):
    """When to stop drafting because it does not pay."""

    below: float | None = Field(
        default=1.0,
        ge=0,
        description="measured speedup over plain decoding below which drafting stops; null: never",
    )


class DeviceModelSettings(Section):
    """What may differ by device in the settings of a model."""

    dtype: Dtype | None = Field(default=None, description="number format; null: as elsewhere")


class DeviceSettings(Section):
    """What a profile says otherwise for one device.

    A profile completes ``tree`` and ``draft_cache`` with its own keys before they get here.
    """

    target: DeviceModelSettings = Field(
        default_factory=DeviceModelSettings, description="number format of the target"
    )
    draft: DeviceModelSettings = Field(
        default_factory=DeviceModelSettings, description="number format of the draft"
    )
    tree: Tree = Field(
        default_factory=TreeSettings,
        description="the token tree of one step; auto: chosen by measured costs",
    )
    draft_cache: DraftCacheSettings = Field(
        default_factory=DraftCacheSettings, description="what the draft sees of a long prefix"
    )


class Devices(Section):
    """Settings by device."""

    cpu: DeviceSettings | None = Field(
        default=None,
        description="on a CPU: keys of `tree` and `draft_cache`, and `dtype` of `target` and "
        "`draft`; what is not there is as above",
    )
    cuda: DeviceSettings | None = Field(default=None, description="the same on an NVIDIA GPU")


class Profile(Section):
    """A complete profile; see ``load_profile``."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="letters, digits, dots, dashes and underscores",
    )
    description: str = Field(default="", description="one line for `specx profiles ls`")
    prompt: Annotated[DigestPrompt | InstructPrompt, Field(discriminator="kind")] = Field(
        default_factory=InstructPrompt, description="what is asked of the target"
    )
    target: TargetSettings = Field(description="the model whose output is printed")
    draft: DraftSettings | None = Field(
        description="the model that proposes tokens; null: plain decoding"
    )
    tree: Tree = Field(
        default_factory=TreeSettings,
        description="the token tree of one step; auto: chosen by measured costs",
    )
    draft_cache: DraftCacheSettings = Field(
        default_factory=DraftCacheSettings, description="what the draft sees of a long prefix"
    )
    generation: GenerationSettings = Field(
        default_factory=GenerationSettings, description="how the target chooses its tokens"
    )
    fallback: FallbackSettings = Field(
        default_factory=FallbackSettings, description="when to stop drafting"
    )
    long_documents: Literal["parts", "refuse"] = Field(
        default="parts",
        description="a document longer than the window is summarized in parts, or refused",
    )
    graphs: bool = Field(
        default=True,
        description="record the parts of a step as CUDA graphs on an NVIDIA GPU",
    )
    compile: bool = Field(
        default=False,
        description="compile the layers on an NVIDIA GPU, of models that are not Llama, Mistral, "
        "Qwen2 or Qwen3 in half precision: faster steps after a wait that only a long batch makes "
        "up for",
    )
    devices: Devices = Field(
        default_factory=Devices, description="what is different on one kind of device"
    )

    @property
    def output_limit(self) -> int:
        """Tokens after which writing stops."""
        limit = self.generation.max_new_tokens
        return self.prompt.longest_output if limit is None else limit

    def on(self, device: Device) -> "Profile":
        """The profile as it runs on ``device``, which is then all it says."""
        own: DeviceSettings | None = getattr(self.devices, device)
        alone = self.model_copy(update={"devices": Devices()})
        if own is None:
            return alone
        draft = self.draft and _in_dtype(self.draft, own.draft)
        target = _in_dtype(self.target, own.target)
        sections = {"tree": own.tree, "draft_cache": own.draft_cache}
        return alone.model_copy(update={"target": target, "draft": draft, **sections})

    @field_validator("draft_cache")
    @classmethod
    def _working_cache_fits_draft(
        cls, cache: DraftCacheSettings, info: ValidationInfo
    ) -> DraftCacheSettings:
        if excess := _excess(cache, info.data.get("draft")):
            raise ValueError(f"holds {excess}")
        return cache

    @field_validator("devices", mode="before")
    @classmethod
    def _complete_devices(cls, devices: object, info: ValidationInfo) -> object:
        if not isinstance(devices, Mapping):
            return devices
        return {device: _completed(own, info.data) for device, own in devices.items()}

    @field_validator("devices")
    @classmethod
    def _working_caches_of_devices_fit_draft(
        cls, devices: Devices, info: ValidationInfo
    ) -> Devices:
        for device, own in devices if "draft_cache" in info.data else ():
            if own and (excess := _excess(own.draft_cache, info.data.get("draft"))):
                raise ValueError(f"gives {device} a draft_cache that holds {excess}")
        return devices


def _completed(own: object, profile: Mapping[str, Section]) -> object:
    """A device's settings with the profile's own ``tree`` and ``draft_cache`` below them.

    Against a section of the profile that is wrong itself, the device's cannot be judged.
    """
    if not isinstance(own, Mapping):
        return own
    sections = dict(own)
    for name in ("tree", "draft_cache"):
        changes = own.get(name, {})
        if name not in profile:
            sections.pop(name, None)
        elif isinstance(changes, Mapping):
            sections[name] = {**_keys(profile[name]), **changes} if changes else profile[name]
    return sections


def _keys(section: Section) -> dict[str, object]:
    """What a section says by keys: of ``tree: auto`` nothing."""
    return {} if isinstance(section, AutoTree) else section.model_dump()


def _excess(cache: DraftCacheSettings, draft: DraftSettings | None) -> str | None:
    """How a working cache is larger than the draft can use, or None if it is not."""
    tokens = cache.working_tokens
    if not draft or not tokens or tokens <= draft.trained_context:
        return None
    return (
        f"chunk × top_k = {tokens} tokens, "
        f"more than draft.trained_context ({draft.trained_context})"
    )


Model = TypeVar("Model", TargetSettings, DraftSettings)


def _in_dtype(model: Model, own: DeviceModelSettings) -> Model:
    return model.model_copy(update={"dtype": own.dtype}) if own.dtype else model


def _known_embedded(model: str, *names: str) -> str:
    if model.startswith(EMBEDDED) and model.removeprefix(EMBEDDED) not in names:
        expected = f"{EMBEDDED}{names[0]}"
        raise ValueError(f"is {shown(model)}; the only embedded model here is {expected!r}")
    return model


def sections(
    section: type[BaseModel] = Profile, place: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """Every section of the schema, at the place pydantic gives it: ("prompt", "digest")."""
    yield place, section
    for name, info in section.model_fields.items():
        for candidate in (info.annotation, *get_args(info.annotation)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                tag = (candidate.model_fields["kind"].default,) if info.discriminator else ()
                yield from sections(candidate, (*place, name, *tag))
