"""Profiles: everything a summary depends on besides the document, as a validated schema.

A profile is a YAML file. It is checked completely before any model loads: ``load_profile`` reports
every problem at once, each with its line. ``docs/profiles.md`` explains every key to users.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from specx.errors import ProfileError

# ---------------------------------------------------------------- schema

Dtype = Literal["float32", "float16", "bfloat16", "auto"]
Layer = Literal["last", "auto"] | int

EMBEDDED = "embedded:"  # prefix of the models that ship inside the package


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
        default=8, ge=4, le=64, description="how many sentences the digest has, at most"
    )


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
        return _known_embedded(model, "embedded:target")


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
        return _known_embedded(model, "embedded:draft")


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
        description="expected accepted tokens one more level must add, or growth stops",
    )

    @field_validator("depth")
    @classmethod
    def _depth_fits_nodes(cls, depth: int, info: ValidationInfo) -> int:
        nodes = info.data.get("nodes", depth)
        if depth > nodes:
            raise ValueError(f"is {depth}, but {nodes} nodes reach at most {nodes} levels")
        return depth


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
        default=4, ge=1, description="steps between two retrievals (used by cross-model)"
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
        raise ValueError(f"is {_shown(layer)}; it must be last, auto or a layer counted from 0")

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

    max_new_tokens: int = Field(default=512, ge=1, description="tokens after which writing stops")
    temperature: float = Field(
        default=0.0, ge=0, description="0: the most probable token; more: sampling"
    )
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="sample from this share of the probability; 1: all"
    )
    top_k: int = Field(default=0, ge=0, description="sample from so many tokens; 0: all")
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="seed of the sampling")


class FallbackSettings(Section):
    """When to stop drafting because it does not pay."""

    below: float | None = Field(
        default=1.0,
        ge=0,
        description="measured speedup over plain decoding below which drafting stops; null: never",
    )


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
    tree: TreeSettings = Field(
        default_factory=TreeSettings, description="the token tree of one step"
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

    @field_validator("tree", mode="before")
    @classmethod
    def _no_auto_tree_yet(cls, tree: object) -> object:
        if tree == "auto":
            raise ValueError(
                "is auto, which this version does not offer yet; give nodes, depth, threshold"
            )
        return tree

    @field_validator("draft_cache")
    @classmethod
    def _working_cache_fits_draft(
        cls, cache: DraftCacheSettings, info: ValidationInfo
    ) -> DraftCacheSettings:
        draft, tokens = info.data.get("draft"), cache.working_tokens
        if draft and tokens and tokens > draft.trained_context:
            raise ValueError(
                f"holds chunk × top_k = {tokens} tokens, "
                f"more than draft.trained_context ({draft.trained_context})"
            )
        return cache


def _known_embedded(model: str, expected: str) -> str:
    if model.startswith(EMBEDDED) and model != expected:
        raise ValueError(f"is {_shown(model)}; the only embedded model here is {expected!r}")
    return model


# ---------------------------------------------------------------- where profiles are

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class ProfileEntry:
    """A profile that can be named: the stem of its file, which is not read yet."""

    name: str
    path: Path
    source: Literal["shipped", "user"]


def user_folder() -> Path:
    """The folder of the user's own profiles, which need not exist."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    home = os.path.expanduser("~")  # noqa: PTH111 - unlike Path.home(), it cannot fail
    base = Path(config) if Path(config).is_absolute() else Path(home) / ".config"
    return base / "specx" / "profiles"


def shipped_folder() -> Path:
    """The folder of the profiles that come with specx: packaged, or beside it in a checkout."""
    package = Path(str(resources.files("specx")))
    packaged = package / "_profiles"
    return packaged if packaged.is_dir() else package.parent / "profiles"


def list_profiles() -> list[ProfileEntry]:
    """All profiles that can be named, sorted; a user's profile hides a shipped one of its name."""
    entries = {}
    folders: tuple[tuple[Literal["shipped", "user"], Path], ...] = (
        ("shipped", shipped_folder()),
        ("user", user_folder()),
    )
    for source, folder in folders:
        for path in sorted(folder.glob("*")):
            if path.suffix in SUFFIXES:
                entries[path.stem] = ProfileEntry(path.stem, path, source)
    return [entries[name] for name in sorted(entries)]


