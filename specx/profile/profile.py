"""A complete profile, and how it differs by device."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from specx.profile.generation import GenerationSettings
from specx.profile.schema import (
    CacheDtype,
    Device,
    DigestPrompt,
    DraftCacheSettings,
    DraftSettings,
    Dtype,
    FallbackSettings,
    InstructPrompt,
    TargetSettings,
    Tree,
    TreeSettings,
)
from specx.profile.section import Section

LongDocuments = Literal["parts", "separate", "refuse"]


class DeviceModelSettings(Section):
    """The settings of a model that may differ by device."""

    dtype: Dtype | None = Field(default=None, description="number format; null: as elsewhere")


class DeviceTargetSettings(DeviceModelSettings):
    """Those of the target."""

    kv_cache_dtype: CacheDtype | None = Field(
        default=None, description="number format of keys and values; null: as elsewhere"
    )


class DeviceSettings(Section):
    """The settings that differ on one device.

    Before they are checked, the profile's own keys complete ``tree`` and ``draft_cache``.
    """

    target: DeviceTargetSettings = Field(
        default_factory=DeviceTargetSettings, description="number formats of the target"
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
        description="on a CPU: keys of `tree` and `draft_cache`, and number formats of "
        "`target` and `draft`; what is not there is as above",
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
        description="the model that proposes tokens; null: none, and lookup drafts"
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
    long_documents: LongDocuments = Field(
        default="parts",
        description="how a document longer than the window is summarized; parts: in parts, which "
        "become one summary; separate: in parts under headings; refuse: not at all",
    )
    attention: Literal["auto", "built-in", "flash-attn", "flash-attn-4", "fa3-fwd"] = Field(
        default="auto",
        description="what attends on an NVIDIA GPU; a name: this package, which must be installed; "
        "built-in: none of them; auto: a package that is installed and was measured to be faster",
    )
    sources: bool = Field(
        default=True,
        description="tell which passages of the document a sentence in the model's own words is "
        "from, by the model's attention",
    )
    graphs: bool = Field(
        default=True,
        description="record the parts of a step as CUDA graphs on an NVIDIA GPU",
    )
    devices: Devices = Field(
        default_factory=Devices, description="what is different on one kind of device"
    )

    @property
    def output_limit(self) -> int:
        """Return the number of tokens after which writing stops."""
        limit = self.generation.max_new_tokens
        return self.prompt.longest_output if limit is None else limit

    def on(self, device: Device) -> "Profile":
        """Return the profile as it runs on ``device``, without settings by device."""
        own: DeviceSettings | None = getattr(self.devices, device)
        if own is None:
            return self.changed(devices=Devices())
        return self.changed(
            devices=Devices(),
            target={
                "dtype": own.target.dtype or self.target.dtype,
                "kv_cache_dtype": own.target.kv_cache_dtype or self.target.kv_cache_dtype,
            },
            draft=self.draft and self.draft.changed(dtype=own.draft.dtype or self.draft.dtype),
            tree=own.tree,
            draft_cache=own.draft_cache,
        )

    @model_validator(mode="before")
    @classmethod
    def _without_old_keys(cls, settings: object) -> object:
        """Ignore ``compile``, which has no effect any more: no layers are left that it served."""
        if not isinstance(settings, Mapping):
            return settings
        return {key: value for key, value in settings.items() if key != "compile"}

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
    """Complete a device's ``tree`` and ``draft_cache`` with the profile's own keys.

    A section that is wrong in the profile itself is skipped: the device's cannot be judged.
    """
    if not isinstance(own, Mapping):
        return own
    sections = dict(own)
    for name in ("tree", "draft_cache"):
        changes = own.get(name, {})
        if name not in profile:
            sections.pop(name, None)
        elif isinstance(changes, Mapping):
            sections[name] = {**profile[name].by_key(), **changes} if changes else profile[name]
    return sections


def _excess(cache: DraftCacheSettings, draft: DraftSettings | None) -> str | None:
    """Say by how much a working cache exceeds the draft's context; None if it fits."""
    tokens = cache.working_tokens
    if not draft or not draft.trained_context or not tokens:
        return None
    if tokens <= draft.trained_context:
        return None
    return (
        f"chunk × top_k = {tokens} tokens, "
        f"more than draft.trained_context ({draft.trained_context})"
    )
