"""The beginning of the process: signals are watched before anything is imported that takes time."""

from specx.cli.interruption import Interruption
from specx.cores import without_collecting


def main() -> None:
    """Run the command ``specx`` and exit with its code; it never returns."""
    interruption = Interruption()
    interruption.install()
    with without_collecting():
        from specx.cli.main import main as run_and_exit

    try:
        run_and_exit(interruption=interruption)
    finally:
        interruption.ignore()  # the interpreter would let them kill what has ended well
