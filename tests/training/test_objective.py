"""The loss, the judge, the pointers and the figures."""

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specx.training.objective import Judge, Pointer, figures, gains, predict
from specx.training.pool import Pool
from specx.training.recipes import Recipe, target_recipe
from specx.training.task import CHOICE, COPY, FIRST_MARKER, Batch, DigestDataset, Mixture
from specx.training.tokenizer import NUM_MARKERS


def test_gains_of_a_section() -> None:
    """Scores 3, 2 and 1 at markers 1 to 3; then all equal, which offers nothing."""
    scores = torch.tensor([[-torch.inf, 3.0, 2.0, 1.0], [0.0, 0.0, -torch.inf, -torch.inf]])
    found = gains(scores.softmax(1))
    torch.testing.assert_close(found, torch.tensor([[0.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]]))


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


def test_the_loss_is_that_of_its_definition(pool: Pool, draft: Recipe) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(draft.config).double()
    batch = DigestDataset(pool, (1024,), 4096, range(1), seed=3)[0]
    with torch.no_grad():
        loss, guess, *_ = predict(model, batch)
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


def test_pointing_can_be_learned(pool: Pool, draft: Recipe) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(draft.config)
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
