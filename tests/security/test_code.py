"""What no line of relay may do, whatever the linter is told."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import relay

FOLDER = Path(relay.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
# Read bytes as code, or run a text.
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "yaml", "telnetlib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
# Import by a text: of settings, of code that is installed, or of a row's model.
IMPORTERS = {"import_string", "import_module"}
# What a stored name goes through on its way to a handler.
ON_THE_WAY = (
    *("engine/", "scheduler/", "dashboard/", "models/", "operations/jobs", "api/jobs"),
    *("codec", "tasks", "requests", "handles", "packing", "worker/executor"),
    *("worker/loop", "worker/pool", "worker/isolated", "worker/apart", "api/bodies"),
)
# Where a statement is put together from relay's own constants: channels, numbers,
# names of models' columns.
MADE_OF_CONSTANTS = {
    *("engine/watching.py", "engine/gauges.py", "worker/rota.py", "testing/clock.py"),
    *("worker/statements.py", "worker/listener.py", "worker/hearing.py"),
    *("worker/transactional.py",),
}


def trees() -> Iterator[tuple[Path, ast.AST]]:
    for path in FILES:
        yield path.relative_to(FOLDER), ast.parse(path.read_text(encoding="utf-8"))


def name_of(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def test_x13_nothing_stored_is_read_as_code() -> None:
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").partition(".")[0]}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, (path, node.lineno)
                continue
            else:
                continue
            assert not names & FORBIDDEN_MODULES, (path, node.lineno)


def test_no_command_goes_through_a_shell() -> None:
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                assert name_of(node) not in ("system", "popen"), (path, node.lineno)
                for keyword in node.keywords:
                    is_off = getattr(keyword.value, "value", True) is False
                    assert keyword.arg != "shell" or is_off, (path, node.lineno)


def test_x12_modules_are_imported_by_text_where_settings_or_code_name_them() -> None:
    found = {
        str(path)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node) in IMPORTERS
    }

    assert found  # settings name middleware, classes and callables
    assert not {each for each in found if each.startswith(ON_THE_WAY)}


def test_x17_statements_are_constants_and_values_are_bound() -> None:
    made = set()
    for path, tree in trees():
        for node in ast.walk(tree):
            is_run = isinstance(node, ast.Call) and name_of(node) in RUN
            if is_run and node.args and is_put_together(node.args[0]):
                made.add(str(path))

    # The embedded server is started and asked with names of its own making.
    assert {each for each in made if not each.startswith("standalone/")} <= (
        MADE_OF_CONSTANTS
    )


RUN = {"execute", "executemany", "copy", "raw", "extra", "RawSQL"}


def is_put_together(statement: ast.expr) -> bool:
    return any(
        isinstance(node, ast.JoinedStr | ast.BinOp)
        or (isinstance(node, ast.Call) and name_of(node) in ("format", "join"))
        for node in ast.walk(statement)
    )
