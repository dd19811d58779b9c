"""Draw ``docs/embedded-pair-curves.svg`` from ``docs/curves/*.jsonl``.

``python docs/plot_curves.py`` reads the lines that ``specx.training.train`` wrote (one for every
100 steps, and one for each length when a phase ended) and draws training above, held-out text
below. The same lines give the same file.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

DOCS = Path(__file__).parent
OUT = DOCS / "embedded-pair-curves.svg"
SMOOTHED = 5  # lines that a point of a training curve is the mean of: 500 steps
CHOICES_FROM = 2048  # tokens; shorter documents have hardly a section of two paragraphs
COLOURS = {"target": "#1f5fa8", "draft": "#c4601d"}
SORTS = {  # name in the curve: colour, marker
    "real": ("#1f5fa8", "o"),
    "names": ("#2e8540", "s"),
    "echoes": ("#a8325f", "P"),
    "alphabet": ("#8a5aa8", "^"),
    "variants": ("#c4601d", "D"),
    "control": ("#555555", "v"),
}
Lines = list[dict[str, Any]]


def read(role: str) -> tuple[Lines, Lines]:
    """Return a model's training lines, course after course, and the held-out ones of its last step.

    The latter are sorted by length.
    """
    lines: Lines = []
    for course in ("", "-further", "-choosing", "-choosing-again"):
        begin = lines[-1]["step"] if lines else 0
        path = DOCS / "curves" / f"{role}{course}.jsonl"
        found = map(json.loads, path.open() if path.exists() else ())
        lines += [line | {"step": begin + line["step"]} for line in found]
    training = [line for line in lines if "held_out_at" not in line]
    held_out = [
        line for line in lines if "held_out_at" in line and line["step"] == lines[-1]["step"]
    ]
    return training, sorted(held_out, key=lambda line: int(line["held_out_at"]))


def draw_training(axes: Axes, figure: str, roles: tuple[str, ...], label: str) -> None:
    """Draw one figure by step: each line of the log, pale, and a running mean."""
    for role in roles:
        colour = COLOURS[role]
        training, _ = read(role)
        training = [line for line in training if line[figure] is not None]
        steps = [line["step"] for line in training]
        values = [line[figure] for line in training]
        axes.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
        means = [sum(values[i - SMOOTHED : i]) / SMOOTHED for i in range(SMOOTHED, len(values) + 1)]
        axes.plot(steps[SMOOTHED - 1 :], means, color=colour, linewidth=1.6, label=role)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(label)
    axes.set_xlim(left=0)
    axes.legend(frameon=False, loc="lower right")


def draw_held_out(
    axes: Axes, figure: str, sorts: tuple[str, ...], label: str, shortest: int = 0
) -> None:
    """Draw one figure of the finished target by length of the document."""
    _, held_out = read("target")
    held_out = [line for line in held_out if line["held_out_at"] >= shortest]
    lengths = [line["held_out_at"] for line in held_out]
    for sort in sorts:
        colour, marker = SORTS[sort]
        values = [line[sort][figure] for line in held_out]
        axes.plot(lengths, values, color=colour, marker=marker, markersize=4, label=sort)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{length / 1024:g}K" for length in lengths])
    axes.minorticks_off()
    axes.set_xlabel("length of the document with its digest (tokens)")
    axes.set_ylabel(label)
    axes.legend(frameon=False, ncols=2)


def main() -> None:
    plt.rcParams.update(
        {
            "svg.hashsalt": "specx",  # ids of shapes would be random
            "svg.fonttype": "path",  # the same picture with any fonts
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e4e4e4",
            "axes.axisbelow": True,
            "axes.titlesize": 10,
        }
    )
    drawing, grid = plt.subplots(2, 2, figsize=(9, 6.6), layout="constrained", facecolor="white")
    gain = "gain (0: section's mean, 1: its best)"
    draw_training(grid[0, 0], "whole", ("target", "draft"), "share of sentences")
    grid[0, 0].set_title("In training: whole sentences right")
    draw_training(grid[0, 1], "gain", ("target",), gain)
    grid[0, 1].set_title("In training: choice of paragraphs")
    draw_held_out(grid[1, 0], "whole", tuple(SORTS), "share of sentences")
    grid[1, 0].set_ylim(0.93, 1.003)
    grid[1, 0].set_title("Target, held out: whole sentences right")
    draw_held_out(grid[1, 1], "gain", ("real", "names", "control"), gain, shortest=CHOICES_FROM)
    grid[1, 1].set_ylim(0, 1.03)
    grid[1, 1].set_title("Target, held out: choice of paragraphs")
    drawing.savefig(OUT, metadata={"Date": None})


if __name__ == "__main__":
    main()
