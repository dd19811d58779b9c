"""LongSpec: checkpoints of its layout, and drafts held against the layer written out."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specx.bench.baselines import longspec
from specx.bench.baselines.longspec import FILE, LongSpec, load_glide
from specx.bench.methods import find_methods
from specx.bench.methods.stock import stock
from specx.decoding.target import Target
from specx.errors import ModelError, UsageError
from specx.ops.trees import Path as TreePath
from tests.bench.baselines.drafting import check, resolved, small_profile
from tests.bench.settings import tiny_case, tiny_setting
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of
from tests.decoding.test_lossless import SURE
from tests.ops.test_trees import paths_of

UNITS = 48


def weights(*, bias: bool = True, kv_heads: int = 2, seed: int = 0) -> dict[str, Tensor]:
    target, make = loaded(**SURE), torch.Generator().manual_seed(seed)
    size, queries, keys = target.hidden_size, target.num_heads * target.head_dim, 0
    keys = kv_heads * target.head_dim
    shapes = {"mlp.gate_proj": (UNITS, size), "mlp.up_proj": (UNITS, size)}
    shapes["mlp.down_proj"] = (size, UNITS)
    for name in ("self_attn", "cross_attn"):
        shapes |= {f"{name}.q_proj": (queries, size), f"{name}.o_proj": (size, queries)}
        shapes |= {f"{name}.k_proj": (keys, size), f"{name}.v_proj": (keys, size)}
    found = {f"{n}.weight": torch.randn(shape, generator=make) / 6 for n, shape in shapes.items()}
    for name in ("input", "post_self_attention", "post_cross_attention"):
        found[f"{name}_layernorm.weight"] = 1 + torch.randn(size, generator=make) / 10
    for name in ("self_attn", "cross_attn") if bias else ():
        for part, rows in (("q", queries), ("k", keys), ("v", keys)):
            found[f"{name}.{part}_proj.bias"] = torch.randn(rows, generator=make) / 6
    return found


def write(folder: Path, tensors: dict[str, Tensor], **changes: object) -> str:
    target = loaded(**SURE)
    config = {
        "hidden_size": target.hidden_size,
        "num_attention_heads": target.num_heads,
        "num_key_value_heads": 2,
        "intermediate_size": UNITS,
        "rms_norm_eps": 1e-5,
    } | changes
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / FILE)
    return str(folder)


class Written:
    """The layer as it is described, for a whole text, without caches."""

    def __init__(self, weights: dict[str, Tensor], target) -> None:
        self.w, self.target = weights, target

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0)

    def norm(self, x: Tensor, name: str) -> Tensor:
        return (
            x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.w[f"{name}_layernorm.weight"]
        )

    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        angles = torch.arange(len(x))[:, None] * self.target.inv_freq
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
        scores = torch.einsum("thd,shd->hts", q, k) / q.shape[-1] ** 0.5
        shares = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        return torch.einsum("hts,shd->thd", shares, v).flatten(1)

    @torch.no_grad()
    def next_token(self, tokens: list[int], read: int, allowed: Tensor) -> int:
        """``read``: tokens that the target has read."""
        heads = (-1, self.target.head_dim)
        with stock(loaded(**SURE)) as model:
            past = model(input_ids=torch.tensor([tokens[:read]]), use_cache=True).past_key_values
            layer = past.layers[-1]
            keys, values = (each[0].transpose(0, 1) for each in (layer.keys, layer.values))
            x = model.get_input_embeddings()(torch.tensor(tokens))
            n = torch.arange(len(tokens))
            before = n[:, None] >= n
            h = self.norm(x, "input")
            q, k, v = (self.linear(h, f"self_attn.{p}_proj").unflatten(1, heads) for p in "qkv")
            x = x + self.linear(
                self.attend(self.rotate(q), self.rotate(k), v, before), "self_attn.o_proj"
            )
            h = self.norm(x, "post_self_attention")
            q = self.rotate(self.linear(h, "cross_attn.q_proj").unflatten(1, heads))
            everything = torch.ones(len(tokens), read, dtype=torch.bool)
            x = x + self.linear(self.attend(q, keys, values, everything), "cross_attn.o_proj")
            h = self.norm(x, "post_cross_attention")
            gate = torch.nn.functional.silu(self.linear(h, "mlp.gate_proj"))
            x = x + self.linear(gate * self.linear(h, "mlp.up_proj"), "mlp.down_proj")
            logits = model.get_output_embeddings()(x[-1])
        return int(logits.masked_fill(~allowed, -torch.inf).argmax())


@pytest.mark.parametrize(
    ("bias", "modules", "kv_heads"), [(True, False, 2), (False, False, 1), (True, True, 2)]
)
def test_drafts_are_those_of_the_layer_written_out(tmp_path, bias, modules, kv_heads):
    """After the prompt and after a step."""
    pair = pair_of(loaded(**SURE, modules=modules))
    tensors = weights(bias=bias, kv_heads=kv_heads)
    folder = write(tmp_path, tensors, num_key_value_heads=kv_heads)
    glide = load_glide(folder, pair.target)
    profile = make_profile(tree={"nodes": 8, "depth": 3, "width": 1, "threshold": 0})
    drafter = LongSpec(resolved(profile, pair), pair, glide, 200)
    target = Target(pair.target, 300, None)
    text, root = make_prompt(40), 5
    list(target.prefill(torch.tensor(text)))
    list(drafter.prefill(torch.tensor(text), target))
    drafter.commit(TreePath.of(torch.tensor([root])))
    for new in ([], [root, 7]):
        if new:
            text, root = [*text, *new], 9
            list(target.prefill(torch.tensor(text)))
            tokens = torch.tensor([7, root])
            drafter.commit(TreePath(torch.tensor([0, 1]), tokens, torch.tensor(2)))
            drafter.retrieve(target)
        found = paths_of(drafter.grow(torch.tensor([root])))
        written = Written(tensors, pair.target)
        tokens = [*text, root]
        # The best nodes are some of the chain and of what is beside it.
        deepest = max(map(len, found))
        assert deepest > 1
        for _ in range(deepest):
            tokens.append(written.next_token(tokens, len(text), pair.target_allowed))
        assert tuple(tokens[-deepest:]) in found


def test_the_window_moves(tmp_path, monkeypatch):
    """Without the target's keys only the last two chunks count, here rows 64 and behind."""
    monkeypatch.setattr(longspec, "WINDOW", 65)
    pair = pair_of(loaded(**SURE))
    tensors = weights()
    tensors["cross_attn.o_proj.weight"].zero_()
    glide = load_glide(write(tmp_path, tensors), pair.target)
    found = []
    for start in (make_prompt(100), [*make_prompt(164)[100:], *make_prompt(100)[64:]]):
        drafter = LongSpec(resolved(make_profile(), pair), pair, glide, 200)
        target = Target(pair.target, 300, None)
        list(target.prefill(torch.tensor(start)))
        list(drafter.prefill(torch.tensor(start), target))
        assert int(drafter.cache.working.length) == 36
        drafter.commit(TreePath.of(torch.tensor([5])))
        found.append(paths_of(drafter.grow(torch.tensor([5]))))
    assert found[0] == found[1]


