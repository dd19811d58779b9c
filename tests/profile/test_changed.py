"""A profile is changed in one validated way."""

import pytest

from specx.errors import ProfileError
from specx.profile import AutoTree, Profile, TreeSettings, load_profile, parse_profile
from tests.profile.examples import MINIMAL


@pytest.fixture
def profile() -> Profile:
    return parse_profile(MINIMAL + "tree: {nodes: 8, depth: 6}\n", "p.yaml")


def test_keys_of_sections_and_values_beside_them(profile: Profile) -> None:
    changed = profile.changed(
        generation={"max_new_tokens": 64}, tree={"nodes": 20}, graphs=False, draft=None
    )
    text = "name: p\ntarget: {model: t}\ndraft: null\ngraphs: false\n"
    text += "generation: {max_new_tokens: 64}\ntree: {nodes: 20, depth: 6}\n"
    expected = parse_profile(text, "p.yaml")
    assert changed == expected.changed(name=profile.name, target=profile.target)
    assert profile.generation.max_new_tokens is None  # the original stays


def test_a_whole_section(profile: Profile) -> None:
    tree = TreeSettings(nodes=3, depth=2)
    assert profile.changed(tree=tree).tree is tree
    assert profile.tree.changed(nodes=7).nodes == 7


def test_of_auto_there_is_nothing_to_keep(profile: Profile) -> None:
    auto = profile.changed(tree="auto")
    assert type(auto.tree) is AutoTree
    assert auto.changed(tree={"nodes": 40}).tree == TreeSettings(nodes=40)
    assert auto.changed(graphs=False).tree == AutoTree()


def test_of_no_draft_there_is_nothing_to_keep(profile: Profile) -> None:
    plain = profile.changed(draft=None)
    assert plain.changed(draft={"model": "d", "trained_context": 2048}).draft is not None
    with pytest.raises(ProfileError, match=r"`draft\.model` is missing"):
        plain.changed(draft={"trained_context": 2048})


def test_every_problem_has_a_line(profile: Profile) -> None:
    with pytest.raises(ProfileError) as caught:
        profile.changed(tree={"nodes": 99}, generation={"sed": 1}, graphs=1)
    assert str(caught.value).splitlines() == [
        "`tree.nodes` is 99; it must be at most 63",
        "unknown key 'sed' in `generation`; did you mean 'seed'?",
        "`graphs` is 1; it must be true or false",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"prompt": {"sentences": 5}},
            "unknown key 'sentences' in `prompt`; did you mean 'styles'?",
        ),
        ({"tree": {"depth": 9}}, "`tree.depth` is 9, but 8 nodes reach at most 8 levels"),
    ],
)
def test_keys_are_checked_against_each_other(
    profile: Profile, changes: dict[str, object], expected: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        profile.changed(**changes)
    assert str(caught.value).startswith(expected)


def test_a_section_names_its_own_keys() -> None:
    with pytest.raises(ProfileError, match=r"^`nodes` is 0; it must be at least 1$"):
        load_profile("mini").tree.changed(nodes=0)
