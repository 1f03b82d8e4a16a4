"""API tokens in the admin: made, looked at, revoked. A secret is shown once."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION
from django.core.exceptions import PermissionDenied
from django.db import models
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from relay import operations
from relay.admin.lists import RelayAdmin, actor_of
from relay.admin.token_form import TokenForm
from relay.exceptions import ArgumentError, Conflict, NotAllowed, NotFound
from relay.models import ApiToken
from relay.operations.tokens import UNCOMPRESSED
from relay.queries.tokens import STATE

__all__ = ["ApiTokenAdminMixin"]

MOST_AT_ONCE: Final = 100


class ApiTokenAdminMixin(RelayAdmin):
    """One token a line, the newest first; also those that are over."""

    view_permission = "view_apitoken"
    buttons = {"revoke": "Revoke"}  # noqa: RUF012 - never written
    large_columns = ("digest",)

    list_display = (
        "name",
        "prefix",
        "state",
        "scope_names",
        "queue_names",
        "task_names",
        "created_by",
        "created_at",
        "expires_at",
        "last_used_at",
    )
    actions = ("revoke",)
    fields = (
        "id",
        "name",
        "prefix",
        "state",
        "scope_names",
        "queue_names",
        "task_names",
        "created_by",
        "created_at",
        "expires_at",
        "revoked_at",
        "last_used_at",
    )

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[ApiToken]:
        rows: models.QuerySet[ApiToken] = super().get_queryset(request)
        state = RawSQL(STATE, [], models.TextField())  # noqa: S611 - constants
        return rows.annotate(state_now=state)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    @admin.display(description="state")
    def state(self, token: Any) -> str:
        return str(token.state_now)

    @admin.display(description="scopes")
    def scope_names(self, token: ApiToken) -> str:
        return ", ".join(token.scopes)

    @admin.display(description="queues")
    def queue_names(self, token: ApiToken) -> str:
        return "all" if token.queues is None else ", ".join(token.queues)

    @admin.display(description="tasks")
    def task_names(self, token: ApiToken) -> str:
        return "all" if token.tasks is None else ", ".join(token.tasks)

    # --- acts ------------------------------------------------------------------------

    def has_manage_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("manage_token")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_manage_permission(request)

    def is_possible(self, action: str, row: ApiToken) -> bool:
        return row.revoked_at is None

    def add_view(
        self,
        request: HttpRequest,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Make a token, and answer with its secret: no message or row may hold it."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        actor = actor_of(request)
        form = TokenForm(
            request.POST or None, actor=actor, widgets=self.formfield_overrides
        )
        if form.is_valid():
            try:
                made = operations.create_token(actor, **form.options())
            except NotAllowed as error:
                raise PermissionDenied(str(error)) from error
            except ArgumentError as error:
                form.refuse(error)
            else:
                self.log_acts(request, [made.token], "Token made.", flag=ADDITION)
                return self._show_once(request, made)
        title = "Make an API token"
        return self.form_page(request, form, title=title, button="Make it")

    def _show_once(
        self, request: HttpRequest, made: operations.NewToken
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": "The token was made",
            "opts": self.opts,
            "token": made.token,
            "secret": made.secret,
            "may_view": self.has_view_permission(request),
            "media": self.media,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request, "admin/relay/token.html", context, headers=dict(UNCOMPRESSED)
        )

    @admin.action(description="Revoke selected API tokens", permissions=["manage"])
    def revoke(
        self, request: HttpRequest, queryset: models.QuerySet[ApiToken]
    ) -> HttpResponse | None:
        ids = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        if ids is None:
            return None
        rows = ApiToken.objects.using(self.alias).filter(pk__in=ids)
        tokens = list(rows.only("id", "name", "prefix").order_by("id"))
        if not self.is_confirmed(request):
            lines = (
                "From the next request on these open nothing, and never again:",
                *map(str, tokens),
            )
            count = f"{len(tokens):,} token" + ("s" if len(tokens) != 1 else "")
            return self.ask(
                request,
                title="Revoke API tokens",
                lines=lines,
                button=f"Revoke {count}",
            )
        revoked: list[ApiToken] = []
        for token in tokens:
            try:
                operations.revoke_token(actor_of(request), token.pk)
            except (Conflict, NotFound) as error:
                self.message_user(request, f"{error}.", messages.WARNING)
            else:
                revoked.append(token)
        self.log_acts(request, revoked, "Token revoked.")
        self.message_user(request, f"{len(revoked):,} revoked.", messages.SUCCESS)
        return None
