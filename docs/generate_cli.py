"""Write the second half of ``docs/cli.md``: the arguments and options of every command.

``python docs/generate_cli.py`` after a change of a command's options. The first half, down to the
marker, is written by hand. An option that several commands have is described at the first.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from specx.cli.main import COMMANDS, app, load_command

PAGE = Path(__file__).with_name("cli.md")
MARKER = "<!-- From here on: python docs/generate_cli.py -->\n"
COLUMN = 27  # where descriptions begin
WIDTH = 100


def page(current: str) -> str:
    """Return the page with the options of today, given the page as it is."""
    head, marker, _ = current.partition(MARKER)
    if not marker:
        raise SystemExit(f"{PAGE} has lost its marker: {MARKER}")
    described: dict[tuple[str, str], str] = {}
    return head + marker + "".join(_section(*command, described) for command in _commands())


def _commands() -> Iterator[tuple[str, Any]]:
    """Yield name and command, the subcommands of groups after their group."""
    yield "specx", get_command(app)
    for name in COMMANDS:
        command = load_command(name)
        yield f"specx {name}", command
        for subname, subcommand in getattr(command, "commands", {}).items():
            yield f"specx {name} {subname}", subcommand


def _section(name: str, command: Any, described: dict[tuple[str, str], str]) -> str:
    """Return the section of a command. ``described``: option to the command that explains it."""
    context = command.make_context(name, [], resilient_parsing=True)
    text = command.help.replace("\b\n", "").strip()
    lines: list[str] = []
    known: dict[str, list[str]] = {}
    panel = None
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None or "--help" in parameter.opts:
            continue
        if parameter.param_type_name == "option":
            if first := described.get(record):
                known.setdefault(first, []).append(f"`{parameter.opts[0]}`")
                continue
            described[record] = name
        title = getattr(parameter, "rich_help_panel", None)
        if title and title != panel:
            lines += ["", title]
            panel = title
        lines += _option(*record)
    block = "\n".join(lines).strip("\n")
    parts = [f"## `{name}`", text]
    if block:
        parts.append(f"```text\n{block}\n```")
    parts += [f"As for `{first}`: {', '.join(options)}." for first, options in known.items()]
    return "".join(f"\n{part}\n" for part in parts)


def _option(names: str, text: str) -> list[str]:
    """Return the lines of an argument or option."""
    text = " ".join(text.split())
    indent = " " * COLUMN
    lines = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent) or [indent]
    if len(names) < COLUMN - 1:
        return [names.ljust(COLUMN) + lines[0].lstrip(), *lines[1:]]
    return [names, *lines]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
