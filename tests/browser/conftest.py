"""A real browser, looking at the dashboard as the tests' own server serves it.

Playwright's loop runs in this thread from a module's first test to its last: not
longer, for other tests have loops of their own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings as project
from django.contrib.auth.models import User
from django.test import Client

from tests.worker.conftest import database, workers

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["database", "workers"]

AXE = Path(__file__).parent / "axe.min.js"
# Milliseconds that the browser waits for what a page is to show.
PATIENCE_MS = 120_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _mounted(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.dashboard.urls"
    settings.LOGIN_URL = "admin:login"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api")
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        # Django takes the loop for the caller's; nothing here is a coroutine.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def ada(transactional_db: None) -> User:
    return User.objects.create_superuser("ada", password="wonder")


@pytest.fixture
def open_page(
    chromium: Browser, live_server: Any, ada: User
) -> Iterator[Callable[..., Page]]:
    """Return what opens a window of its own; no page may have complained of anything.

    A complaint is an error of a script, a broken policy, or what the console says.
    """
    complaints: list[str] = []
    with ExitStack() as stack:

        def make(
            *, javascript: bool = True, theme: str = "light", width: int = 1280
        ) -> Page:
            context = chromium.new_context(
                base_url=f"{live_server.url}/ops/dashboard/",
                java_script_enabled=javascript,
                color_scheme=theme,  # type: ignore[arg-type] # light or dark
                viewport={"width": width, "height": 900},
                timezone_id="UTC",
            )
            stack.callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on(
                "console",
                lambda message: (
                    complaints.append(message.text)
                    if message.type in ("error", "warning")
                    and "/ops/" in message.location["url"]
                    # Of a renewal that a click has overtaken.
                    and "Failed to fetch" not in message.text
                    else None
                ),
            )
            return page

        yield make
    assert complaints == []


@pytest.fixture
def log_in(ada: User, live_server: Any) -> Callable[[Page], None]:
    """Return what lets a page's browser in, without the form."""

    def make(page: Page) -> None:
        client = Client()
        client.force_login(ada)
        name = project.SESSION_COOKIE_NAME
        cookie = {"name": name, "value": client.cookies[name].value}
        page.context.add_cookies([{**cookie, "url": live_server.url}])  # type: ignore[list-item, typeddict-item] # as its documentation says

    return make
