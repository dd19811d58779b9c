"""``specx cache``: prompts kept on disk by ``--keep``."""

import sys
from datetime import datetime

import typer

from specx.cache_folder import KeptFile, drop_oldest, kept_files, prompts_folder
from specx.cli.profiles import print_table
from specx.errors import printable
from specx.reports.progress import counted

app = typer.Typer(
    help="List and delete KV caches kept by --keep.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
COLUMNS = ("document", "model", "tokens", "bytes", "last used")


@app.command("ls")
def list_all() -> None:
    """List kept KV caches, the most recently used first.

    Columns: document, model, tokens, bytes, last used. Tab-separated if stdout is not a terminal.
    """
    files, rows = kept_files(prompts_folder())[::-1], []
    for file in files:
        told = {"document": file.path.name, "model": "-", "tokens": "-", **file.header()}
        names = (printable(str(told[key])) for key in COLUMNS[:3])
        used = datetime.fromtimestamp(file.used).isoformat(" ", "minutes")
        rows.append((*names, str(file.bytes), used))
    if not sys.stdout.isatty():
        typer.echo("".join("\t".join(row) + "\n" for row in rows), nl=False)
        return
    print_table(COLUMNS, rows)
    typer.echo(_in_words(files, "kept in"))


@app.command()
def clear() -> None:
    """Delete all kept KV caches."""
    typer.echo(_in_words(drop_oldest(prompts_folder(), -1), "deleted from"))


def _in_words(files: list[KeptFile], what: str) -> str:
    size = sum(each.bytes for each in files)
    return f"{counted(len(files), 'prompt')}, {size / 1e9:.2f} GB, {what} {prompts_folder()}"
