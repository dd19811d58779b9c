"""The training objective: the loss, and figures for copying and choosing."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from specx.training.task import CHOICE, COPY, FIRST_MARKER, Batch

LOOKED_AT = 256  # copies of a document whose attention is taught: each is a row of scores
EQUAL = 1e-3  # sections whose scores differ by less offer nothing to choose


class Judge(nn.Module):
    """Predicts each token's worth from the output of ``layers[0]``, lead scores from ``layers[1]``.

    It is not part of the model. There are too few paragraph choices to teach quickly which
    paragraphs are good; the judge teaches the lower layers at every token.
    """

    def __init__(self, hidden: int, layers: tuple[int, int]) -> None:
        super().__init__()
        self.layers = layers
        self.worth = nn.Linear(hidden, 1)
        self.score = nn.Linear(hidden, 1)

    def forward(self, hidden_states: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """Return the mean squared errors of ``batch.worths`` and ``batch.scores``: [2]."""
        answers = ((self.worth, batch.worths), (self.score, batch.scores))
        errors = []
        for layer, (read, wanted) in zip(self.layers, answers, strict=True):
            states = nn.functional.rms_norm(hidden_states[layer], (read.in_features,))
            known = ~wanted.isnan()
            error = torch.where(known, read(states)[..., 0].float() - wanted, 0.0)
            errors.append(error.square().sum() / known.sum().clamp(min=1))
        return torch.stack(errors)


class Pointer(NamedTuple):
    """Teaches key head ``kv_head`` of ``layer`` to attend to the source of the next copied token.

    The latest words alone do not show the source if they occur twice.
    """

    layer: int
    kv_head: int

    def error(
        self, model: LlamaForCausalLM, hidden_states: tuple[Tensor, ...], sources: Tensor
    ) -> Tensor:
        """Return the mean of −log of the attention on the source.

        The mean is over heads and up to ``LOOKED_AT`` random copies of each document. hidden_states
        [B, L, d] of all layers; sources int64 [B, L].
        """
        layer = model.model.layers[self.layer]
        attention, states = layer.self_attn, layer.input_layernorm(hidden_states[self.layer])
        count, length, _ = states.shape
        places = torch.arange(length, device=states.device)
        # Random order among the copies, everything else behind them.
        order = torch.where(sources >= 0, torch.rand_like(sources, dtype=torch.float32), -1.0)
        order[:, 0] = -1.0
        drawn, copies = order.topk(min(LOOKED_AT, length), dim=1)
        asking = copies - (drawn >= 0).long()  # the token before looks for what comes next
        dim, groups = attention.head_dim, attention.num_key_value_groups
        rows = slice(self.kv_head * groups * dim, (self.kv_head + 1) * groups * dim)
        key_rows = slice(self.kv_head * dim, (self.kv_head + 1) * dim)
        queries = nn.functional.linear(
            states.gather(1, asking[..., None].expand(-1, -1, states.shape[2])),
            attention.q_proj.weight[rows],
        )
        keys = nn.functional.linear(states, attention.k_proj.weight[key_rows])
        cos, sin = model.model.rotary_emb(states, places[None])
        keys, _ = apply_rotary_pos_emb(keys[:, None], keys[:, None], cos, sin)
        queries = queries.view(count, -1, groups, dim).transpose(1, 2)
        queries = apply_rotary_pos_emb(queries, queries, cos[0][asking], sin[0][asking])[0]
        scores = (queries @ keys.transpose(2, 3)).float() * attention.scaling
        scores = scores.masked_fill(places > asking[:, None, :, None], -torch.inf)
        source = sources.gather(1, copies).clamp(min=0)[:, None, :, None].expand(-1, groups, -1, 1)
        missed = scores.logsumexp(-1) - scores.gather(3, source)[..., 0]
        known = (drawn >= 0)[:, None].expand_as(missed)
        return missed.where(known, 0.0).sum() / known.sum().clamp(min=1)


class Predictions(NamedTuple):
    """The results of a batch: the loss and the predicted tokens.

    ``loss``: the weighted mean loss. ``guess`` int64 [B, L]: the most likely tokens, −1 where
    nothing is to be predicted. ``judge_errors`` [2]: the judge's errors in worths and in scores.
    ``pointing_error``: the pointers' mean error.
    """

    loss: Tensor
    guess: Tensor
    judge_errors: Tensor | None = None
    pointing_error: Tensor | None = None


def predict(
    model: LlamaForCausalLM,
    batch: Batch,
    judge: Judge | None = None,
    pointers: tuple[Pointer, ...] = (),
) -> Predictions:
    """Run a batch; return its loss, and predictions of tokens whose weight is not 0."""
    looks_inside = judge is not None or bool(pointers)
    outputs = model.model(
        input_ids=batch.tokens, use_cache=False, output_hidden_states=looks_inside
    )
    counted = batch.weights > 0
    counted[:, 0] = False
    goal, weights = batch.tokens[counted], batch.weights[counted]
    logits = model.lm_head(outputs.last_hidden_state[:, :-1][counted[:, 1:]])
    losses = nn.functional.cross_entropy(logits.float(), goal, reduction="none")
    # Choices that count have targets of their own.
    choices = (batch.parts == CHOICE)[counted]
    targets = batch.targets[batch.weights[batch.parts == CHOICE] > 0]
    markers = logits[choices].float().log_softmax(-1)
    markers = markers[:, FIRST_MARKER : FIRST_MARKER + targets.shape[1]]
    losses[choices] = -(targets * markers).sum(-1)
    guess = torch.full_like(batch.tokens, -1)
    guess[counted] = logits.argmax(-1)
    loss = (losses * weights).sum() / weights.sum()
    inside = outputs.hidden_states
    with torch.autocast(batch.tokens.device.type, enabled=False):  # rounded scores teach little
        errors = [pointer.error(model, inside, batch.sources) for pointer in pointers]
    return Predictions(
        loss,
        guess,
        judge(inside, batch) if judge else None,
        torch.stack(errors).mean() if errors else None,
    )


def figures(batch: Batch, guess: Tensor) -> dict[str, float | None]:
    """Return the accuracy of ``copied`` tokens, ``whole`` sentences and ``choice``, and ``gain``.

    ``gain``: 0 if the chosen score is the mean of its section, 1 if it is the best. Figures without
    data are None.
    """
    counted, marker = batch.weights > 0, batch.parts == CHOICE
    right = guess == batch.tokens
    copied = (batch.parts == COPY) & counted
    sentence = marker.flatten().cumsum(0)  # numbers the sentences of the whole batch
    wrong = torch.zeros(int(sentence[-1]) + 1, device=right.device)
    size = torch.zeros_like(wrong)
    wrong.index_add_(0, sentence, (copied & ~right).flatten().float())
    size.index_add_(0, sentence, copied.flatten().float())
    return {
        "copied": _mean(right[copied], 5),
        "whole": _mean(wrong[size > 0] == 0),
        "choice": _mean(right[marker & counted]),
        "gain": _mean(_gained(batch.targets, guess[marker] - FIRST_MARKER)),
    }


def _mean(values: Tensor, digits: int = 4) -> float | None:
    return round(float(values.float().mean()), digits) if len(values) else None


def gains(targets: Tensor) -> Tensor:
    """Return the gain of choosing each marker, for ``targets`` [M, markers]: [M, markers].

    The gain is 1 for the best marker of a section and 0 for the section's mean. It is also 0 for
    markers of other sections, and if all scores are equal.
    """
    inside = targets > 0
    scores = targets.clamp(min=1e-30).log()  # up to a factor and a constant
    best = scores.amax(1, keepdim=True)
    mean = scores.where(inside, 0.0).sum(1, keepdim=True) / inside.sum(1, keepdim=True)
    spread = best - mean
    return ((scores - mean) / spread).where(inside & (spread > EQUAL), 0.0)


def _gained(targets: Tensor, chosen: Tensor) -> Tensor:
    """Return the gain of each choice among several paragraphs: at most [M]."""
    found = gains(targets)
    at = chosen.clamp(0, targets.shape[1] - 1)[:, None]
    made = found.gather(1, at)[:, 0].where(chosen >= 0, 0.0)
    return made[found.amax(1) > 0]
