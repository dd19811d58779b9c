"""What a person sees: a terminal that understands the few commands the live line uses."""

import io
import re

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Screen(io.StringIO):
    """A terminal without a right edge; ``rows`` are its lines."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = ""
        self.rows = [""]
        self.row = self.column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.raw += text
        for argument, command, move, characters in _TOKEN.findall(text):
            if command:
                self._command(command, int(argument) if argument.isdigit() else 1)
            elif move == "\r":
                self.column = 0
            elif move == "\n":
                self._newline()
            else:
                self._type(characters)
        return len(text)

    def _command(self, command: str, count: int) -> None:
        if command == "A":
            self.row = max(self.row - count, 0)
        elif command == "K":
            self.rows[self.row] = ""
        else:
            assert command in "mhl", command  # colours; the cursor shown or hidden

    def _newline(self) -> None:
        self.row, self.column = self.row + 1, 0  # as terminals do with "\r\n"
        if self.row == len(self.rows):
            self.rows.append("")

    def _type(self, characters: str) -> None:
        line = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = (
            line[: self.column] + characters + line[self.column + len(characters) :]
        )
        self.column += len(characters)

    @property
    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows).rstrip("\n")
