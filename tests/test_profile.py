"""Profiles: the schema, the loader's messages, the shipped files, and the table in the docs.

``python tests/test_profile.py`` prints the table for ``docs/profiles.md``.
"""

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from specx import profile as profile_module
from specx.errors import ProfileError
from specx.profile import (
    DigestPrompt,
    InstructPrompt,
    Profile,
    list_profiles,
    load_profile,
    parse_profile,
    profile_path,
    shipped_folder,
    user_folder,
)

ROOT = Path(__file__).parent.parent
MINIMAL = """\
name: small
target: {model: org/target}
draft: {model: org/draft, trained_context: 2048}
"""
SHIPPED = ["llama-3.1-8b", "longchat-7b-68m", "mini", "qwen3-8b", "vicuna-7b-68m"]


@pytest.fixture(autouse=True)
def _own_config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def problems(text: str) -> list[str]:
    """The lines of the error, without the heading."""
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "p.yaml")
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


# ---------------------------------------------------------------- values


def test_defaults() -> None:
    profile = parse_profile(MINIMAL, "p.yaml")
    assert isinstance(profile.prompt, InstructPrompt)
    assert (profile.tree.nodes, profile.tree.depth, profile.tree.threshold) == (50, 10, 0.7)
    assert profile.draft_cache.policy == "cross-model"
    assert profile.draft_cache.working_tokens == 1024
    assert profile.draft is not None
    assert profile.draft.dtype is None
    assert profile.fallback.below == 1.0
    assert profile.long_documents == "parts"


def test_draft_may_be_null_but_not_forgotten() -> None:
    assert parse_profile("name: p\ntarget: {model: m}\ndraft: null\n", "p").draft is None
    assert problems("name: p\ntarget: {model: m}\n") == [
        "line 1: `draft` is missing: the model that proposes tokens; null: plain decoding"
    ]


def test_null_switches_fallback_and_window_off() -> None:
    text = MINIMAL + "fallback: {below: null}\ndraft_cache: {window: null, layer: 3}\n"
    profile = parse_profile(text, "p.yaml")
    assert profile.fallback.below is None
    assert profile.draft_cache.window is None
    assert profile.draft_cache.layer == 3


def test_profiles_do_not_change() -> None:
    profile = parse_profile(MINIMAL, "p.yaml")
    with pytest.raises(ValidationError):
        profile.tree.nodes = 3  # type: ignore[misc]


def test_the_full_cache_has_no_working_size() -> None:
    text = MINIMAL + "draft_cache: {policy: full, top_k: 4096}\n"
    assert parse_profile(text, "p.yaml").draft_cache.working_tokens is None


# ---------------------------------------------------------------- messages


