"""The whole way from documentation on disk to a trained model, in miniature."""

import gzip
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specx.documents.generated import generate_report
from specx.training.corpus import collect, is_prose, read_corpus
from specx.training.labels import MAX_LEAD
from specx.training.objective import Judge, Pointer, figures, gains, predict
from specx.training.pool import Pool, encode_pool
from specx.training.recipes import (
    Phase,
    Recipe,
    choosing_target_recipe,
    draft_recipe,
    further_target_recipe,
    target_recipe,
)
from specx.training.task import (
    CHOICE,
    COPY,
    FIRST_MARKER,
    LEAST_SPREAD,
    Batch,
    DigestDataset,
    Mixture,
    _body,
    _write_judged,
)
from specx.training.team import Team
from specx.training.texts import FIRST_TEXT, FULL_STOP, SORTS, Text, Texts
from specx.training.tokenizer import NUM_MARKERS, VOCABULARY, train_tokenizer
from specx.training.train import Trainer, mirror_embeddings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus file, a tokenizer and a pool, made from two documentation folders."""
    base = tmp_path_factory.mktemp("training")
    paragraphs = [p.text for p in generate_report(120_000, seed=3).paragraphs]
    half = len(paragraphs) // 2
    (base / "a").mkdir()
    html = "".join(f"<p>{text}</p><pre>code {i}</pre>" for i, text in enumerate(paragraphs[:half]))
    (base / "a" / "manual.html").write_text(f"<html><body>{html}</body></html>")
    (base / "b").mkdir()
    (base / "b" / "guide.txt.gz").write_bytes(
        gzip.compress("\n\n".join(paragraphs[half:] + paragraphs[:5]).encode())
    )
    with gzip.open(base / "corpus.jsonl.gz", "wt") as out:
        for record in collect([base / "a", base / "b"]):
            out.write(json.dumps(record) + "\n")
    texts = (text for r in read_corpus(base / "corpus.jsonl.gz") for text in r["paragraphs"])
    tokenizer = train_tokenizer(texts, base / "tokenizer", vocabulary=1600)
    assert len(tokenizer) == 1600, "pairs of text tokens need an even vocabulary"
    encode_pool(base / "corpus.jsonl.gz", tokenizer).save(base / "pool.npz")
    return base


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")


@pytest.fixture(scope="module")
def pool(folder: Path) -> Pool:
    """The pool, with its last record held out."""
    whole = Pool.load(folder / "pool.npz")
    return replace(whole, held_out=len(whole) - int(np.flatnonzero(whole.first)[-1]))


def test_the_corpus_has_prose_once_and_no_code(folder: Path) -> None:
    records = list(read_corpus(folder / "corpus.jsonl.gz"))
    texts = " ".join(text for record in records for text in record["paragraphs"])
    sentences = [p.text for p in generate_report(120_000, seed=3).paragraphs]
    assert len(records) == 2
    assert "code 1" not in texts
    assert all(texts.count(text) == 1 for text in sentences if is_prose(text))


def test_the_tokenizer_keeps_text_and_splits_digits(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "In 2011 the “Postal Union” spent 17.6 million crowns — naïvely."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert len(tokenizer("2011", add_special_tokens=False)["input_ids"]) == 4
    assert len(tokenizer) <= VOCABULARY
    assert tokenizer.convert_ids_to_tokens(FULL_STOP) == "."


def test_lead_sentences_are_prefixes_of_their_paragraphs(
    pool: Pool, tokenizer: PreTrainedTokenizerFast
) -> None:
    for index in range(0, len(pool), 7):
        lead = pool.paragraph(index)[: pool.leads[index]]
        text = tokenizer.decode(lead)
        assert text.endswith((".", "?", "!")) or len(lead) == MAX_LEAD
        assert tokenizer.decode(pool.paragraph(index)).startswith(text)


@pytest.mark.parametrize("sort", SORTS)
def test_texts_fill_their_room_with_text(pool: Pool, sort: str) -> None:
    texts = Texts(pool)
    for seed in range(8):
        text = texts.draw(sort, np.random.default_rng(seed), room=1500)
        size = sum(len(paragraph) + 1 for paragraph in text.paragraphs)
        assert 1000 < size < 2200
        assert len(text.leads) == len(text.paragraphs) <= NUM_MARKERS
        for paragraph, lead in zip(text.paragraphs, text.leads, strict=True):
            assert 1 <= lead <= min(len(paragraph), MAX_LEAD)
            assert paragraph.min() >= FIRST_TEXT
            assert paragraph.max() < len(pool.idf)


def _repeated(paragraphs: list[np.ndarray], n: int) -> float:
    """Share of the n-grams that occur more than once."""
    tokens = np.concatenate(paragraphs).tolist()
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n)]
    return 1 - len(set(grams)) / len(grams)


def test_invented_documents_repeat_themselves(pool: Pool) -> None:
    texts, rng = Texts(pool), np.random.default_rng(2)
    share = {
        sort: np.mean([_repeated(texts.draw(sort, rng, 4000).paragraphs, 3) for _ in range(6)])
        for sort in ("random", "alphabet", "phrases", "variants")
    }
    assert share["random"] < 0.01
    assert min(share["alphabet"], share["phrases"], share["variants"]) > 0.2


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_digests_copy_their_paragraphs(
    pool: Pool, tokenizer: PreTrainedTokenizerFast, sort: str, control: bool
) -> None:
    task = DigestDataset(
        pool, (512, 1024), 4096, range(4), seed=5, mixture=Mixture({sort: 1.0}, control)
    )
    request = tokenizer.convert_tokens_to_ids("<sub>" if control else "<sum>")
    copied = 0
    for batch in (task[i] for i in range(4)):
        assert batch.tokens.shape == batch.weights.shape == batch.parts.shape
        for row, parts in zip(batch.tokens, batch.parts, strict=True):
            text = row[row != tokenizer.pad_token_id].tolist()
            digest = text.index(request)
            body = ",".join(map(str, text[:digest]))
            starts = torch.nonzero(parts == CHOICE).flatten().tolist()
            markers = [text[i] for i in starts]
            assert markers == sorted(set(markers))
            for start, end in itertools.pairwise(starts):
                quote = text[start + 1 : end]
                assert all((parts[start + 1 : end] == COPY).tolist())
                quote = [token ^ 1 for token in quote] if control else quote
                sentence = ",".join(map(str, [text[start], *quote]))
                assert sentence in body, "a quoted sentence stands behind its marker"
        copies = batch.sources >= 0
        assert torch.equal(copies, batch.parts == COPY)
        read = batch.tokens.gather(1, batch.sources.clamp(min=0))
        assert torch.equal(read[copies] ^ control, batch.tokens[copies])
        copied += int((batch.parts == COPY).sum())
    assert copied > 400


def _commonest(leads: list[np.ndarray], n: int) -> float:
    """Share of the leads that have the n-gram which most of them have."""
    counts = Counter(
        gram
        for tokens in (lead.tolist() for lead in leads)
        for gram in {tuple(tokens[i : i + n]) for i in range(len(tokens) - n)}
    )
    return counts.most_common(1)[0][1] / len(leads)


def test_echoes_return_in_other_leads(pool: Pool) -> None:
    texts = Texts(pool)
    share = {}
    for sort in ("real", "echoes"):
        drawn = [texts.draw(sort, np.random.default_rng(seed), 4000) for seed in range(12)]
        leads = [[p[:n] for p, n in zip(t.paragraphs, t.leads, strict=True)] for t in drawn]
        share[sort] = np.mean([_commonest(each, 4) for each in leads])
    assert share["echoes"] > 1.4 * share["real"]


def test_choices_are_taught_by_distributions_over_their_sections(pool: Pool) -> None:
    batch = DigestDataset(pool, (4096,), 16384, range(1), 0, Mixture({"real": 1.0}, control=0))[0]
    chosen = batch.tokens[batch.parts == CHOICE] - FIRST_MARKER
    assert batch.targets.shape == (len(chosen), NUM_MARKERS)
    torch.testing.assert_close(batch.targets.sum(1), torch.ones(len(chosen)))
    # What was chosen is the best of its section, and not the only one that counts.
    best = batch.targets.max(1).values
    torch.testing.assert_close(batch.targets.gather(1, chosen[:, None])[:, 0], best)
    assert (best < 0.99).any()


def test_gains_of_a_section() -> None:
    """Scores 3, 2 and 1 at markers 1 to 3; then all equal, which offers nothing."""
    scores = torch.tensor([[-torch.inf, 3.0, 2.0, 1.0], [0.0, 0.0, -torch.inf, -torch.inf]])
    found = gains(scores.softmax(1))
    torch.testing.assert_close(found, torch.tensor([[0.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]]))


def test_few_tokens_of_the_document_are_predicted_and_none_where_they_mean_nothing(
    pool: Pool,
) -> None:
    for sort, share in (("real", 0.2), ("alphabet", 0.0)):
        mixture = Mixture({sort: 1.0}, control=0, predicted=0.2)
        batch = DigestDataset(pool, (1024,), 8192, range(1), 0, mixture)[0]
        document = batch.parts == 1
        counted = (batch.weights[document] > 0).float().mean()
        assert abs(float(counted) - share) < 0.03


def test_every_token_of_natural_documents_is_judged(pool: Pool) -> None:
    batch = DigestDataset(pool, (4096,), 8192, range(1), 0, Mixture({"real": 1.0}, control=0))[0]
    row = 0
    tokens, scores, worths = batch.tokens[row], batch.scores[row], batch.worths[row]
    document = batch.parts[row] == 1
    text = document & (tokens >= FIRST_TEXT)
    assert torch.equal(~worths.isnan(), text)
    torch.testing.assert_close(float(worths[text].mean()), 0.0, atol=1e-4, rtol=0)
    assert worths[text & (tokens == tokens[text][0])].std() < 1e-6  # one worth for each token
    # Markers have the score of the paragraph before, so the first has none.
    markers = document & ~text
    (places,) = markers.nonzero(as_tuple=True)
    assert torch.equal(~scores.isnan(), document & (torch.arange(len(tokens)) > places[0]))
    assert torch.equal(scores[places[1:]], scores[places[1:] - 1])
    # The best of a section is chosen.
    behind = scores[places[1:]]
    chosen = tokens[batch.parts[row] == CHOICE] - tokens[0]
    assert behind[chosen[chosen < len(behind)]].mean() > behind.mean() + 0.5


@pytest.mark.parametrize("count", [1, 2])
def test_scores_stay_bounded_where_paragraphs_do_not_differ(count: int, pool: Pool) -> None:
    """Nothing spreads the scores of one paragraph, or of two alike, but their leads begin low."""
    paragraph = pool.paragraph(int(np.diff(pool.starts).argmax())).astype(np.int64)
    text = Text([paragraph] * count, [len(paragraph)] * count, natural=True)
    body = _body(text, first=0)
    _write_judged(body, text, pool.idf)
    found = body.scores[~np.isnan(body.scores)]
    assert len(found) == len(body.ids) - 1
    assert found.min() < -1
    assert np.abs(found).max() <= 1 / LEAST_SPREAD


def test_nothing_is_judged_where_the_text_means_nothing(pool: Pool) -> None:
    batch = DigestDataset(pool, (1024,), 4096, range(1), 0, Mixture({"random": 1.0}))[0]
    assert batch.worths.isnan().all()
    assert batch.scores.isnan().all()


def test_the_judge_is_right_where_the_hidden_states_say_it(pool: Pool) -> None:
    """Worth in dimension 1 behind layer 1, scores in dimension 2 behind layer 2."""
    batch = DigestDataset(pool, (512,), 1024, range(1), 0, Mixture({"real": 1.0}))[0]
    judge = Judge(64, (1, 2))
    states = [torch.zeros(*batch.tokens.shape, 64) for _ in range(3)]
    for layer, (read, wanted) in enumerate(
        ((judge.worth, batch.worths), (judge.score, batch.scores)), start=1
    ):
        with torch.no_grad():
            read.weight.zero_()
            read.bias.zero_()
            read.weight[0, layer] = 4.0
        # An RMS of one: the rest of the square is put into the last dimension.
        value = wanted.nan_to_num() / 4
        states[layer][..., layer] = value
        states[layer][..., 63] = (64 - value.square()).sqrt()
    errors = judge(tuple(states), batch)
    torch.testing.assert_close(errors, torch.zeros(2), atol=1e-4, rtol=0)
    errors.sum().backward()  # what is not asked for is NaN there, and must not get into gradients
    assert all(p.grad is not None and p.grad.isfinite().all() for p in judge.parameters())
    nothing = batch._replace(worths=batch.worths * torch.nan, scores=batch.scores * torch.nan)
    assert judge(tuple(states), nothing).tolist() == [0, 0]
    states[1][..., 1] = 0
    assert judge(tuple(states), batch)[0] > 0.5
    assert judge(tuple(states), batch)[1] < 1e-4


def test_a_batch_depends_on_seed_and_index_alone(pool: Pool) -> None:
    def batch(seed: int, index: int) -> torch.Tensor:
        return DigestDataset(pool, (256, 512), tokens=2048, steps=range(9), seed=seed)[index].tokens

    assert torch.equal(batch(1, 3), batch(1, 3))
    assert not torch.equal(batch(1, 3)[:, :200], batch(2, 3)[:, :200])
    assert not torch.equal(batch(1, 3)[:, :200], batch(1, 4)[:, :200])


def test_a_team_divides_a_step(pool: Pool) -> None:
    """Documents of one length, as many as one process would draw, and all of them different."""

    def batches(size: int) -> list[torch.Tensor]:
        return [
            DigestDataset(pool, (256, 512), 8192, range(3), 1, team=Team(rank, size))[2].tokens
            for rank in range(size)
        ]

    (alone,), parts = batches(1), batches(4)
    assert torch.cat(parts).shape == alone.shape
    assert len(torch.cat(parts).unique(dim=0)) == len(alone)


def _recipe(tokenizer: PreTrainedTokenizerFast) -> Recipe:
    recipe = draft_recipe(tokenizer)
    phases = (Phase((128,), 2, tokens=1024), Phase((128, 256), 2, tokens=1024))
    return replace(recipe, phases=phases, warmup=1, judged_layers=(1, 2))


def test_training_learns_saves_and_resumes(
    pool: Pool, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    cpu = torch.device("cpu")
    whole = Trainer(_recipe(tokenizer), pool, tmp_path / "whole", cpu, seed=1)
    whole.run()
    # The same run, interrupted after its first step.
    first = Trainer(_recipe(tokenizer), pool, tmp_path / "halves", cpu, seed=1)
    first.run(minutes=0)
    assert first.step == 1
    second = Trainer(_recipe(tokenizer), pool, tmp_path / "halves", cpu, seed=99)
    second.seed = 1
    second.resume()
    second.run()
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[name], value)
    curve = [json.loads(line) for line in (tmp_path / "whole" / "curve.jsonl").open()]
    losses = [line["loss"] for line in curve if "loss" in line]
    assert losses[-1] < losses[0]
    saved = LlamaForCausalLM.from_pretrained(tmp_path / "whole" / "model")
    assert saved.config.vocab_size == len(tokenizer)


def test_two_processes_train_one_model(folder: Path, tmp_path: Path) -> None:
    """Both draw their own documents; what is saved is the leader's, and the others have it too."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(Path(__file__).parent / "team_of_two.py")]
    command += [str(folder), str(tmp_path)]
    subprocess.run(command, check=True, timeout=240, env=os.environ | {"OMP_NUM_THREADS": "1"})
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    saved = torch.load(tmp_path / "out" / "checkpoint.pt", weights_only=True)["model"]
    assert first["step"] == second["step"] == 4
    assert first["drawn"] != second["drawn"]
    for name, value in first["model"].items():
        assert torch.equal(value, second["model"][name])
        assert torch.equal(value, saved[name])


