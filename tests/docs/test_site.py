"""Pages of the site load nothing from elsewhere and run under a strict policy."""

from __future__ import annotations

import pytest

from docs.site.closing import close, faults


def test_scripts_and_styles_of_a_page_become_files() -> None:
    page = (
        "<head><style>\nbody {}</style></head><body><script>\n1 < 2\n</script></body>"
    )

    closed, files = close(page, "../")

    assert sorted(files.values()) == ["1 < 2\n", "body {}\n"]
    assert faults(page)
    assert faults(closed) == []
    assert all(f'"../{name}"' in closed for name in files)


def test_a_script_that_is_a_file_stays() -> None:
    page = '<script src="a.js"></script><script src="b.js" defer></script>'

    assert close(page, "") == (page, {})


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn.example.com/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.com/css">',
        '<img src="a.png">',
        '<p style="color: red">',
        '<a onclick="go()">',
        "<script>go()</script>",
        "<style>p {}</style>",
    ],
)
def test_what_a_strict_policy_forbids_is_a_fault(page: str) -> None:
    assert len(faults(page)) == 1


def test_a_link_to_elsewhere_is_none() -> None:
    assert faults('<a href="https://example.com">there</a><img src="a" alt="b">') == []


def test_a_style_of_a_drawing_becomes_its_attributes() -> None:
    closed, _ = close(
        '<svg><path style="opacity: 50%; fill: none" d="M0 0"/></svg>', ""
    )

    assert closed == '<svg><path opacity="50%" fill="none" d="M0 0"/></svg>'


def test_code_can_be_scrolled_by_keys_and_headings_have_a_level() -> None:
    closed, _ = close('<p role="heading">Tutorial</p><pre>long</pre>', "")

    assert closed == (
        '<p role="heading" aria-level="2">Tutorial</p><pre tabindex="0">long</pre>'
    )
