"""People and their browsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client


@pytest.fixture(autouse=True)
def _mounted(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.dashboard.urls"
    settings.LOGIN_URL = "admin:login"


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_superuser("ada")


@pytest.fixture
def browser(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


@pytest.fixture
def browser_of(db: None) -> Callable[..., Client]:
    """Return a browser of somebody with some of relay's permissions."""

    def make(*names: str) -> Client:
        user = User.objects.create_user(f"user{User.objects.count()}")
        found = Permission.objects.filter(
            content_type__app_label="relay", codename__in=names
        )
        assert found.count() == len(names)
        user.user_permissions.set(found)
        client = Client()
        client.force_login(user)
        return client

    return make
