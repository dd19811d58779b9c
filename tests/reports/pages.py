"""HTML pages as a parser sees them."""

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "source"}


class Page(HTMLParser):
    """Elements in their order, with the text directly in them; every tag must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = (tag, dict(attrs), [])
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1][2].append(data)

    def texts(self, tag: str, css_class: str | None = None) -> list[str]:
        return [
            "".join(text)
            for name, attributes, text in self.elements
            if name == tag and css_class in (None, attributes.get("class"))
        ]

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs, _ in self.elements if attribute in attrs]
