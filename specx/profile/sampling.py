"""Resolving how the target chooses its tokens, from profile, model and defaults."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from specx.profile.generation import GenerationSettings
from specx.profile.profile import Profile
from specx.profile.schema import DigestPrompt

Source = Literal["command line", "profile", "model", "specx"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The target's choice of tokens: the keys of ``generation`` in numbers, by default ours."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram: int = 0
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    seed: int = 0

    @property
    def penalizes(self) -> bool:
        """Return True if the choice depends on what the text has already."""
        neutral = Sampling()
        return any(getattr(self, name) != getattr(neutral, name) for name in PENALTIES)


PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty", "no_repeat_ngram")


def resolve_sampling(profile: Profile, stated: GenerationSettings | None = None) -> Sampling:
    """Resolve each key: as the profile says, else the model's file, else by default.

    ``stated``: what ``generation_config.json`` says, None if nothing. A digest copies, whatever
    the file says.
    """
    layers = _layers(profile, stated)
    chosen = {key: layers[source][key] for key, source in _origins(layers).items()}
    return Sampling(**{key: _frozen(value) for key, value in chosen.items()})


def sources_of(
    profile: Profile,
    stated: GenerationSettings | None = None,
    asked: frozenset[str] = frozenset(),
) -> dict[str, Source]:
    """Return the source of each value of ``resolve_sampling``, by its key.

    ``asked``: the keys that the command line set in the profile.
    """
    found = _origins(_layers(profile, stated))
    asking: Source = "command line"
    return {
        name: asking if source == "profile" and name in asked else source
        for name, source in found.items()
    }


def _layers(profile: Profile, stated: GenerationSettings | None) -> dict[Source, dict[str, Any]]:
    """Return the values of each source, the first one to ask first."""
    layers: dict[Source, dict[str, Any]] = {"profile": dict(profile.generation)}
    if stated is not None and not isinstance(profile.prompt, DigestPrompt):
        layers["model"] = dict(stated)
    layers["specx"] = vars(Sampling())
    return layers


def _origins(layers: dict[Source, dict[str, Any]]) -> dict[str, Source]:
    return {
        field.name: next(s for s, values in layers.items() if values[field.name] is not None)
        for field in fields(Sampling)
    }


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
