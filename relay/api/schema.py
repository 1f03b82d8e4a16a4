"""The OpenAPI 3.1 document, of what each view's methods say that they take and answer.

`python -m relay.api` prints it; docs/reference/openapi.json is that, compared by a
test, so that a change of the API is seen as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from rest_framework import serializers

from relay.api.endpoints import FILTER, Endpoint, endpoint_of
from relay.api.fields import AnyField, InstantField, SpanField
from relay.api.once import HEADER
from relay.api.problems import PROBLEMS, Fault

__all__ = ["METHODS", "document"]

VERSION: Final = "1"
METHODS: Final = ("get", "post", "patch", "delete")

# What any address may answer with, besides its own; and any that takes a body.
_ANY: Final = (
    "invalid_request",
    "unauthenticated",
    "invalid_token",
    "not_allowed",
    "csrf_failed",
    "too_large",
    "too_slow",
    "unavailable",
)
_OF_BODIES: Final = ("invalid_json", "unsupported_media_type")
_OF_KEYS: Final = ("request_in_progress", "idempotency_key_reused")
_STATUS_TEXTS: Final = {
    200: "As asked for.",
    201: "Made; `Location` says where it is.",
    202: "Begun; it goes on.",
    204: "Done.",
    304: "It is as it was.",
}
_PLAIN: Final[Mapping[Any, str]] = {
    str: "string",
    bytes: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
}
_SPAN: Final = {
    "type": ["number", "string"],
    "description": "Seconds, or a text such as 30s, 1h30m or PT90S.",
}
_FIELDS: Final[tuple[tuple[type[Any], Mapping[str, Any]], ...]] = (
    (SpanField, _SPAN),
    (InstantField, {"type": "string", "format": "date-time"}),
    (AnyField, {}),
    (serializers.UUIDField, {"type": "string", "format": "uuid"}),
    (serializers.BooleanField, {"type": "boolean"}),
    (serializers.IntegerField, {"type": "integer"}),
    (serializers.CharField, {"type": "string"}),
)


@cache
def document() -> dict[str, Any]:
    """Return the document; nobody may change it."""
    from relay.api.urls import ADDRESSES  # here: its views show this document

    components: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for path, view, name in ADDRESSES:
        found = {
            method: _operation(about, path, name, method, components)
            for method in METHODS
            if (about := endpoint_of(view, method)) is not None
        }
        paths[path] = found
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "relay",
            "version": VERSION,
            "description": "Jobs, queues, workers and schedules. Times are RFC 3339 in "
            "UTC, durations seconds, ids UUIDs.",
        },
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "sessionid"},
            },
        },
    }


def _operation(
    about: Endpoint, path: str, name: str, method: str, components: dict[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": f"{method}-{name}",
        "summary": about.summary,
        "tags": [path.split("/")[2].partition(".")[0]],
        "parameters": list(_parameters(about, path)),
        "responses": _answers(about, path, components),
    }
    if about.permission is not None:
        found["x-permission"] = about.permission
    if about.body is not None:
        schema = _of_serializer(about.body(), components)
        found["requestBody"] = {
            "content": {"application/json": {"schema": schema}},
            "required": any(each.required for each in about.body().fields.values()),
        }
    return found


def _parameters(about: Endpoint, path: str) -> Iterator[dict[str, Any]]:
    for step in path.split("/"):
        if step.startswith("{"):
            schema = {"type": "string", "minLength": 1}
            yield {
                "name": step[1:-1],
                "in": "path",
                "required": True,
                "schema": schema,
            }
    query = {**about.query, **(FILTER if about.has_filter else {})}
    for name, each in query.items():
        yield {
            "name": name,
            "in": "query",
            "description": each.about,
            "schema": dict(each.schema),
        }
    headers = {
        HEADER: (about.is_once, "Sent again with it, it is done once."),
        "If-Match": (
            "precondition_failed" in about.codes,
            "The ETag that it must still have.",
        ),
        "If-None-Match": (304 in about.answers, "The ETag that is known already."),
    }
    for name, (is_there, text) in headers.items():
        if is_there:
            schema = {"type": "string", "minLength": 1}
            yield {"name": name, "in": "header", "description": text, "schema": schema}


# --- answers -------------------------------------------------------------------------


def _answers(about: Endpoint, path: str, components: dict[str, Any]) -> dict[str, Any]:
    answers = dict(about.answers)
    codes = {*_ANY, *about.codes}
    if about.body is not None:
        codes |= set(_OF_BODIES)
    if about.is_once:
        codes |= set(_OF_KEYS)
        answers.setdefault(200, next(iter(answers.values())))
    if about.has_filter:
        codes.add("invalid_filter")
    found = {
        status: _answer(status, hint, path, components, is_part="fields" in about.query)
        for status, hint in answers.items()
    }
    for status, names in _by_status(codes).items():
        found[status] = {
            "description": ", ".join(f"`{name}`" for name in names),
            "content": {
                "application/problem+json": {"schema": _of_problem(components)}
            },
        }
    return {str(status): found[status] for status in sorted(found)}


def _answer(
    status: int, hint: Any, path: str, components: dict[str, Any], *, is_part: bool
) -> dict[str, Any]:
    text = _STATUS_TEXTS[status]
    if hint is None:
        return {"description": text}
    kind = "application/json"
    if hint is str:
        kind = "text/html"
    elif hint is bytes:
        kind = "text/event-stream"
    elif path.endswith(".json"):
        kind = "application/vnd.oai.openapi+json"
    elif path.endswith(".yaml"):
        kind = "application/vnd.oai.openapi"
    schema = _of_hint(hint, components)
    if is_part:
        schema = {"anyOf": [schema, _of_part(schema, components)]}
    return {"description": text, "content": {kind: {"schema": schema}}}


def _of_part(whole: Mapping[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a document, or a page of such, of which some was asked."""
    name = whole["$ref"].rpartition("/")[2]
    made = deepcopy(components[name])
    properties = made["properties"]
    if "results" in properties:
        items = properties["results"]["items"]
        properties["results"]["items"] = _of_part(items, components)
    else:
        made["required"] = []
    made["description"] = f"{name}, of which `fields` names some."
    components[f"{name}Part"] = made
    return {"$ref": f"#/components/schemas/{name}Part"}


