"""The options of reading a document, which several commands have."""

from typing import Annotated

import typer

Pages = Annotated[str | None, typer.Option(help="Pages of a PDF, such as 1-10,15.")]
Password = Annotated[str | None, typer.Option(help="Password of a PDF; or set SPECX_PDF_PASSWORD.")]
Ocr = Annotated[
    bool, typer.Option("--ocr", help="Recognize the text of scanned pages (extra ocr).")
]