@pytest.mark.parametrize("window", [pytest.param(512, marks=pytest.mark.slow), 40])
def test_the_text_is_the_targets_own(tmp_path, monkeypatch, window):
    monkeypatch.setattr(longspec, "WINDOW", window)
    pair, profile = pair_of(loaded(**SURE)), small_profile()
    glide = load_glide(write(tmp_path, weights()), pair.target)
    check(
        lambda n: LongSpec(resolved(profile, pair), pair, glide, n), pair, profile, make_prompt(60)
    )


def without(name: str) -> dict[str, Tensor]:
    tensors = weights()
    del tensors[name]
    return tensors


@pytest.mark.parametrize(
    ("tensors", "changes", "message"),
    [
        (without("self_attn.k_proj.weight"), {}, r"lacks the tensor self_attn\.k_proj\.weight"),
        (without("input_layernorm.weight"), {}, r"lacks the tensor input_layernorm\.weight"),
        (
            {**weights(), "norm.weight": torch.ones(1)},
            {},
            r"a tensor norm\.weight, which",
        ),
        (weights(kv_heads=4), {}, r"for cross_attn\.k_proj\.bias; the target calls for"),
        (weights(), {"hidden_size": 32}, r"another target: its hidden_size is 32"),
        (weights(), {"num_attention_heads": 8}, r"its num_attention_heads is 8, the target calls"),
        (weights(), {"num_key_value_heads": 3}, r"has 3 for num_key_value_heads"),
        (weights(), {"intermediate_size": None}, r"has None for intermediate_size"),
    ],
)
def test_wrong_checkpoints_are_refused_by_key(tmp_path, tensors, changes, message):
    with pytest.raises(ModelError, match=message):
        load_glide(write(tmp_path, tensors, **changes), loaded(**SURE))


def test_keys_of_cross_attention_may_be_missing(tmp_path):
    tensors = {name: part for name, part in weights().items() if "cross_attn.k" not in name}
    assert load_glide(write(tmp_path, tensors), loaded(**SURE)).kv_heads == 2


def test_by_its_name(tmp_path):
    setting, case = tiny_setting(max_new_tokens=12), tiny_case(60)
    folder = write(tmp_path, weights())
    plain, own = find_methods(f"plain,longspec:draft={folder},depth=2,nodes=4", setting.profile)
    assert own.run(setting, case).output == plain.run(setting, case).output
    with pytest.raises(UsageError, match="write longspec:draft=FOLDER"):
        find_methods("longspec", setting.profile)
    (lost,) = find_methods(f"longspec:draft={tmp_path}/nothing", setting.profile)
    with pytest.raises(ModelError, match=r"no config\.json"):
        lost.run(setting, case)


def test_targets_with_windows_are_refused(tmp_path):
    with pytest.raises(ModelError, match="whose layers all see the whole text"):
        load_glide(write(tmp_path, weights()), loaded("mistral", sliding_window=16))