def test_every_problem_with_its_line() -> None:
    text = """\
name: mine
target: {model: org/target}
draft:
  model: org/draft
  trained_context: 2048
tree:
  nodes: 99
draft_cache:
  polcy: full
  policy: crossmodel
"""
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "mine.yaml")
    assert str(caught.value) == (
        "the profile mine.yaml has 3 problems:\n"
        "  line 7: `tree.nodes` is 99; it must be at most 63\n"
        "  line 9: unknown key 'polcy' in `draft_cache`; did you mean 'policy'?\n"
        "  line 10: `draft_cache.policy` is 'crossmodel'; it must be one of full, streaming, "
        "cross-model; did you mean 'cross-model'?"
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tree: {nodes: 4}", "`tree.depth` is 10, but 4 nodes reach at most 4 levels"),
        ("tree: {nodes: 1.5}", "`tree.nodes` is 1.5; it must be a whole number"),
        ("tree: {nodes: true}", "`tree.nodes` is true; it must be a whole number"),
        ("tree: {nodes: '8'}", "`tree.nodes` is '8'; it must be a whole number"),
        ("tree: {threshold: .inf}", "`tree.threshold` is inf; it must be a finite number"),
        ("tree:", "`tree` is empty; it must be keys of its own, indented below it"),
        ("tree: [1, 2]", "`tree` is a list; it must be keys of its own, indented below it"),
        (
            "tree: auto",
            "`tree` is auto, which this version does not offer yet; give nodes, depth, threshold",
        ),
        (
            "draft_cache: {top_k: 65}",
            "`draft_cache` holds chunk × top_k = 2080 tokens, "
            "more than draft.trained_context (2048)",
        ),
        (
            "draft_cache: {policy: streaming, top_k: 1}",
            "`draft_cache.sink` is 1; it must be less than top_k (1)",
        ),
        (
            "draft_cache: {layer: first}",
            "`draft_cache.layer` is 'first'; it must be last, auto or a layer counted from 0",
        ),
        (
            "draft_cache: {layer: -1}",
            "`draft_cache.layer` is -1; it must be last, auto or a layer counted from 0",
        ),
        ("generation: {top_p: 0}", "`generation.top_p` is 0; it must be more than 0"),
        ("generation: {seed: 0x" + "f" * 5000 + "}", "`generation.seed` is a huge number; it"),
        ("prompt: {sentences: 4}", "`prompt.kind` is missing: digest or instruct"),
        (
            "prompt: {kind: digst}",
            "`prompt.kind` is 'digst'; it must be one of digest, instruct; did you mean 'digest'?",
        ),
        ("prompt: {kind: digest, sentences: 65}", "`prompt.sentences` is 65; it must be at most"),
        (
            "prompt: {kind: digest, instruction: x}",
            "unknown key 'instruction' in `prompt`; known are kind, sentences",
        ),
        ("prompt: {kind: instruct, instruction: ''}", "`prompt.instruction` is empty"),
        ("long_documents: cut", "`long_documents` is 'cut'; it must be one of parts, refuse"),
        ("drafts: 1", "unknown key 'drafts'; did you mean 'draft'?"),
        ("on: 1", "unknown key 'on'; known are name, description, prompt, target, draft, tree,"),
        ("name: other", "`name` is set twice, first in line 1"),
        ("? [a, b]\n: 1", "a key must be a plain word"),
        ("description: 2024-99-99", "cannot read the value '2024-99-99'"),
        ("description: !!python/name:os.system x", "cannot read the value 'x'"),
        ("description: 12", "`description` is 12; it must be text; put it in quotes"),
        ('"\\e[31m": 1', r"unknown key '\x1b[31m'; known are"),
    ],
)
def test_one_problem(text: str, expected: str) -> None:
    found = problems(MINIMAL + text)
    assert found[0].startswith(f"line 4: {expected}")
    assert len(found) == 1


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (
            "target: {model: embedded:draft}\ndraft: null",
            "line 2: `target.model` is 'embedded:draft'; "
            "the only embedded model here is 'embedded:target'",
        ),
        (
            "target: {model: m, dtype: fp16}\ndraft: null",
            "line 2: `target.dtype` is 'fp16'; it must be one of float32, float16, bfloat16, "
            "auto; did you mean 'float16'?",
        ),
        (
            "target: {model: m, revision: 1234567}\ndraft: null",
            "line 2: `target.revision` is 1234567; it must be text; put it in quotes",
        ),
        (
            "target: {model: m}\ndraft: {kind: eagle, model: d, trained_context: 8}\n"
            "draft_cache: {policy: full}",
            "line 3: `draft.kind` is 'eagle'; it must be model",
        ),
        (
            "target: {model: m}\ndraft: {model: d}",
            "line 3: `draft.trained_context` is missing: tokens of context the draft was trained "
            "on, beyond which it guesses badly",
        ),
    ],
)
def test_one_problem_of_the_models(models: str, expected: str) -> None:
    assert problems(f"name: p\n{models}\n") == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1: a profile has `key: value` lines, and there are none"),
        ("- a\n- b\n", "line 1: a profile has `key: value` lines, and there are none"),
        ("name: a\ntree: {nodes: 3", "line 2, column 16: not valid YAML: while parsing a flow"),
        ("name: a\n\tb: 1", "line 2, column 1: not valid YAML: while scanning for the next token"),
        ("a: &x 1\nb: *x\n", "line 2, column 4: not valid YAML: aliases are not allowed here"),
        ("a: 1\nb: \x07\n", "line 2: not valid YAML: character U+0007"),
        ("a: 1\n---\nb: 1\n", "line 2, column 1: not valid YAML: expected a single document"),
        ("[" * 5000, "line 1: nested too deeply"),
    ],
)
def test_not_yaml(text: str, expected: str) -> None:
    (found,) = problems(text)
    assert found.startswith(expected)


@given(st.text(alphabet="abn:-{}[]&*!<>|#'\"\\%@`,? \n\t01.\x00é", max_size=60))
def test_no_text_escapes_the_loader(text: str) -> None:
    with pytest.raises(ProfileError):
        parse_profile(text, "p.yaml")


def _leaves(value: dict[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, inner in value.items():
        yield (*place, key)
        if isinstance(inner, dict):
            yield from _leaves(inner, (*place, key))


COMPLETE = parse_profile(MINIMAL, "p.yaml").model_dump()
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=5), SCALARS)


@given(st.sampled_from(list(_leaves(COMPLETE))), VALUES)
def test_any_value_is_taken_or_explained(place: tuple[str, ...], value: object) -> None:
    changed = parse_profile(MINIMAL, "p.yaml").model_dump()
    section = changed
    for key in place[:-1]:
        section = section[key]
    section[place[-1]] = value
    with suppress(ProfileError):  # any other exception is a mistake of ours
        parse_profile(yaml.safe_dump(changed, sort_keys=False), "p.yaml")


# ---------------------------------------------------------------- finding


def test_shipped_profiles_load_under_their_own_names() -> None:
    entries = list_profiles()
    assert [entry.name for entry in entries] == SHIPPED
    for entry in entries:
        assert entry.source == "shipped"
        assert load_profile(entry.name).name == entry.name


