"""Profiles: everything a summary depends on besides the document, as a validated schema.

A profile is a YAML file. It is checked completely before any model loads: ``load_profile`` reports
every problem at once, each with its line. ``docs/profiles.md`` explains every key to users.
"""

from specx.profile.find import (
    SUFFIXES,
    ProfileEntry,
    list_profiles,
    profile_path,
    shipped_folder,
    user_folder,
)
from specx.profile.load import (
    load_profile,
    parse_profile,
)
from specx.profile.schema import (
    EMBEDDED,
    EMBEDDED_DRAFTS,
    FEWEST_SENTENCES,
    MOST_SENTENCES,
    AutoTree,
    Device,
    Devices,
    DeviceSettings,
    DigestPrompt,
    DraftCacheSettings,
    DraftSettings,
    Dtype,
    FallbackSettings,
    GenerationSettings,
    InstructPrompt,
    Layer,
    Profile,
    Section,
    TargetSettings,
    TreeSettings,
)

__all__ = [
    "EMBEDDED",
    "EMBEDDED_DRAFTS",
    "FEWEST_SENTENCES",
    "MOST_SENTENCES",
    "SUFFIXES",
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
    "Profile",
    "ProfileEntry",
    "Section",
    "TargetSettings",
    "TreeSettings",
    "list_profiles",
    "load_profile",
    "parse_profile",
    "profile_path",
    "shipped_folder",
    "user_folder",
]
