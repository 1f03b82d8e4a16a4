"""Tables with their columns and indexes, and permissions: of the models."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from django.apps import apps
from django.db import connection, models

from docs.site.tables import table
from relay.operations import PERMISSIONS, SCOPES, all_operations

__all__ = ["MAKERS"]

_COMPARED: Final = {
    "exact": "{} = {}",
    "gte": "{} >= {}",
    "in": "{} in {}",
    "range": "{} in {}",
}


def _models() -> list[type[models.Model]]:
    return sorted(
        apps.get_app_config("relay").get_models(), key=lambda each: each._meta.db_table
    )


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(str, value))})"
    if isinstance(value, tuple):
        return f"{value[0]} … {value[1]}"
    return str(value)


def _condition(q: models.Q) -> str:
    """Return a condition in words like SQL's."""
    parts: list[str] = []
    for child in q.children:
        if isinstance(child, models.Q):
            inner = _condition(child)
            parts.append(f"({inner})" if child.connector != q.connector else inner)
            continue
        path, value = cast("tuple[str, Any]", child)
        name, _, lookup = path.partition("__")
        if lookup == "isnull":
            parts.append(f"{name} is {'null' if value else 'not null'}")
        else:
            parts.append(_COMPARED[lookup or "exact"].format(name, _value(value)))
    text = f" {q.connector.lower()} ".join(parts)
    return f"not ({text})" if q.negated else text


def _columns(names: Sequence[str], model: type[models.Model]) -> str:
    columns = []
    for name in names:
        field: Any = model._meta.get_field(name.lstrip("-"))
        columns.append(f"{field.column}{' DESC' if name.startswith('-') else ''}")
    return ", ".join(columns)


def _type(field: models.Field[Any, Any]) -> str:
    target = field.related_model
    kind = field.db_type(connection) or ""
    kind = re.sub(r"^timestamp with time zone$", "timestamptz", kind)
    if isinstance(target, type) and issubclass(target, models.Model):
        constraint = "" if getattr(field, "db_constraint", True) else ", no constraint"
        return f"{kind} of {target._meta.db_table}{constraint}"
    return kind


def _indexes(model: type[models.Model]) -> Iterator[tuple[str, str, str]]:
    """Yield name, columns, and which rows or what holds."""
    fields: Sequence[Any] = model._meta.local_fields
    for field in fields:
        if field.primary_key:
            yield "primary key", field.column, ""
        elif field.unique or field.db_index:
            yield "Django's own", field.column, "unique" if field.unique else ""
    for index in model._meta.indexes:
        kind = "GIN; " if getattr(index, "suffix", "") == "gin" else ""
        where = _condition(index.condition) if index.condition else ""
        yield (
            f"`{index.name}`",
            _columns(index.fields, model),
            (kind + where).rstrip("; "),
        )
    for constraint in model._meta.constraints:
        name = f"`{constraint.name}`"
        if isinstance(constraint, models.UniqueConstraint):
            where = (
                f": {_condition(constraint.condition)}" if constraint.condition else ""
            )
            yield name, _columns(constraint.fields, model), f"unique{where}"
        elif isinstance(constraint, models.CheckConstraint):
            condition: Any = constraint.condition
            yield name, "", f"check: {_condition(condition)}"


def _tables(old: str) -> str:
    found: list[str] = []
    for model in _models():
        doc = (inspect.getdoc(model) or "").partition("\n\n")[0].replace("\n", " ")
        fields = model._meta.local_fields
        rows = [(f"`{f.column}`", _type(f), "null" if f.null else "") for f in fields]
        found += [
            f"## {model._meta.db_table}\n\n{doc}\n",
            table(("column", "type", ""), rows),
            "",
            table(("index or constraint", "columns", "rows, kind"), _indexes(model)),
            "",
        ]
    return "\n".join(found)


def _descriptions() -> dict[str, str]:
    found: dict[str, str] = {}
    for model in _models():
        found[f"view_{model._meta.model_name}"] = (
            f"Can view {model._meta.verbose_name_plural}"
        )
        found[f"delete_{model._meta.model_name}"] = (
            f"Can delete {model._meta.verbose_name_plural}"
        )
        found[f"add_{model._meta.model_name}"] = (
            f"Can add {model._meta.verbose_name_plural}"
        )
        found |= {code: str(text) for code, text in model._meta.permissions}
    return found


def _permissions(old: str) -> str:
    words = _descriptions()
    acts: dict[str, list[str]] = {}
    for operation in all_operations().values():
        acts.setdefault(operation.permission, []).append(f"`{operation.name}`")
    rows = []
    for name in sorted(PERMISSIONS, key=lambda each: (each.partition("_")[2], each)):
        scopes = [f"`{scope}`" for scope, given in SCOPES.items() if name in given]
        does = ", ".join(sorted(acts.get(name, [])))
        rows.append((f"`{name}`", words[name], does, ", ".join(scopes)))
    return table(("permission", "", "acts of `relay.operations`", "scopes"), rows)


MAKERS: Final[dict[str, Callable[[str], str]]] = {
    "tables": _tables,
    "permissions": _permissions,
}
