"""Settings by device: taken over, changed, and checked wherever they are read."""

import pytest

from specx.errors import ProfileError
from specx.profile import (
    AutoTree,
    Devices,
    Profile,
    TreeSettings,
    load_profile,
    parse_profile,
)
from tests.profile.examples import MINIMAL

CHANGES = """\
tree: {nodes: 8, depth: 6, threshold: 0.3}
devices:
  cuda:
    target: {dtype: float16}
    tree: {nodes: 50}
    draft_cache: {every: 8}
"""


def test_what_a_device_does_not_say_is_the_profiles() -> None:
    profile = parse_profile(MINIMAL + CHANGES, "p.yaml")
    on_gpu, on_cpu = profile.on("cuda"), profile.on("cpu")
    assert on_gpu.target.dtype == "float16"
    assert (on_gpu.tree.nodes, on_gpu.tree.depth, on_gpu.tree.threshold) == (50, 6, 0.3)
    assert on_gpu.draft_cache == profile.draft_cache.changed(every=8)
    assert on_gpu.draft == profile.draft
    assert on_cpu == profile.changed(devices=Devices())


def test_what_runs_says_nothing_of_devices() -> None:
    profile = parse_profile(MINIMAL + CHANGES, "p.yaml").on("cuda")
    assert profile.devices == Devices()
    assert profile.on("cpu") == profile


def test_number_formats_of_both_models() -> None:
    text = "devices: {cpu: {target: {dtype: bfloat16}, draft: {dtype: float32}}}\n"
    profile = parse_profile(MINIMAL + text, "p.yaml").on("cpu")
    assert profile.draft is not None
    assert (profile.target.dtype, profile.draft.dtype) == ("bfloat16", "float32")
    alone = "name: p\ntarget: {model: m}\ndraft: null\n"
    assert parse_profile(alone + text, "p.yaml").on("cpu").draft is None


def test_a_profile_is_what_it_dumps() -> None:
    profile = parse_profile(MINIMAL + CHANGES, "p.yaml")
    assert Profile.model_validate(profile.model_dump()) == profile


@pytest.mark.parametrize(
    ("text", "on_cpu", "on_gpu"),
    [
        ("tree: auto\n", AutoTree(), AutoTree()),
        ("tree: auto\ndevices: {cuda: {draft_cache: {every: 2}}}\n", AutoTree(), AutoTree()),
        (
            "tree: auto\ndevices: {cuda: {tree: {nodes: 40}}}\n",
            AutoTree(),
            TreeSettings(nodes=40),
        ),
        (
            "tree: {nodes: 40}\ndevices: {cuda: {tree: auto}}\n",
            TreeSettings(nodes=40),
            AutoTree(),
        ),
    ],
)
def test_a_tree_may_be_chosen_on_one_device_and_fixed_on_the_other(
    text: str, on_cpu: TreeSettings, on_gpu: TreeSettings
) -> None:
    profile = parse_profile(MINIMAL + text, "p.yaml")
    for device, tree in (("cpu", on_cpu), ("cuda", on_gpu)):
        found = profile.on(device).tree
        assert (type(found), found) == (type(tree), tree)
    assert Profile.model_validate(profile.model_dump()) == profile
    assert Profile.model_validate(profile.model_dump(mode="json")) == profile


def test_mini_keeps_its_small_tree_on_a_cpu() -> None:
    mini = load_profile("mini")
    assert mini.on("cpu").tree == mini.tree
    on_gpu = mini.on("cuda")
    assert (on_gpu.tree.nodes, on_gpu.tree.depth, on_gpu.tree.threshold) == (50, 10, 0.7)
    assert on_gpu.draft_cache == mini.draft_cache


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("{gpu: {}}", "5: unknown key 'gpu' in `devices`; did you mean 'cpu'?"),
        (
            "{cuda: {generation: {}}}",
            "5: unknown key 'generation' in `devices.cuda`; "
            "known are target, draft, tree, draft_cache",
        ),
        (
            "{cuda: {target: {model: x}}}",
            "5: unknown key 'model' in `devices.cuda.target`; known are dtype",
        ),
        (
            "\n  cuda:\n    tree:\n      nodse: 4",
            "8: unknown key 'nodse' in `devices.cuda.tree`; did you mean 'nodes'?",
        ),
        (
            "{cuda: {tree: {nodes: 4}}}",
            "5: `devices.cuda.tree.depth` is 6, but 4 nodes reach at most 4 levels",
        ),
        (
            "{cuda: {draft_cache: {top_k: 65}}}",
            "5: `devices` gives cuda a draft_cache that holds chunk × top_k = 2080 tokens, more "
            "than draft.trained_context (2048)",
        ),
    ],
)
def test_mistakes_have_their_place_and_line(devices: str, expected: str) -> None:
    text = f"{MINIMAL}tree: {{nodes: 8, depth: 6}}\ndevices: {devices}\n"
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "p.yaml")
    (problem,) = str(caught.value).splitlines()[1:]
    assert problem.strip().startswith(f"line {expected}")


def test_a_mistake_is_reported_where_it_is_made_and_not_again_for_devices() -> None:
    text = (
        "name: p\ntarget: {model: t}\ndraft: {model: d, trained_context: 512}\n"
        "tree: {nodes: 99, depth: 3}\ndraft_cache: {top_k: 0}\n"
        "devices: {cuda: {tree: {nodes: 4}, target: {dtype: half}}}\n"
    )
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "p.yaml")
    lines = [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]]
    assert lines == ["line 4", "line 5", "line 6"]
