"""Profiles: the settings of a summary, as a validated schema.

A profile is a YAML file. ``load_profile`` checks all of it before any model loads and reports every
problem at once, each with its line. ``docs/profiles.md`` explains every key to users.
"""

from specx.profile.find import (
    SUFFIXES,
    ProfileEntry,
    list_profiles,
    profile_path,
    shipped_folder,
    user_folder,
)
from specx.profile.folders import (
    GGUF,
    HUB_ID,
    LM_STUDIO,
    OLLAMA,
    PACKAGE,
    QUANTIZED_ID,
    model_folder,
)
from specx.profile.generation import GenerationSettings
from specx.profile.load import (
    check_profile,
    load_profile,
    parse_profile,
    read_profile,
)
from specx.profile.of_models import DEFAULT, profile_for, yaml_for
from specx.profile.profile import Devices, DeviceSettings, Profile
from specx.profile.sampling import Sampling, resolve_sampling, sources_of
from specx.profile.schema import (
    EMBEDDED,
    EMBEDDED_DRAFTS,
    FEWEST_SENTENCES,
    MOST_SENTENCES,
    REASONING_TOKENS,
    TOKENS_PER_WORD,
    AutoTree,
    Device,
    DigestPrompt,
    DraftCacheSettings,
    DraftSettings,
    Dtype,
    FallbackSettings,
    InstructPrompt,
    Layer,
    OnLoop,
    TargetSettings,
    TreeSettings,
)
from specx.profile.section import Section

__all__ = [
    "DEFAULT",
    "EMBEDDED",
    "EMBEDDED_DRAFTS",
    "FEWEST_SENTENCES",
    "GGUF",
    "HUB_ID",
    "LM_STUDIO",
    "MOST_SENTENCES",
    "OLLAMA",
    "PACKAGE",
    "QUANTIZED_ID",
    "REASONING_TOKENS",
    "SUFFIXES",
    "TOKENS_PER_WORD",
    "AutoTree",
    "Device",
    "DeviceSettings",
    "Devices",
    "DigestPrompt",
    "DraftCacheSettings",
    "DraftSettings",
    "Dtype",
    "FallbackSettings",
    "GenerationSettings",
    "InstructPrompt",
    "Layer",
    "OnLoop",
    "Profile",
    "ProfileEntry",
    "Sampling",
    "Section",
    "TargetSettings",
    "TreeSettings",
    "check_profile",
    "list_profiles",
    "load_profile",
    "model_folder",
    "parse_profile",
    "profile_for",
    "profile_path",
    "read_profile",
    "resolve_sampling",
    "shipped_folder",
    "sources_of",
    "user_folder",
    "yaml_for",
]
