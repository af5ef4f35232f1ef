"""XML of `sadf -x`: attributes for the keys that `sadf -j` has."""

import io
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from laggard_aggregator.offline.sysstat.disk_sample import DiskSample
from laggard_aggregator.offline.sysstat.report import Report, numbers, sadf_time
from laggard_common.errors import InputError

_DECLARATION = re.compile(rb"<\?xml[^>]*\?>")
"""Begins each of several documents in one file."""


def is_xml(head: bytes) -> bool:
    """True for the begin of XML that sadf printed."""
    return head.lstrip()[:1] == b"<" and b"<sysstat" in head


def read_xml(text: bytes, report: Report) -> Iterator[DiskSample]:
    """The samples, in order. Raises InputError for local times without a zone, and for entities."""
    if b"<!ENTITY" in text:
        raise InputError(str(report.path), "not the XML of sadf: it declares entities")
    for document in _DECLARATION.split(text):
        if document.strip():
            yield from _document(document, report)


def _document(text: bytes, report: Report) -> Iterator[DiskSample]:
    host, stamp = report.path.stem, dict[str, str]()
    events = ElementTree.iterparse(io.BytesIO(text), ("start", "end"))  # noqa: S314 - no entities
    try:
        for event, element in events:
            tag = element.tag.rpartition("}")[2]
            if event == "start":
                if tag == "host":
                    host = element.get("nodename", report.path.stem)
                elif tag == "timestamp":
                    stamp = element.attrib
            elif tag == "disk-device":
                yield from _sample(host, stamp, element.attrib, report)
            elif tag == "timestamp":
                element.clear()
    except ElementTree.ParseError as exc:
        report.remark(f"ends early, or is damaged ({exc}): read as far as it goes")


def _sample(host: str, stamp: dict[str, str], disk: dict[str, str], report: Report) -> Iterator[DiskSample]:
    where = f"{stamp.get('date', '')} {stamp.get('time', '')}"
    device = disk.get("dev", "")
    if not device:
        report.leave_out("a disk without a name", where)
        return
    end, seconds = sadf_time({**stamp, "utc": stamp.get("utc", "1") != "0"}, report)
    row = {name: text for name, text in disk.items() if name != "dev"}
    if (columns := numbers(row, where, report)) is not None:
        yield DiskSample(host, device, end, seconds, columns, where)
