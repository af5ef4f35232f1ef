"""Answers held against an OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
    "number": (int, float),
    "integer": int,
}


def problems(answer: object, path: str, document: Mapping[str, Any], status: str = "200") -> list[str]:
    """Where an answer to GET `path` differs from the document: types, missing fields, and fields it lacks."""
    response = document["paths"][path]["get"]["responses"][status]
    return list(_problems(answer, response["content"]["application/json"]["schema"], document, "answer"))


def _problems(
    value: object, schema: Mapping[str, Any], document: Mapping[str, Any], at: str
) -> Iterator[str]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        found = [list(_problems(value, each, document, at)) for each in schema["anyOf"]]
        yield from min(found, key=len)
        return
    kind = schema.get("type")
    if kind is None:
        return
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{at}: expected {kind}, got {value!r}"[:200]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, schema["items"], document, f"{at}[{index}]")
    elif isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{at}.{name}: missing" for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            if name in known or rest is not None:
                yield from _problems(item, known.get(name, rest), document, f"{at}.{name}")
            elif known:
                yield f"{at}.{name}: not in the document"