def test_mini_is_the_embedded_pair() -> None:
    mini = load_profile("mini")
    assert isinstance(mini.prompt, DigestPrompt)
    assert (mini.target.model, mini.target.dtype) == ("embedded:target", "float32")
    assert mini.draft is not None
    assert (mini.draft.model, mini.draft.trained_context) == ("embedded:draft", 1024)
    assert mini.draft_cache.layer == 4


def test_the_68m_profiles_have_the_papers_parameters() -> None:
    for name in ("vicuna-7b-68m", "longchat-7b-68m"):
        profile = load_profile(name)
        assert (profile.tree.nodes, profile.tree.depth, profile.tree.threshold) == (50, 10, 0.7)
        cache = profile.draft_cache
        assert (cache.chunk, cache.top_k, cache.every, cache.layer) == (32, 32, 4, "last")


def test_unknown_name() -> None:
    with pytest.raises(ProfileError) as caught:
        load_profile("vicuna-7b")
    assert str(caught.value) == (
        f"there is no profile 'vicuna-7b', only {', '.join(SHIPPED)} or the path of a YAML file; "
        "did you mean 'vicuna-7b-68m'?"
    )


def test_users_profile_hides_a_shipped_one() -> None:
    folder = user_folder()
    folder.mkdir(parents=True)
    (folder / "mini.yaml").write_text(MINIMAL)
    (folder / "other.yml").write_text(MINIMAL)
    (folder / "notes.txt").write_text("no profile")
    sources = {entry.name: entry.source for entry in list_profiles()}
    assert sources == dict.fromkeys(SHIPPED, "shipped") | {"mini": "user", "other": "user"}
    assert load_profile("mini").name == "small"
    assert profile_path("other") == folder / "other.yml"


def test_a_path_is_read_and_a_relative_config_home_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_profile(str(file)).name == "small"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_folder() == tmp_path / ".config" / "specx" / "profiles"


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"cannot read the profile .*No such file"):
        load_profile(str(tmp_path / "absent.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(ProfileError, match="is not UTF-8 text"):
        load_profile(str(tmp_path / "latin.yaml"))


def test_shipped_folder_is_the_checkouts_own() -> None:
    assert shipped_folder() == ROOT / "profiles"


def test_profile_imports_only_errors_of_specx() -> None:
    tree = ast.parse(Path(profile_module.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {n.name for i in ast.walk(tree) if isinstance(i, ast.Import) for n in i.names}
    foreign = {name for name in imported if str(name).split(".")[0] not in sys.stdlib_module_names}
    assert foreign == {"pydantic", "yaml", "specx.errors"}


# ---------------------------------------------------------------- documentation


def table() -> str:
    """The table of all keys, made from the schema."""
    head = "| key | values | default | meaning |\n|---|---|---|---|\n"
    return head + "\n".join(_rows())


def _rows() -> Iterator[str]:
    sections = dict(profile_module._sections())
    top = [(name, info) for name, info in Profile.model_fields.items()]
    for name, info in top:
        yield _row(name, info)
        for place, section in sections.items():
            if place[:1] == (name,):
                tag = f" ({place[1]} only)" if len(place) > 1 else ""
                for key, inner in section.model_fields.items():
                    if tag and key == "kind":
                        tagged = f"`{place[1]}`"
                        yield f"| `{name}.kind` | {tagged} | required | {inner.description} |"
                    else:
                        yield _row(f"{name}.{key}", inner, tag)


def _row(name: str, info: FieldInfo, tag: str = "") -> str:
    return f"| `{name}` | {_values(info)} | {_default(info)} | {info.description}{tag} |"


def _values(info: FieldInfo) -> str:
    parts = [info.annotation, *get_args(info.annotation)]
    words = [f"`{w}`" for part in parts for w in get_args(part) if isinstance(w, str)]
    types = {int: "whole number", float: "number", str: "text"}
    found = list(dict.fromkeys(words)) + [types[t] for t in parts if t in types] or ["keys"]
    null = ["null"] if NoneType in parts else []
    return ", ".join(found) + _limits(info) + "".join(f" or {word}" for word in null)


def _limits(info: FieldInfo) -> str:
    """The range of a number, as in " ≥ 4, ≤ 64"."""
    signs = {"gt": ">", "ge": "≥", "le": "≤"}
    rules = [(sign, rule, name) for rule in info.metadata for name, sign in signs.items()]
    limits = [f"{s} {getattr(rule, name):.12g}" for s, rule, name in rules if hasattr(rule, name)]
    return f" {', '.join(limits)}" if limits else ""


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.default_factory is not None:
        return "as below"
    return "null" if info.default is None else f"`{info.default}`" if info.default != "" else "none"


def test_the_documented_table_is_the_schemas() -> None:
    documented = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    assert table() in documented, "print the current table with: python tests/test_profile.py"


def test_documented_examples_are_valid() -> None:
    text = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    examples = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    assert examples
    for example in examples:
        parse_profile(example, "docs/profiles.md")


if __name__ == "__main__":
    print(table())
