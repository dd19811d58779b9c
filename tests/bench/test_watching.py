"""What heads attended to is what transformers' own attention says."""

import pytest
import torch

from specx.bench.prefill import read_beginning
from specx.bench.watching import chunk_means, looks
from tests.decoding.pairs import loaded, make_prompt, pair_of
from tests.tiny import make_model

PROMPT, OUTPUT = make_prompt(50), make_prompt(80, seed=1)  # more than one block of rows
CHUNK = 16


@pytest.mark.parametrize("layer", [0, 1])
def test_all_heads_of_all_tokens(layer: int) -> None:
    pair = pair_of(loaded())
    read = read_beginning(pair, PROMPT)
    seen = list(looks(pair.target, read, [PROMPT[-1], *OUTPUT], layer, CHUNK))
    model = make_model()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        text = torch.tensor([[*PROMPT, *OUTPUT]])
        attended = model(text, output_attentions=True).attentions[layer][0]
    assert [look.place for look in seen] == list(range(len(OUTPUT)))
    for look in seen:
        row = len(PROMPT) + look.place
        chunks = attended[:, row, : row + 1].split(CHUNK, dim=1)
        expected = torch.stack([chunk.mean(1) for chunk in chunks], dim=1)
        torch.testing.assert_close(look.scores, expected, atol=1e-5, rtol=1e-3)


def test_the_last_chunk_may_be_short() -> None:
    row = torch.tensor([[1.0, 3.0, 5.0, 7.0, 8.0]])
    assert chunk_means(row, 2).tolist() == [[2.0, 6.0, 8.0]]
    assert chunk_means(row[:, :4], 2).tolist() == [[2.0, 6.0]]