def test_recipes_are_the_shipped_shapes(tokenizer: PreTrainedTokenizerFast) -> None:
    target, draft = target_recipe(tokenizer), draft_recipe(tokenizer)
    assert max(max(p.lengths) for p in target.phases) == target.config.max_position_embeddings
    for further in (further_target_recipe, choosing_target_recipe):
        assert further(tokenizer).config.to_dict() == target.config.to_dict()
    assert max(max(p.lengths) for p in draft.phases) == 1024
    assert target.shortened(0.001).phases[0].steps == 1


def test_mirrored_embeddings_differ_by_the_sign_of_a_half() -> None:
    weight = torch.randn(FIRST_TEXT + 6, 8)
    special = weight[:FIRST_TEXT].clone()
    mirror_embeddings(weight)
    assert torch.equal(weight[:FIRST_TEXT], special)
    text = weight[FIRST_TEXT:]
    assert torch.equal(text[1::2, :4], text[::2, :4])
    assert torch.equal(text[1::2, 4:], -text[::2, 4:])


def test_figures_count_tokens_sentences_and_choices() -> None:
    parts = torch.tensor([[1, CHOICE, COPY, COPY, CHOICE, COPY], [1, CHOICE, COPY, COPY, 0, 0]])
    right = torch.tensor([[1, 1, 1, 0, 0, 1], [1, 1, 1, 1, 0, 0]]).bool()
    tokens = torch.full((2, 6), FIRST_MARKER + 1)
    guess = torch.where(right, tokens, tokens + 1)
    # Scores 2, 1 and 0 in a section of three: what is taken for the best is the middle one.
    targets = torch.zeros(3, NUM_MARKERS)
    targets[:, 1:4] = torch.tensor([2.0, 1.0, 0.0]).softmax(0)
    nowhere, none = torch.full((2, 6), -1), torch.zeros(2, 6)
    batch = Batch(tokens, torch.ones(2, 6), parts.to(torch.int8), nowhere, none, none, targets)
    expected = {"copied": 0.8, "whole": 0.6667, "choice": 0.6667, "gain": 0.6667}
    assert figures(batch, guess) == expected
    batch.targets[:] = 1 / NUM_MARKERS  # nothing to choose
    assert figures(batch, guess)["gain"] is None


