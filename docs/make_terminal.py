"""Draw ``terminal.svg``: a terminal while specx writes the digest of the example report.

``python docs/make_terminal.py`` runs the program in a pseudo-terminal, keeps what the screen shows
when the fifth sentence is complete, and lets rich draw it. Only times, rates, and how far the next
sentence has come differ from run to run.
"""

import io
import os
import pty
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from specx.cache_folder import is_first_time

EXAMPLE = Path(__file__).with_name("example")
PICTURE = Path(__file__).with_name("terminal.svg")
COMMAND = "specx summarize report.pdf"
COLUMNS, ROWS = 100, 40
SENTENCES = 5  # of 22: enough of the digest, and the live line still below it
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_TOKEN = re.compile(r"(\x1b\[([0-9;?]*)([A-Za-z]))|([\r\n])|([^\x1b\r\n]+)")


class Screen:
    """A terminal that understands the few commands of rich's live display.

    ``rows``: its lines, with the escape sequences that colour them. Lines are not broken at the
    right edge: nothing but the live line, which fits, is ever written over.
    """

    def __init__(self) -> None:
        self.rows = [""]
        self._row = 0

    def write(self, text: str) -> None:
        """Carry out what a program wrote."""
        for sequence, argument, command, move, characters in _TOKEN.findall(text):
            if command == "A":
                self._row = max(self._row - int(argument or 1), 0)
            elif command == "J":
                self.rows[self._row :] = [""]
            elif move == "\n":
                self._row += 1
                if self._row == len(self.rows):
                    self.rows.append("")
            elif command == "m" or characters:
                self.rows[self._row] += sequence or characters


def record(command: list[str]) -> str:
    """Run a command in a pseudo-terminal of ``COLUMNS`` × ``ROWS``; return what it wrote.

    Exits with the command's own code if it fails.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.environ.pop("NO_COLOR", None)
        os.execvp(command[0], command)
    written = b""
    while piece := _read(terminal):
        written += piece
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(code)
    return written.decode()


def _read(terminal: int) -> bytes:
    """Return the next piece of output; nothing once the program has ended."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux reports the end of a pseudo-terminal as an error
        return b""


def at_work(written: str) -> list[str]:
    """Return the rows on the screen when ``SENTENCES`` sentences and a live line are there."""
    screen = Screen()
    for piece in re.split(r"(?<=\n)|(?=\x1b\[1A)|(?=\r)", written):
        screen.write(piece)
        sentences = [row for row in screen.rows if row.rstrip().endswith("]")]
        if len(sentences) == SENTENCES and "writing" in screen.rows[-1]:
            return screen.rows
    raise SystemExit("the digest was never seen with a live line")


def draw(rows: list[str]) -> str:
    """Return an SVG of a terminal that shows the command and these rows."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="256")
    console.print(Text(f"$ {COMMAND}", style="bold"))
    for row in rows:
        console.print(Text.from_ansi(row))
    picture = console.export_svg(title="specx", unique_id="specx")
    return _FONT_FACE.sub("", picture)  # fonts from the web: any monospaced one does


if __name__ == "__main__":
    is_first_time("mini")  # the hint of the first run on a machine is no part of the picture
    os.chdir(EXAMPLE)
    output = record([sys.executable, "-m", *COMMAND.split()])
    PICTURE.write_text(draw(at_work(output)), encoding="utf-8")
