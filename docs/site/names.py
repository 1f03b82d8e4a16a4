"""The public names of a module: what each takes, and the first line it says."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any, Final, get_args

from docs.site.tables import table

__all__ = ["table_of"]

_STARS: Final[dict[object, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def _default(value: object) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return "…"


def _parameters(signature: inspect.Signature) -> str:
    """Return the parameters without their types: those are in the code."""
    shown: list[str] = []
    is_keyword = False
    for each in signature.parameters.values():
        if each.name in ("self", "cls") or each.name.startswith("_"):
            continue
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            if not any(one.startswith("*") for one in shown):
                shown.append("*")
        star = _STARS.get(each.kind, "")
        # An operation is called with who asks; its function is given their act.
        name = "actor" if each.name == "act" else each.name
        has_default = each.default is not each.empty
        shown.append(
            f"{star}{name}" + (f"={_default(each.default)}" if has_default else "")
        )
    return ", ".join(shown)


def _is_called(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def _call(name: str, value: Any) -> str:
    """Return the name as it is called, or as it is where it is not."""
    if not _is_called(value) or _is_error(value):
        return name
    try:
        return f"{name}({_parameters(inspect.signature(value))})"
    except (TypeError, ValueError):
        return name


def _summary(value: Any) -> str:
    if not _is_called(value):
        return "one of " + ", ".join(f"`{each!r}`" for each in get_args(value))
    doc = inspect.getdoc(value) or ""
    return doc.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _rows(names: list[str], module: Any) -> Iterator[tuple[str, str]]:
    for name in names:
        value = getattr(module, name)
        yield f"`{_call(name, value)}`".replace("|", "\\|"), _summary(value)


def _error_row(name: str, kind: type[BaseException]) -> tuple[str, str, str]:
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    return f"`{name}`", bases, _summary(kind)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def table_of(module_name: str) -> str:
    """Return a table of the names in __all__ of a module, its errors last.

    Constants are left out: what they bound or list is said in words.
    """
    module = importlib.import_module(module_name)
    errors = [name for name in module.__all__ if _is_error(getattr(module, name))]
    others = sorted(
        set(module.__all__) - {*errors, *filter(str.isupper, module.__all__)},
        key=lambda name: (name.lower(), name),
    )
    found = table(("name", ""), _rows(others, module))
    if errors:
        rows = [_error_row(name, getattr(module, name)) for name in errors]
        found += "\n\n" + table(("error", "is a", ""), rows)
    return found
