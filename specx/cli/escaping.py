"""Characters that stdout cannot show, such as a dash where only ASCII is allowed."""

import codecs
import io
import sys


class Escaping:
    """Writes ``\\u2013`` in place of such characters, as JSON does, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def install(self) -> None:
        """Begin with stdout, unless whoever started specx has chosen how to replace characters."""
        stream = sys.stdout
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            codecs.register_error("specx.escape", self._escape)
            stream.reconfigure(errors="specx.escape")

    def warning(self) -> str:
        """Say what was replaced; nothing if all could be shown."""
        if not self.count:
            return ""
        what = "1 character" if self.count == 1 else f"{self.count:,} characters"
        return (
            f"stdout is {sys.stdout.encoding} and cannot show {what}, written as \\uXXXX; set "
            "PYTHONIOENCODING=utf-8, or write a file with --out"
        )

    def _escape(self, error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
        self.count += error.end - error.start
        escaped = (f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
        return "".join(escaped), error.end
