"""Options that several commands have, and the profile that those of a command ask for."""

import re
from pathlib import Path
from typing import Annotated

import typer

from specx.errors import ProfileError, UsageError
from specx.profile import DEFAULT, FEWEST_SENTENCES, MOST_SENTENCES, DigestPrompt, Profile

ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", help=f"Name of a profile, or a YAML file. Without it: {DEFAULT}."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="ID|FOLDER",
        help="Summarize with this model: a hub id, or a folder in the hub's layout. No profile is "
        "needed; one that is named gives all other settings.",
    ),
]
Draft = Annotated[
    str | None,
    typer.Option(
        metavar="ID|FOLDER",
        help="Draft with this small model of the same family, or with an EAGLE head.",
    ),
]

Pages = Annotated[str | None, typer.Option(help="Pages of a PDF, such as 1-10,15.")]
Password = Annotated[str | None, typer.Option(help="Password of a PDF; or set SPECX_PDF_PASSWORD.")]
Ocr = Annotated[
    bool, typer.Option("--ocr", help="Recognize the text of scanned pages (extra ocr).")
]

_OPTIONS = {
    "generation": r"\w+",
    "prompt": "words|style|language|instruction|sentences|think|on_loop",
}
_KEY = re.compile("|".join(f"`{section}\\.({keys})`" for section, keys in _OPTIONS.items()))


def changed_profile(
    profile: Profile,
    prompt: dict[str, object],
    generation: dict[str, object],
    *,
    parts: bool,
    fallback: bool,
    sources: bool,
) -> Profile:
    """Return the profile with the settings of the command line. Raises UsageError for bad ones.

    ``prompt``, ``generation``: keys of these sections of a profile; None: as the profile says. An
    ``instruction`` is a text, or ``@`` and the name of a file with one.
    """
    asked = {name: value for name, value in prompt.items() if value is not None}
    chosen = {name: value for name, value in generation.items() if value is not None}
    changed = _prompt(profile, asked)
    words = changed.get("words", getattr(profile.prompt, "words", None))
    if words is not None and not asked.keys().isdisjoint(("words", "language")):
        # The limit of the profile is that of its own words, in its own language.
        chosen = {"max_new_tokens": None, **chosen}
    changes: dict[str, object] = {"generation": chosen, "prompt": changed}
    if parts:
        changes["long_documents"] = "separate"
    if not fallback:
        changes["fallback"] = {"below": None}
    if not sources:
        changes["sources"] = False
    try:
        return profile.changed(**changes)
    except ProfileError as error:
        raise UsageError(_in_options("; ".join(str(error).splitlines()))) from error


def _prompt(profile: Profile, asked: dict[str, object]) -> dict[str, object]:
    """Return the keys of the profile's prompt that change."""
    sentences, instruction = asked.get("sentences"), asked.get("instruction")
    if isinstance(sentences, int):
        _check_sentences(sentences)
    if isinstance(profile.prompt, DigestPrompt):
        _refuse_for_digest(profile, asked)
    elif sentences is not None:
        raise UsageError(
            f"--sentences is for digests, and the prompt of the profile {profile.name} is of the "
            "kind instruct; --words says how long the summary is to be"
        )
    if isinstance(instruction, str):  # it replaces what the profile asks for
        return {"words": None, "style": None, **asked, "instruction": _text(instruction)}
    return asked


def _check_sentences(sentences: int) -> None:
    """Raise UsageError for a number that no digest has."""
    if not FEWEST_SENTENCES <= sentences <= MOST_SENTENCES:
        raise UsageError(
            f"--sentences is {sentences}; it must be from {FEWEST_SENTENCES} to {MOST_SENTENCES}"
        )


def _refuse_for_digest(profile: Profile, asked: dict[str, object]) -> None:
    """Raise UsageError for a wish that a model which copies sentences cannot fulfil."""
    copies = f"the model of the profile {profile.name} copies the document's own sentences"
    choose = "choose a profile of the kind instruct: specx profiles ls"
    for name in asked:
        if name == "words":
            raise UsageError(f"{copies}, whole ones; --sentences says how many, not --words")
        if name == "language":
            raise UsageError(f"{copies}, so it writes no other language; for --language {choose}")
        if name == "think":
            raise UsageError(f"{copies}, and reasons about nothing; for --think {choose}")
        if name == "on_loop":
            raise UsageError(f"{copies}, so it does not repeat itself; for --on-loop {choose}")
        if name in ("style", "instruction"):
            raise UsageError(f"{copies}, so nothing else can be asked of it; for --{name} {choose}")


def _text(instruction: str) -> str:
    """Return the instruction, read from its file if it names one."""
    text = instruction
    if instruction.startswith("@"):
        path = Path(instruction[1:]).expanduser()
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise UsageError(
                f"cannot read the instruction {path}: {error.strerror or error}"
            ) from error
        except UnicodeDecodeError as error:
            raise UsageError(f"the instruction {path} is not UTF-8 text") from error
    if not text.strip():
        raise UsageError(f"--instruction {instruction!r} has no text")
    return text.strip()


def _in_options(sentence: str) -> str:
    """Name options in place of the profile's keys that they set."""
    return _KEY.sub(lambda key: "--" + (key[1] or key[2]).replace("_", "-"), sentence)
