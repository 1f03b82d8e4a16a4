"""The translations: what is to be said, catalogues of it, and what gettext reads.

    python -m tests.translations

adds to each catalogue under relay/locale what the code says by now, with nothing as its
translation, takes out what it says no more, and compiles all of them. No tool of GNU
gettext's is needed.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from django.utils.translation.template import templatize

import relay

__all__ = [
    "Catalogue",
    "Message",
    "catalogues",
    "compiled",
    "messages",
    "read",
    "written",
]

ROOT = Path(relay.__file__).parent
CALLS = {"_", "gettext", "gettext_lazy", "ngettext", "ngettext_lazy"}
# By language: how many forms a number has, and which of them n takes.
PLURALS = {
    "de": "nplurals=2; plural=(n != 1);",
    "es": "nplurals=2; plural=(n != 1);",
    "fr": "nplurals=2; plural=(n > 1);",
    "ja": "nplurals=1; plural=0;",
    "zh_Hans": "nplurals=1; plural=0;",
}
_LITERAL = r"""u?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_CALL = re.compile(rf"(?:\b_|\bn?gettext)\({_LITERAL}(?:,\s*{_LITERAL})?", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')

# What is to be said, in English: one text, or two where it counts.
Message = tuple[str, ...]
Catalogue = Mapping[Message, tuple[str, ...]]


# --- what the code says --------------------------------------------------------------


def messages() -> set[Message]:
    """Return all that the dashboard says; the admin speaks Django's catalogue."""
    found: set[Message] = set()
    for file in (
        *(ROOT / "dashboard").rglob("*.py"),
        *(ROOT / "queries").rglob("*.py"),
    ):
        found |= set(_said(ast.parse(file.read_text())))
    for file in (ROOT / "templates" / "relay" / "dashboard").rglob("*.html"):
        code = templatize(file.read_text())
        for texts in _CALL.findall(code):
            found.add(tuple(ast.literal_eval(text) for text in texts if text))
    return found


def _said(tree: ast.AST) -> Iterator[Message]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", None)
            texts = tuple(
                each.value
                for each in node.args
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
            if name in CALLS and texts:
                yield texts


# --- catalogues ----------------------------------------------------------------------


def catalogues() -> dict[str, Path]:
    """Return the catalogue of each language."""
    found = ROOT.glob("locale/*/LC_MESSAGES/django.po")
    return {path.parts[-3]: path for path in found}


def read(path: Path) -> dict[Message, tuple[str, ...]]:
    """Return what a catalogue says, without its header.

    Raises:
        ValueError: it holds something else than its own writer writes.
    """
    found: dict[Message, tuple[str, ...]] = {}
    for block in path.read_text().strip().split("\n\n")[1:]:
        texts: dict[str, list[str]] = {}
        name = ""
        for line in block.splitlines():
            word, _, rest = line.partition(" ")
            if line.startswith('"'):
                rest = line
            elif re.fullmatch(r"msgid|msgid_plural|msgstr(\[\d\])?", word):
                name = word
            else:
                raise ValueError(f"{path}: {line!r}")
            text = _STRING.fullmatch(rest)
            if text is None:
                raise ValueError(f"{path}: {line!r}")
            texts.setdefault(name, []).append(ast.literal_eval(rest))
        joined = {name: "".join(parts) for name, parts in texts.items()}
        said = tuple(
            joined[name] for name in ("msgid", "msgid_plural") if name in joined
        )
        found[said] = tuple(v for k, v in joined.items() if k.startswith("msgstr"))
    return found


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    return '"' + "".join(escapes.get(each, each) for each in text) + '"'


def header(language: str) -> str:
    return (
        f"Language: {language}\nMIME-Version: 1.0\n"
        "Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n"
        f"Plural-Forms: {PLURALS[language]}\n"
    )


def written(language: str, catalogue: Catalogue) -> str:
    """Return a catalogue as the text of its file."""
    lines = ['msgid ""', 'msgstr ""']
    lines += [_quoted(f"{line}\n") for line in header(language).splitlines()]
    for said, texts in sorted(catalogue.items()):
        lines += ["", f"msgid {_quoted(said[0])}"]
        if len(said) > 1:
            lines.append(f"msgid_plural {_quoted(said[1])}")
            lines += [f"msgstr[{n}] {_quoted(text)}" for n, text in enumerate(texts)]
        else:
            lines.append(f"msgstr {_quoted(texts[0])}")
    return "\n".join(lines) + "\n"


def compiled(language: str, catalogue: Catalogue) -> bytes:
    """Return a catalogue as gettext reads it. Source: GNU gettext, MO files."""
    pairs = {"": header(language)}
    pairs |= {"\0".join(said): "\0".join(texts) for said, texts in catalogue.items()}
    keys = sorted(text.encode() for text in pairs)
    values = [pairs[key.decode()].encode() for key in keys]
    at = 7 * 4 + 16 * len(keys)
    places: list[int] = []
    for text in (*keys, *values):
        places += [len(text), at]
        at += len(text) + 1
    count = len(keys)
    head = struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 28)
    body = b"".join(text + b"\0" for text in (*keys, *values))
    return head + struct.pack(f"<{len(places)}I", *places) + body


def main() -> None:
    said = messages()
    for language in PLURALS:
        path = ROOT / "locale" / language / "LC_MESSAGES" / "django.po"
        path.parent.mkdir(parents=True, exist_ok=True)
        known = read(path) if path.exists() else {}
        forms = 2 if "nplurals=2" in PLURALS[language] else 1
        catalogue = {
            each: known.get(each, ("",) * (forms if len(each) > 1 else 1))
            for each in said
        }
        path.write_text(written(language, catalogue))
        path.with_suffix(".mo").write_bytes(compiled(language, catalogue))


if __name__ == "__main__":
    main()
