"""The runbook, `docs/runbook.md`, as a page, and each alert's section as a page of its own."""

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from laggard_aggregator.web.problems import Show

PATH = "/runbook"
_PLACES = (Path(__file__).parents[1] / "runbook.md", Path(__file__).parents[4] / "docs/runbook.md")
"""In an installed package, and in the source tree."""
_ALERT = re.compile(r"^### (Laggard\w+)$", re.MULTILINE)


class Runbook(NamedTuple):
    """The text in HTML, whole and by lower-case name of an alert."""

    whole: Markup
    sections: dict[str, tuple[str, Markup]]


class RunbookPages:
    """The pages; `show` renders them."""

    def __init__(self, show: Show) -> None:
        self._show = show

    def routes(self) -> list[BaseRoute]:
        """Routes of the pages."""
        return [Route(PATH, self._whole), Route(PATH + "/{alert}", self._one)]

    async def _whole(self, request: Request) -> Response:
        return await self._show(request, "runbook", {"alert": "", "text": runbook().whole})

    async def _one(self, request: Request) -> Response:
        section = runbook().sections.get(request.path_params["alert"].lower())
        if section is None:
            raise HTTPException(404, "the runbook has no such alert")
        return await self._show(request, "runbook", {"alert": section[0], "text": section[1]})


@cache
def runbook() -> Runbook:
    """The runbook of this version."""
    text = next(path for path in _PLACES if path.is_file()).read_text()
    names = [match[1] for match in _ALERT.finditer(text)]
    bodies = [re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0] for rest in _ALERT.split(text)[2::2]]
    sections = {name.lower(): (name, _html(body)) for name, body in zip(names, bodies, strict=True)}
    return Runbook(_html(text.partition("\n")[2]), sections)


def _html(text: str) -> Markup:
    """Markdown as HTML. Links lead within the runbook; those to other documents are their text alone."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    section, captions = "Table", []
    for token, inline in pairwise(tokens):
        if token.tag == "h4":  # directly below an h2
            token.tag = "h3"
        if token.type == "heading_open":
            section = inline.content
            token.attrSet("id", section.lower().replace(" ", "-"))
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        elif token.type == "table_open":
            captions.append(
                Markup('<table class="text" tabindex="0"><caption class="hidden">{}</caption>').format(
                    section
                )
            )
        _keep_own_links(token.children or ())
    html = parser.renderer.render(tokens, parser.options, {})
    for caption in captions:
        html = html.replace("<table>", caption, 1)
    html = html.replace("<pre>", '<pre tabindex="0">')  # long lines scroll, by keys, too
    return Markup(html)  # noqa: S704 - our own text, and HTML in it is escaped


def _keep_own_links(tokens: Sequence[Token]) -> None:
    """Rewrites links to sections as links to the whole page; others become plain."""
    tags: list[str] = []
    for token in tokens:
        if token.type == "link_open":
            target = str(token.attrs.get("href", ""))
            if target.startswith("#"):
                token.attrSet("href", f"{PATH}{target}")
            else:
                token.tag, token.attrs = "span", {"class": "soft", "title": target}
            tags.append(token.tag)
        elif token.type == "link_close":
            token.tag = tags.pop()
