"""All that relay serves: path("relay/", include("relay.urls")), or at the root.

Each address with and without a slash at its end. Closed to all whom relay allows
nothing, but for /healthz.
"""

from __future__ import annotations

from django.apps import apps
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.generic import RedirectView

from relay import api, health

__all__ = ["urlpatterns"]

urlpatterns: list[URLPattern | URLResolver] = [
    re_path(r"^healthz/?$", health.healthz, name="relay-healthz"),
    re_path(r"^readyz/?$", health.readyz, name="relay-readyz"),
    re_path(r"^metrics/?$", health.metrics_page, name="relay-metrics"),
]
if apps.is_installed("django.contrib.auth"):  # without users nobody could log in
    overview = RedirectView.as_view(pattern_name="relay_dashboard:overview")
    urlpatterns.append(path("dashboard/", include("relay.dashboard.urls")))
    urlpatterns.append(path("dashboard", overview))
if api.is_available():
    urlpatterns.append(path("", include("relay.api.urls")))
else:
    urlpatterns.append(re_path(r"^v1(?:/.*)?$", health.api_missing))
