"""The report as one HTML file: no script, no style or picture from elsewhere, everything escaped."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from laggard_aggregator.layers.report import table
from laggard_aggregator.layers.report.picture import picture
from laggard_aggregator.layers.search import LayerFinding
from laggard_aggregator.layers.stack import Stack
from laggard_common import __version__
from laggard_common.visible import visible


def page(stack: Stack, findings: list[LayerFinding], title: str) -> str:
    """The whole HTML document."""
    environment = Environment(
        loader=PackageLoader("laggard_aggregator.layers.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    return environment.get_template("layers.html").render(
        title=title,
        findings=findings,
        picture=picture(stack, findings),
        layers=table.layer_table(stack),
        boundaries=table.boundary_table(stack),
        notes=[table.COLUMNS_EXPLAINED, table.KINDS_EXPLAINED],
        remarks=stack.remarks,
        version=__version__,
    )
