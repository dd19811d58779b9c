"""The beginning of the process: signals are watched before anything is imported that takes time."""

from typing import NoReturn

from specx.cli.interruption import Interruption


def main() -> NoReturn:
    """Run the command ``specx`` and exit with its code."""
    interruption = Interruption()
    interruption.install()
    from specx.cli.main import main as run_and_exit

    run_and_exit(interruption=interruption)