def _by_status(codes: Iterable[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for code in sorted(codes):
        found.setdefault(PROBLEMS[code].status, []).append(code)
    return found


def _of_problem(components: dict[str, Any]) -> dict[str, Any]:
    if "Problem" not in components:
        texts = ("type", "title", "detail", "instance", "request_id")
        fault = _of_hint(Fault, components)
        components["Problem"] = {
            "type": "object",
            "description": "An error, as RFC 9457 has it.",
            "properties": {
                **{name: {"type": "string"} for name in texts},
                "status": {"type": "integer"},
                "code": {"type": "string", "enum": sorted(PROBLEMS)},
                "errors": {"type": "array", "items": fault},
                "job_id": {"type": "string", "format": "uuid"},
                "state": {"type": "string"},
            },
            "required": [*texts, "status", "code", "errors"],
        }
    return {"$ref": "#/components/schemas/Problem"}


def _of_hint(hint: Any, components: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a document's type."""
    kind, parts = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        return _of_document(hint, components)
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if kind is list:
        return {"type": "array", "items": _of_hint(parts[0], components)}
    if kind is dict:
        inner = _of_hint(parts[1], components)
        return {"type": "object", "additionalProperties": inner}
    if kind is Literal:
        return {"type": "string", "enum": list(parts)}
    if kind in (Union, UnionType):
        if all(part in _PLAIN for part in parts):
            return {"type": [_PLAIN[part] for part in parts]}
        return {"anyOf": [_of_hint(part, components) for part in parts]}
    raise TypeError(f"{hint!r} has no schema")


def _of_document(hint: Any, components: dict[str, Any]) -> dict[str, Any]:
    name = hint.__name__.removesuffix("Document")
    if name not in components:
        components[name] = {}  # before what it holds: that may be it again
        properties = {
            each: _of_hint(inner, components)
            for each, inner in get_type_hints(hint).items()
        }
        components[name] = {
            "type": "object",
            "description": " ".join((hint.__doc__ or "").split()),
            "properties": properties,
            "required": sorted(hint.__required_keys__),
        }
    return {"$ref": f"#/components/schemas/{name}"}


# --- bodies --------------------------------------------------------------------------


def _of_serializer(
    body: serializers.Serializer[Any], components: dict[str, Any]
) -> dict[str, Any]:
    name = type(body).__name__
    if name not in components:
        components[name] = {
            "type": "object",
            "description": (type(body).__doc__ or "").partition("\n")[0],
            "properties": {
                each: _of_field(field, components)
                for each, field in body.fields.items()
            },
            "required": [each for each, field in body.fields.items() if field.required],
            "additionalProperties": False,
        }
    return {"$ref": f"#/components/schemas/{name}"}


def _of_field(field: Any, components: dict[str, Any]) -> dict[str, Any]:
    schema = _of_kind(field, components)
    if field.help_text:
        schema["description"] = str(field.help_text)
    names = {"min_value": "minimum", "max_value": "maximum"}
    if schema.get("type") == "string":
        names = {"min_length": "minLength", "max_length": "maxLength"}
        if getattr(field, "allow_blank", True) is False:
            schema["minLength"] = 1
    elif schema.get("type") == "array":
        names = {"min_length": "minItems", "max_length": "maxItems"}
    for name, word in names.items():
        if (bound := getattr(field, name, None)) is not None:
            schema[word] = bound
    if field.allow_null and "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    if field.allow_null and "type" in schema:
        given = schema["type"]
        schema["type"] = [*([given] if isinstance(given, str) else given), "null"]
    return schema


def _of_kind(field: Any, components: dict[str, Any]) -> dict[str, Any]:
    if isinstance(field, serializers.Serializer):
        return _of_serializer(field, components)
    if isinstance(field, serializers.ListField):
        return {"type": "array", "items": _of_field(field.child, components)}
    if isinstance(field, serializers.DictField):
        return {"type": "object"}
    if isinstance(field, serializers.ChoiceField):
        return {"type": "string", "enum": list(field.choices)}
    for kind, schema in _FIELDS:
        if isinstance(field, kind):
            return dict(schema)
    raise TypeError(f"{field!r} has no schema")
