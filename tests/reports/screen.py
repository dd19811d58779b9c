"""What a person sees: a terminal of a given size, by an emulator of one."""

import io

import pyte


class Screen(io.StringIO):
    """A terminal. ``raw``: all that was written to it; ``text``: what is on it."""

    def __init__(self, columns: int = 120, lines: int = 40) -> None:
        super().__init__()
        self.raw = ""
        self._screen = pyte.Screen(columns, lines)
        self._screen.set_mode(pyte.modes.LNM)  # as terminals do with "\r\n"
        self._stream = pyte.Stream(self._screen)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.raw += text
        self._stream.feed(text)
        return len(text)

    def resize(self, columns: int) -> None:
        """Change the width as terminals do that cut their lines."""
        self._screen.resize(columns=columns)

    def reflow(self, columns: int) -> None:
        """Change the width as terminals do that break long lines; the cursor stays at its text."""
        rows = [row.rstrip() for row in self._screen.display]
        broken, line = [], self._screen.cursor.y
        for number, row in enumerate(rows):
            if number == line:
                place = len(broken) + self._screen.cursor.x // columns
            broken += [row[i : i + columns] for i in range(0, max(len(row), 1), columns)]
        column = self._screen.cursor.x % columns
        self._screen.reset()
        self._screen.set_mode(pyte.modes.LNM)
        self._screen.resize(columns=columns)
        self._stream.feed("\n".join(broken[: self._screen.lines]))
        self._screen.cursor_position(place + 1, column + 1)

    @property
    def column(self) -> int:
        return self._screen.cursor.x

    @property
    def cursor_is_shown(self) -> bool:
        return not self._screen.cursor.hidden

    @property
    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self._screen.display).rstrip("\n")
