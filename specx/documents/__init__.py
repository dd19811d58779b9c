"""Reading: from a path or stdin to a :class:`Document` of pages and paragraphs.

A PDF goes through these stages, in this order::

    read         choose the reader by content and name, check the options
    pdf          pages -> document, with warnings about those that could not be read
    pdf_reading  start child processes under limits, turn their failures into errors
    pdf_worker   (in the child) open the file and answer with the lines of its pages
      pdf_by_pdfium  text objects in their places, and pdf_rows: which of them make a row
      pdf_objects    which of them a reader of the page sees
      pdf_by_pypdf   what is typed onto pages, and what else PDFium does not tell
      pdf_amended    a page without layers that are off, and with its ligatures
    lines        (in the child) rows -> printed lines, with place, size and face
    text         ligatures, odd spaces and control characters -> plain characters
    text_layer   tell pages whose letters are not those printed, and stamped pictures
    furniture    set running headers, footers and page numbers apart
    contents     mark the entries of tables of contents and indexes
    layout       lines of a page -> blocks: paragraphs, headings, items, tables, code
    footnotes    tell the blocks at the foot of a page that are footnotes
    hyphenation  join the lines of a block, rejoin words and addresses divided at line ends
    paragraphs   blocks -> paragraphs of the document, across page borders
    sections     tell title, licence, contents, index and references from the body

DOCX, HTML, EPUB, ODT, RTF, mail and web archives come through ``formats``, and in the child through
``formats_worker``, ``archive`` with ``office_xml``, ``rich_text``, ``mime`` and ``pandoc``.
``child`` and ``child_worker`` are the two sides of every child process. ``ocr`` recognizes the text
of scanned pages.

Text, Markdown and JSON lines know no places, but lines::

    read         choose the reader by content and name
    text         decode the bytes of a file
    typescripts  take page heads, line numbers and double spacing out of a text
    plain        group the lines of a text; ``markdown_blocks`` reads Markdown
    text_blocks  blocks -> paragraphs, each with its first and last line
      prose      pass over what forms no words: encoded data, minified code

``subtitles`` and ``notebook`` read these; ``jsonl`` reads many documents from one file.
``discover`` finds files, ``sentences`` splits paragraphs, ``duplicates`` finds sentences that
return. All end in ``document``.
"""
