"""How Sphinx builds the site: make docs."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import SphinxError

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from docs.site.closing import close, faults  # noqa: E402 - needs the path
from docs.site.navigation import NAVIGATION, PURPOSE  # noqa: E402

project = "relay"
author = "the authors of relay"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_parser"]
exclude_patterns = ["site"]
nitpicky = True
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"relay {release}"
html_short_title = "relay"
html_permalinks_icon = "#"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["../llms.txt"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = False
html_theme_options = {"top_of_page_buttons": []}

# Read anew when it changes: the index is made of it.
navigation = {section: list(pages) for section, pages in NAVIGATION.items()}


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Give the index the tree of all pages, which GitHub would show as text."""
    if name != app.config.root_doc:
        return
    for section, pages in app.config.navigation.items():
        listed = "\n".join(pages)
        source[0] += (
            f"\n```{{toctree}}\n:hidden:\n:caption: {section}\n\n{listed}\n```\n"
        )


def describe(
    app: Sphinx, name: str, template: str, context: dict[str, object], tree: object
) -> None:
    """Say in a page's head what it is for, and where its source is."""
    about = {
        page: text for pages in NAVIGATION.values() for page, text in pages.items()
    }
    text = about.get(name, PURPOSE)
    context["metatags"] = (
        f'{context.get("metatags", "")}<meta name="description" content="{text}">'
    )


def finish(app: Sphinx, error: Exception | None) -> None:
    """Move scripts and styles to files, tell of what would load or run otherwise."""
    if error is not None or app.builder.format != "html":
        return
    output, found = Path(app.outdir), []
    for page in sorted(output.rglob("*.html")):
        depth = len(page.relative_to(output).parts) - 1
        text, files = close(page.read_text(encoding="utf-8"), "../" * depth)
        page.write_text(text, encoding="utf-8")
        for name, content in files.items():
            (output / name).write_text(content, encoding="utf-8")
        for fault in faults(text):
            found.append(f"{page.relative_to(output)}: {fault}")
    # The addresses in llms.txt, and each page as it was written.
    for name in app.env.found_docs:
        source, target = Path(app.env.doc2path(name)), output / f"{name}.md"
        target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    if found:
        raise SphinxError("\n".join(found))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect all that."""
    app.add_config_value("navigation", {}, "env", dict)
    app.connect("source-read", add_navigation)
    app.connect("html-page-context", describe)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
