"""The OpenAPI document of `/api/v1`, made from the types of its answers (`web.api_types`)."""

import inspect
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Union, get_args, get_origin, get_type_hints, is_typeddict

from laggard_aggregator.web import api_types
from laggard_aggregator.web.jobs_api import FILTERS
from laggard_common import __version__

PATH: Final = "/api/v1/openapi.json"
_SIMPLE: Final = {str: "string", float: "number", int: "integer", bool: "boolean", type(None): "null"}
_ERRORS: Final = {
    400: "Malformed path, query or body.",
    401: "No valid credentials.",
    403: "Not an operator.",
    404: "Unknown.",
    503: "Busy, or not there yet.",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of a path. `answer`: a TypedDict. `query`: its parameters, with the type of each."""

    path: str
    summary: str
    answer: Any
    method: str = "get"
    query: Mapping[str, str] | None = None
    errors: tuple[int, ...] = (401, 503)
    body: bool = False


_ALARMS: Final = {
    **dict.fromkeys(("group", "role", "state", "since", "sort"), "string"),
    "factor": "number",
    "limit": "integer",
}
_JOBS: Final = {
    **dict.fromkeys(FILTERS, "string"),
    "min_nodes": "integer",
    "max_nodes": "integer",
    "below_history": "number",
    "limit": "integer",
    "cursor": "string",
    "count": "string",
    "format": "string",
}
OPERATIONS: Final = (
    Operation("/api/v1/stragglers", "Stragglers and standing alarms", api_types.StragglersAnswer),
    Operation("/api/v1/groups", "Peer groups", api_types.GroupsAnswer),
    Operation("/api/v1/nodes", "Nodes by role and state, and the unhealthy ones", api_types.NodesAnswer),
    Operation(
        "/api/v1/alarms",
        "Alarms that stand, and those of the last 30 days",
        api_types.AlarmsAnswer,
        query=_ALARMS,
        errors=(400, 401, 503),
    ),
    Operation("/api/v1/decisions", "Decisions of operators in force", api_types.DecisionsAnswer),
    Operation(
        "/api/v1/decisions",
        "Silence, drain, comment, replaced, or end one of them",
        api_types.DecidedAnswer,
        "post",
        errors=(400, 401, 403, 503),
        body=True,
    ),
    Operation(
        "/api/v1/history",
        "A component over a range of time",
        api_types.HistoryAnswer,
        query=dict.fromkeys(("component", "group", "from", "to"), "string"),
        errors=(400, 401, 404, 503),
    ),
    Operation(
        "/api/v1/components/{group}/{component}",
        "One component by permanent ID or current name",
        api_types.ComponentAnswer,
        errors=(400, 401, 404, 503),
    ),
    Operation(
        "/api/v1/jobs", "Jobs, newest first", api_types.JobsAnswer, query=_JOBS, errors=(400, 401, 503)
    ),
    Operation(
        "/api/v1/jobs/{job}",
        "The runs of a job",
        api_types.RunsAnswer,
        query={"slow_components": "string"},
        errors=(400, 401, 404, 503),
    ),
)


def document() -> dict[str, Any]:
    """The whole document, OpenAPI 3.1."""
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Laggard", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"password": []}, {"token": []}],
    }


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for part in operation.path.split("/")
        if (name := part.strip("{}")) != part
    ]
    parameters += [
        {"name": name, "in": "query", "schema": {"type": kind}}
        for name, kind in (operation.query or {}).items()
    ]
    error = _json("An error.", api_types.ErrorAnswer, schemas)
    answers = {"200": _json(inspect.getdoc(operation.answer) or operation.summary, operation.answer, schemas)}
    answers |= {str(status): {**error, "description": _ERRORS[status]} for status in operation.errors}
    body = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    return {
        "summary": operation.summary,
        "parameters": parameters,
        **({"requestBody": body} if operation.body else {}),
        "responses": answers,
    }


def _json(description: str, answer: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _schema(answer, schemas)}}}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type; that of a TypedDict becomes one of `schemas`."""
    if kind is Any or kind in _SIMPLE:
        return {} if kind is Any else {"type": _SIMPLE[kind]}
    if is_typeddict(kind):
        name = kind.__name__.removesuffix("Answer")
        if name not in schemas:
            hints = get_type_hints(kind)  # without NotRequired
            schemas[name] = {
                "type": "object",
                "description": inspect.getdoc(kind),
                "properties": {field: _schema(hint, schemas) for field, hint in hints.items()},
                "required": sorted(kind.__required_keys__),
            }
        return {"$ref": f"#/components/schemas/{name}"}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(option, schemas) for option in arguments]}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], schemas)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], schemas)}
    raise TypeError(f"no schema for {kind!r}")
