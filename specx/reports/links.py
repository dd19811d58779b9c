"""Links from a page to other files, which hold as long as both keep their places."""

import os
from pathlib import Path
from urllib.parse import quote


def link(target: Path, page: Path) -> str:
    """Return the relative address of ``target`` for the HTML file ``page``.

    Names may be anything, also no UTF-8. Both are taken as they are written, because a browser
    follows ``..`` in that way, too, whatever is a symbolic link.
    """
    relative = os.path.relpath(target, page.parent)
    return quote(os.fsencode(relative))
