"""Write the second half of ``docs/cli.md``: the help text of every command, as users see it.

``python docs/generate_cli.py`` after a change of a command's options. The first half, down to the
marker, is written by hand.
"""

from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from specx.cli.main import COMMANDS, app, load_command

PAGE = Path(__file__).with_name("cli.md")
MARKER = "<!-- From here on: python docs/generate_cli.py -->\n"
WIDTH = "80"  # columns of the help texts, whatever the terminal has


def page(current: str) -> str:
    """Return the page with the help texts of today, given the page as it is."""
    head, marker, _ = current.partition(MARKER)
    if not marker:
        raise SystemExit(f"{PAGE} has lost its marker: {MARKER}")
    return head + marker + "".join(_section(command) for command in _commands())


def _section(command: list[str]) -> str:
    return f"\n## `{' '.join(['specx', *command])}`\n\n```text\n{_help(command)}\n```\n"


def _commands() -> Iterator[list[str]]:
    """Yield every command, the subcommands of groups after their group."""
    yield []
    for name in COMMANDS:
        yield [name]
        for subcommand in getattr(load_command(name), "commands", {}):
            yield [name, subcommand]


def _help(command: list[str]) -> str:
    settings = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1"}
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="specx", env=settings)
    if result.exit_code != 0:
        raise SystemExit(f"specx {' '.join(command)} --help fails: {result.exception!r}")
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