def profile_path(name_or_path: str) -> Path:
    """The file of a profile, given its name or the path itself.

    Raises ProfileError when there is none, with the names that exist.
    """
    if name_or_path.endswith(SUFFIXES) or "/" in name_or_path or os.sep in name_or_path:
        return Path(name_or_path).expanduser()
    paths = {entry.name: entry.path for entry in list_profiles()}
    if name_or_path not in paths:
        raise ProfileError(
            f"there is no profile {name_or_path!r}, only {', '.join(paths)} or the path of a YAML "
            f"file{_did_you_mean(name_or_path, paths)}"
        )
    return paths[name_or_path]


def load_profile(name_or_path: str) -> Profile:
    """Read and check a profile: a shipped name, a user's own, or the path of a YAML file.

    Raises ProfileError with every problem of the file at once, each with its line.
    """
    path = profile_path(name_or_path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ProfileError(f"cannot read the profile {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"the profile {path} is not UTF-8 text") from error
    return parse_profile(text, str(path))


def parse_profile(text: str, source: str) -> Profile:
    """The profile that ``text`` describes; ``source`` is how problems call the file.

    Raises ProfileError with every problem at once, each with its line.
    """
    document = _read(text)
    problems, profile = list(document.problems), None
    if document.content is not None:
        try:
            profile = Profile.model_validate(document.content)
        except ValidationError as error:
            problems += [_problem(details, document.lines) for details in error.errors()]
    if profile is None or problems:
        raise ProfileError(_report(sorted(problems), source))
    return profile


# ---------------------------------------------------------------- YAML with line numbers

Place = tuple[str, ...]  # keys from the top of the file, such as ("tree", "nodes")


@dataclass(frozen=True, order=True)
class Problem:
    """A mistake in a profile. Lines and columns count from 1; column 0: the whole line."""

    line: int
    sentence: str
    column: int = 0

    def __str__(self) -> str:
        column = f", column {self.column}" if self.column else ""
        return f"line {self.line}{column}: {self.sentence}"


@dataclass
class _Document:
    """A parsed file: plain values, the line of every key, and mistakes of its notation.

    ``content`` is None when there are no values to check.
    """

    content: dict[str, object] | None = None
    lines: dict[Place, int] = field(default_factory=lambda: {(): 1})
    problems: list[Problem] = field(default_factory=list)


class _Loader(yaml.SafeLoader):
    """SafeLoader without aliases, so that a document is a finite tree."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed here", mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def _read(text: str) -> _Document:
    document = _Document()
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            document.content = _mapping(loader, node, (), document)
        else:
            problem = Problem(1, "a profile has `key: value` lines, and there are none")
            document.problems.append(problem)
    except yaml.YAMLError as error:
        document.problems.append(_notation(error, text))
    except RecursionError:
        document.problems.append(Problem(1, "nested too deeply"))
    return document


def _notation(error: yaml.YAMLError, text: str) -> Problem:
    """Where and why a text is no YAML."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Problem(line, f"not valid YAML: character U+{ord(text[error.position]):04X}")
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem(1, "not valid YAML")
    mark = error.problem_mark or error.context_mark
    sentence = "not valid YAML: " + " ".join(filter(None, (error.context, error.problem)))
    return Problem(mark.line + 1, sentence, mark.column + 1) if mark else Problem(1, sentence)


def _mapping(
    loader: _Loader, node: yaml.MappingNode, place: Place, document: _Document
) -> dict[str, object]:
    """Plain values of a mapping; notes lines, keys that are set twice, and odd keys."""
    content: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.problems.append(Problem(line, "a key must be a plain word"))
            continue
        key = str(key_node.value)  # as it is written: YAML would read `on` as true
        here = (*place, key)
        if key in content:
            sentence = f"`{_dotted(here)}` is set twice, first in line {document.lines[here]}"
            document.problems.append(Problem(line, sentence))
            continue
        document.lines[here] = line
        content[key] = _value(loader, value_node, here, document)
    return content


def _value(loader: _Loader, node: yaml.Node, place: Place, document: _Document) -> object:
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node, place, document)
    if isinstance(node, yaml.SequenceNode):
        return []  # no key of a profile takes a list: what is in it does not matter
    try:
        value: object = loader.construct_object(node)
    except (yaml.MarkedYAMLError, ValueError):  # a foreign tag, or a date such as 2024-99-99
        sentence = f"cannot read the value {_shown(node.value)}"
        document.problems.append(Problem(node.start_mark.line + 1, sentence))
        return node.value
    return value


# ---------------------------------------------------------------- problems as sentences


def _problem(details: Any, lines: dict[Place, int]) -> Problem:
    """One of pydantic's errors, in our words and with its line."""
    location = tuple(str(part) for part in details["loc"])
    section = _section_of(location)
    place = location if location[:1] != ("prompt",) else _without_tag(location)
    return Problem(_line(place, lines), _sentence(details, place, section))


def _sentence(details: Any, place: Place, section: type[BaseModel]) -> str:
    key, name, value = place[-1], f"`{_dotted(place)}`", details["input"]
    limits = details.get("ctx", {})
    match details["type"]:
        case "missing":
            return f"`{_dotted(place)}` is missing: {section.model_fields[key].description}"
        case "extra_forbidden":
            where = f" in `{_dotted(place[:-1])}`" if place[:-1] else ""
            keys = list(section.model_fields)
            hint = _did_you_mean(key, keys) or f"; known are {', '.join(keys)}"
            return f"unknown key {_shown(key)}{where}{hint}"
        case "literal_error":
            return f"{name} is {_shown(value)}; {_choices(value, _options(section, key))}"
        case "union_tag_not_found":
            return f"`{_dotted((*place, 'kind'))}` is missing: digest or instruct"
        case "union_tag_invalid":
            kind, options = limits["tag"], ["digest", "instruct"]
            return f"`{_dotted((*place, 'kind'))}` is {_shown(kind)}; {_choices(kind, options)}"
        case "value_error":
            return f"{name} {limits['error']}"
        case "greater_than_equal":
            return f"{name} is {_shown(value)}; it must be at least {limits['ge']:.12g}"
        case "greater_than":
            return f"{name} is {_shown(value)}; it must be more than {limits['gt']:.12g}"
        case "less_than_equal":
            return f"{name} is {_shown(value)}; it must be at most {limits['le']:.12g}"
        case "string_too_short":
            return f"{name} is empty"
        case kind if kind in _WANTED:
            return f"{name} is {_shown(value)}; it must be {_WANTED[kind]}"
        case _:
            return f"{name} is {_shown(value)}: {details['msg']}"


_KEYS = "keys of its own, indented below it"
_WANTED = {
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
    "int_type": "a whole number",
    "float_type": "a number, such as 0.5",
    "finite_number": "a finite number",
    "string_type": "text; put it in quotes",
    "string_pattern_mismatch": "letters, digits, dots, dashes and underscores",
}


def _sections() -> Iterator[tuple[Place, type[BaseModel]]]:
    """Every section of the schema, at the place pydantic gives it: ("prompt", "digest")."""
    yield (), Profile
    for name, info in Profile.model_fields.items():
        for candidate in (info.annotation, *get_args(info.annotation)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                tag = (candidate.model_fields["kind"].default,) if info.discriminator else ()
                yield (name, *tag), candidate


def _section_of(location: Place) -> type[BaseModel]:
    return dict(_sections()).get(location[:-1], Profile)


def _without_tag(location: Place) -> Place:
    """The place of a key of the prompt, whose kind pydantic puts between section and key."""
    return (location[0], *location[2:])


def _options(section: type[BaseModel], key: str) -> list[str]:
    """The words a key accepts: those of its Literal, which may stand in a union with None."""
    annotation = section.model_fields[key].annotation
    words = [word for part in (annotation, *get_args(annotation)) for word in get_args(part)]
    return list(dict.fromkeys(word for word in words if isinstance(word, str)))


def _choices(value: object, options: list[str]) -> str:
    one_of = "one of " if len(options) > 1 else ""
    return f"it must be {one_of}{', '.join(options)}{_did_you_mean(str(value), options)}"


def _did_you_mean(word: str, options: Any) -> str:
    close = get_close_matches(word, list(options), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _line(place: Place, lines: dict[Place, int]) -> int:
    """The line of a key, or of the closest section around a key that is not in the file."""
    while place not in lines:
        place = place[:-1]
    return lines[place]


def _dotted(place: Place) -> str:
    return ".".join(key if key.isidentifier() else _shown(key) for key in place)


def _shown(value: object) -> str:
    """A value as a short, printable part of a sentence."""
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a section"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a huge number"
    shown = repr(value) if isinstance(value, str | int | float) else repr(str(value))
    return shown if len(shown) <= 60 else f"{shown[:56]} …"


def _report(problems: list[Problem], source: str) -> str:
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n".join([f"the profile {source} has {count}:", *(f"  {each}" for each in problems)])
