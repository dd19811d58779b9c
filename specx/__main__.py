"""``python -m specx`` is the command ``specx``."""

from specx.cli.entry import main

if __name__ == "__main__":
    main()
