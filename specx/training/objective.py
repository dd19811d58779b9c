"""What training asks of a model: the loss, and figures of how well it copies and chooses."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from specx.training.task import CHOICE, COPY, FIRST_MARKER, Batch


class Judge(nn.Module):
    """Learns a paragraph's score from the target's hidden states behind it; not part of the model.

    The choice of a few paragraphs out of hundreds teaches slowly what makes a good one. The judge
    asks it of every paragraph, and so brings the knowledge into the lower ``layers`` of the model,
    where the choice finds it.
    """

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.score = nn.Linear(hidden, 1)

    def forward(self, hidden_states: tuple[Tensor, ...], scores: Tensor) -> Tensor:
        """Mean squared error of ``scores`` [B, L], NaN where there is none."""
        known = ~scores.isnan()
        states = nn.functional.rms_norm(
            hidden_states[self.layers][known], (self.score.in_features,)
        )
        errors: Tensor = (self.score(states).float()[:, 0] - scores[known]).square()
        return errors.sum() / known.sum().clamp(min=1)


class Predictions(NamedTuple):
    """``loss``: the weighted mean; ``guess`` int64 [B, L]: the likeliest token, −1 where none was
    asked for; ``score_error``: mean squared error of the paragraphs' scores, None without a judge.
    """

    loss: Tensor
    guess: Tensor
    score_error: Tensor | None


def predict(model: LlamaForCausalLM, batch: Batch, judge: Judge | None = None) -> Predictions:
    """Run a batch. Tokens of weight 0 are not predicted, which saves most of the logits."""
    outputs = model.model(
        input_ids=batch.tokens, use_cache=False, output_hidden_states=judge is not None
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
    error = judge(outputs.hidden_states, batch.scores) if judge else None
    return Predictions(loss, guess, error)


def figures(batch: Batch, guess: Tensor) -> dict[str, float | None]:
    """What was predicted right, as shares; None where nothing was asked.

    ``copied`` tokens; ``whole`` sentences; ``choice`` of the best paragraph; ``gain``: how far the
    score of the chosen paragraph lies between its section's mean (0) and its best (1).
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
        "gain": _mean(_gains(batch.targets, guess[marker] - FIRST_MARKER)),
    }


def _mean(values: Tensor, digits: int = 4) -> float | None:
    return round(float(values.float().mean()), digits) if len(values) else None


def _gains(targets: Tensor, chosen: Tensor) -> Tensor:
    """The gain of each choice where there is something to choose: ``targets`` [M, markers]."""
    inside = targets > 0
    scores = targets.clamp(min=1e-30).log()  # up to a factor and a constant
    best = scores.amax(1)
    mean = scores.where(inside, scores.new_zeros(())).sum(1) / inside.sum(1)
    at = chosen.clamp(0, targets.shape[1] - 1)[:, None]
    known = inside.gather(1, at)[:, 0] & (chosen >= 0)
    gained = (scores.gather(1, at)[:, 0] - mean).where(known, mean.new_zeros(()))
    open_ = best - mean > 1e-3
    return (gained / (best - mean))[open_]
