"""Tables of the pages as responses in CSV and JSON."""

from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from laggard_aggregator.web.pages.tables import PageTable


def table_file(found: Sequence[PageTable[Any] | None], name: str, form: str, now: float) -> Response:
    """The first of the tables of a page, or the one of this name, in the format csv or json.

    Raises HTTPException for a table or a format that there is not.
    """
    tables = {each.name: each for each in reversed(found) if each is not None}
    table = tables.get(name) if name else next(reversed(tables.values()), None)
    if table is None or form not in ("csv", "json"):
        known = f" of {', '.join(reversed(tables))}" if tables else ""
        raise HTTPException(400, f"expected a table{known}, and the format csv or json")
    if form == "json":
        return StreamingResponse(table.json(now), media_type="application/json")
    headers = {"content-disposition": f'attachment; filename="laggard-{table.name}.csv"'}
    return StreamingResponse(table.csv(), headers=headers, media_type="text/csv")
