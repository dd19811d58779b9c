"""Reading: from a path or stdin to a :class:`Document` of pages and paragraphs.

A PDF goes through all stages, in this order; text, Markdown and JSONL begin at the sixth::

    read         choose the reader by content and name, check the options
    pdf          start a child process under limits, turn its failures into errors
    pdf_worker   (in the child) open the file and extract text fragments with pypdf
    pdf_helper   (in the child) share the pages of a long file with a copy of the child
    pdf_lines    (in the child) fragments -> printed lines, with place, size and face
    cleanup      runs the stages below and collects their result
      characters   ligatures, odd spaces and control characters -> plain characters
      furniture    set running headers, footers and page numbers apart
      contents     mark the entries of tables of contents and indexes
      layout       lines of a page -> blocks: paragraphs, headings, items, tables, code
      footnotes    tell the blocks at the foot of a page that are footnotes
      hyphenation  join the lines of a block, mend words and addresses divided at line ends
      paragraphs   blocks -> paragraphs of the document, across page borders
      parts        tell title, licence, contents, index and references from the body

``text`` decodes the bytes of a text file, ``plain`` makes lines of text and Markdown, ``jsonl``
reads many documents from one file. ``discover`` finds files, ``sentences`` splits paragraphs,
``generated`` makes reports up. The formats of text and PDF meet in ``lines``, the result is in
``document``.
"""
