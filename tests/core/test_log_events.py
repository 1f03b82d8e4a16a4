"""Events, levels and fields of docs/reference/logs.md, against what the code logs."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from dataclasses import dataclass, field

from tests.docs.pages import ROOT
from tests.log_page import read_log_page

EVENT = re.compile(
    r"(job|worker|queue|bulk|charts|duty|scheduler|schedule|metrics|trace|api|checks)"
    r"\.[a-z_]+"
)
PAGE = read_log_page()
# Their keys and modules are named as events are.
NAMES = {ROOT / "relay" / "conf.py", ROOT / "relay" / "__init__.py"}
# relay's own tests of a project, and a look at how the project logs.
OTHERS = {"relay.testing", "relay"}


@dataclass(frozen=True)
class Record:
    """A record that is written down in one place.

    Attributes:
        level: None where it is not known before.
        is_whole: whether all of its fields stand there.
    """

    event: str
    level: str | None
    fields: frozenset[str]
    is_whole: bool


@dataclass
class Code:
    """What the code has: its texts, its loggers and its records."""

    texts: set[str] = field(default_factory=set)
    loggers: set[str] = field(default_factory=set)
    records: list[Record] = field(default_factory=list)

    def read_call(self, call: ast.Call) -> None:
        if not isinstance(call.func, ast.Attribute):
            return
        verb = call.func.attr
        first = text_of(call.args[0]) if call.args else None
        keywords = {each.arg: each.value for each in call.keywords}
        extra = keywords.get("extra")
        if verb == "getLogger" and first is not None:
            self.loggers.add(first)
        elif verb == "log" and is_named(call.func.value, "act") and first is not None:
            who = {"actor", "source", "reason", "request_id"}
            self.add(first, "INFO", {*keywords, *who})
        elif isinstance(extra, ast.Dict):
            pairs = zip(extra.keys, extra.values, strict=True)
            values = {text_of(key): value for key, value in pairs}
            event = text_of(values.pop("event", None))
            level = {"exception": "ERROR", "log": None}.get(verb, verb.upper())
            if event is not None:
                self.add(event, level, set(values))

    def add(self, event: str, level: str | None, names: set[str | None]) -> None:
        fields = frozenset(name for name in names if name is not None)
        self.records.append(Record(event, level, fields, None not in names))


def text_of(node: ast.AST | None) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None  # type: ignore[union-attr] # a Constant


def is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


@functools.cache
def read_code() -> Code:
    code = Code()
    for path in (ROOT / "relay").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                code.read_call(node)
            elif path not in NAMES and (text := text_of(node)) is not None:
                code.texts.add(text)
    return code


def test_the_page_names_every_event_and_no_other() -> None:
    events = {text for text in read_code().texts if EVENT.fullmatch(text)}

    assert {event for event in events if not event.endswith(".html")} == set(PAGE)


def test_no_record_has_a_level_or_a_field_that_the_page_does_not_name() -> None:
    found = read_code().records

    assert len(found) > 30
    assert [one for one in found if one.fields - PAGE[one.event][1]] == []
    levels = [one for one in found if one.level is not None]
    assert [one for one in levels if one.level not in PAGE[one.event][0].split()] == []


def test_records_have_all_fields_that_the_page_names() -> None:
    by_event: dict[str, list[Record]] = defaultdict(list)
    for one in read_code().records:
        by_event[one.event].append(one)

    for event, found in by_event.items():
        # A failure that only the database knows of has fewer than an attempt's.
        if event != "job.failed" and all(one.is_whole for one in found):
            fields = set().union(*(one.fields for one in found))
            assert fields == PAGE[event][1], event


def test_every_logger_is_on_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "logs.md").read_text()
    loggers = read_code().loggers - OTHERS

    assert {name for name in loggers if f"`{name}`" not in page} == set()
