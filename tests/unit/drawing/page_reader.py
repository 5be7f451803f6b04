"""A reader of drawn pages."""

from __future__ import annotations

from html.parser import HTMLParser


class Reader(HTMLParser):
    """Reads a page as a browser does: elements, their attributes, and all text in it."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)
