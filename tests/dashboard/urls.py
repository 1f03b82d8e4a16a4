"""relay below a prefix, and the admin, whose login is the project's."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("ops/", include("relay.urls")),
]