@pytest.mark.parametrize("rewarded", [0.0, 3.0])
def test_the_loss_is_that_of_its_definition(
    rewarded: float, pool: Pool, tokenizer: PreTrainedTokenizerFast
) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(draft_recipe(tokenizer).config).double()
    batch = DigestDataset(pool, (1024,), 4096, range(1), seed=3)[0]
    assert (gains(batch.targets) > 0).any()
    with torch.no_grad():
        loss, guess, *_ = predict(model, batch, rewarded=rewarded)
    logprobs = model(input_ids=batch.tokens).logits.detach().float().log_softmax(-1)
    total = weight = 0.0
    choices = iter(batch.targets)
    for row in range(len(batch.tokens)):
        for at in range(1, batch.tokens.shape[1]):
            each = float(batch.weights[row, at])
            found = logprobs[row, at - 1]
            target = next(choices) if batch.parts[row, at] == CHOICE else None
            if not each:
                continue
            if target is None:
                term = -found[batch.tokens[row, at]]
            else:
                markers = found[FIRST_MARKER : FIRST_MARKER + NUM_MARKERS]
                term = -(target * markers).sum()
                term -= rewarded * (gains(target[None])[0] * markers.exp()).sum()
            total, weight = total + each * float(term), weight + each
            assert guess[row, at] == found.argmax()
    assert float(loss) == pytest.approx(total / weight, rel=1e-5)


