"""The dashboard and the admin, and the way to them."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("relay/", include("relay.urls")),
    path("", RedirectView.as_view(pattern_name="relay_dashboard:overview")),
]
