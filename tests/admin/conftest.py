"""A superuser's browser, and rows to look at."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_superuser("ada")


@pytest.fixture
def browser(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client