def test_pointers_measure_the_attention_on_the_source(
    pool: Pool, tokenizer: PreTrainedTokenizerFast
) -> None:
    """All copies of a batch of short documents, against the attention that transformers reports."""
    torch.manual_seed(0)
    config = target_recipe(tokenizer).config
    config.num_hidden_layers = 3
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager")
    batch = DigestDataset(pool, (256,), 1024, range(1), seed=3)[0]
    assert int((batch.sources >= 0).sum(1).max()) <= 256, "a pointer looks at all copies"
    with torch.no_grad():
        outputs = model(input_ids=batch.tokens, output_attentions=True, output_hidden_states=True)
        for layer, kv_head in ((1, 0), (2, 1)):
            pointer = Pointer(layer, kv_head)
            error = pointer.error(model, outputs.hidden_states, batch.sources)
            groups = config.num_attention_heads // config.num_key_value_heads
            heads = outputs.attentions[layer][:, kv_head * groups : (kv_head + 1) * groups]
            document, at = torch.nonzero(batch.sources >= 0, as_tuple=True)
            share = heads[document, :, at - 1, batch.sources[document, at]]
            torch.testing.assert_close(error, -share.log().mean(), rtol=1e-5, atol=1e-5)


def test_pointing_can_be_learned(pool: Pool, tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(draft_recipe(tokenizer).config)
    batch = DigestDataset(pool, (128,), 1024, range(1), seed=8)[0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    errors = []
    for _ in range(20):
        made = predict(model, batch, pointers=(Pointer(layer=1, kv_head=2),))
        assert made.pointing_error is not None
        made.pointing_error.backward()
        errors.append(made.pointing_error.item())
        optimizer.step()
        optimizer.zero_grad()
    assert errors[-1] < 0.5 * errors[0]


def test_training_starts_from_other_weights(
    pool: Pool, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    cpu = torch.device("cpu")
    one = Trainer(_recipe(tokenizer), pool, tmp_path / "one", cpu, seed=1)
    one.save()
    other = Trainer(_recipe(tokenizer), pool, tmp_path / "other", cpu, seed=2)
    other.start_from(tmp_path / "one" / "model")
    for name, value in one.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], value.bfloat16().float())
