"""Acts on rows: actions of a list, buttons above a page, and the question before some.

Each action asks for the permission of its act. Who may not do it is offered no button,
and is refused where they ask all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.module_loading import import_string

from relay.exceptions import Conflict, NotFound
from relay.operations import Actor

__all__ = ["ActingAdmin", "Tool", "actor_of", "row_of_page"]

# What the question itself posts, besides what was posted before it.
_ANSWER: Final = frozenset({"csrfmiddlewaretoken", "confirmed", "typed", "reason"})

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = object  # a mixin: of Django's ModelAdmin, or of another


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What stands above the page of one row.

    Attributes:
        label: what it says.
        url: where it leads, or is posted.
        action: the action that is posted; None where it is a link.
    """

    label: str
    url: str
    action: str | None = None


def actor_of(request: HttpRequest) -> Actor:
    """Return who asks for an act, what they may do, and why they say they do it.

    Raises:
        PermissionDenied: nobody is logged in.
    """
    if not request.user.is_authenticated:
        raise PermissionDenied
    reason = request.POST.get("reason")
    return Actor.of_request(request, source="admin", reason=reason)


def row_of_page(request: HttpRequest) -> str | None:
    """Return the key of the row whose page asks, as text; None of a list."""
    match = request.resolver_match
    key = None if match is None else match.kwargs.get("object_id")
    return None if key is None else unquote(key)


class ActingAdmin(_ModelAdmin):
    """Actions that a page offers too, and pages that ask before an act is done."""

    # Actions that a page offers as buttons, and what the buttons say.
    buttons: Mapping[str, str] = {}

    # --- addresses -------------------------------------------------------------------

    def url_name(self, name: str) -> str:
        """Return the name of an address of this model, without its namespace."""
        return f"{self.opts.app_label}_{self.opts.model_name}_{name}"

    def url_of(self, name: str, key: Any = None) -> str:
        """Return the address of a page of this model, or of one of its rows."""
        args = [] if key is None else [quote(key)]
        return reverse(f"{self.admin_site.name}:{self.url_name(name)}", args=args)

    def page_url(self, name: str, view: Any) -> URLPattern:
        """Return the pattern of a page of one row, for who is logged in to the admin.

        Args:
            view: takes the request and the row's key.
        """
        found: URLPattern = path(
            f"<path:object_id>/{name}/",
            self.admin_site.admin_view(view),
            name=self.url_name(name),
        )
        return found

    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("act", self.act_view), *super().get_urls()]

    # --- actions ---------------------------------------------------------------------

    def get_actions(
        self, request: HttpRequest, action_location: Any = None
    ) -> dict[str, Any]:
        # Django 6.1 looks for the argument by its name; 6.0 does not know it.
        where = {} if action_location is None else {"action_location": action_location}
        found: dict[str, Any] = super().get_actions(request, **where)
        found.pop("delete_selected", None)
        return found

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method == "POST":
            asked = {*request.POST.getlist("action")} & {*map(str, self.actions or ())}
            if not asked <= self.get_actions(request).keys():
                raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def act_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Run an action for one row, as a button of its page asks."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        name = request.POST.get("action", "")
        offered = self.get_actions(request)
        if name not in self.buttons or name not in offered:
            raise PermissionDenied
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return self.is_gone(request, object_id)
        act = getattr(self, name)
        rows = self.get_queryset(request).filter(pk=row.pk)
        done: HttpResponse | None = act(request, rows)
        return done or HttpResponseRedirect(self.url_of("change", row.pk))

    def is_gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say that there is no such row, as Django does."""
        found: HttpResponse = self._get_obj_does_not_exist_redirect(  # type: ignore[attr-defined] # not in the stubs
            request, self.opts, object_id
        )
        return found

    def is_possible(self, action: str, row: Any) -> bool:
        """Tell whether a button would do anything to the row as it stands."""
        return True

    def tools(self, request: HttpRequest, row: Any) -> list[Tool]:
        """Return what stands above the row's page: what may be done, and can be."""
        offered = self.get_actions(request)
        url = self.url_of("act", row.pk)
        return [
            Tool(label=label, url=url, action=name)
            for name, label in self.buttons.items()
            if name in offered and self.is_possible(name, row)
        ]

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        if obj is not None:
            context["relay_tools"] = self.tools(request, obj)
            # A name with an id in it runs below the buttons; the crumbs have it, too.
            context["subtitle"] = None
        return super().render_change_form(request, context, add, change, form_url, obj)

    # --- deleting --------------------------------------------------------------------

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[str]]:
        """Name the rows only: what hangs on them may be millions."""
        counts = {str(self.opts.verbose_name_plural): len(objs)}
        return [str(row) for row in objs], counts, set(), []

    def delete_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        try:
            return super().delete_view(request, object_id, extra_context)
        except (Conflict, NotFound) as error:  # since the page was shown
            self.message_user(request, f"Nothing was done: {error}.", messages.ERROR)
            return HttpResponseRedirect(self.url_of("changelist"))

    # --- the question ----------------------------------------------------------------

    def ask(
        self,
        request: HttpRequest,
        *,
        title: str,
        lines: Iterable[str],
        button: str,
        typed: str | None = None,
        **values: str,
    ) -> HttpResponse:
        """Ask before an act: who answers posts the same again, and is_confirmed().

        Args:
            typed: what has to be typed besides.
            values: what is posted as well.
        """
        posted = [
            (name, value)
            for name, all_values in request.POST.lists()
            if name not in _ANSWER and name not in values
            for value in all_values
        ]
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "lines": list(lines),
            "posted": [*posted, *values.items()],
            "button": button,
            "typed": typed,
            "back": request.get_full_path()
            if (key := row_of_page(request)) is None
            else self.url_of("change", key),
            "media": self.media,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/relay/confirm.html", context)

    def is_confirmed(self, request: HttpRequest, typed: str | None = None) -> bool:
        """Tell whether the question was answered; a wrong word is told to the user."""
        if request.POST.get("confirmed") != "yes":
            return False
        if typed is None or request.POST.get("typed", "").strip() == typed:
            return True
        self.message_user(
            request, f"Nothing was done: that is not {typed!r}.", messages.ERROR
        )
        return False

    # --- forms -----------------------------------------------------------------------

    def form_page(
        self,
        request: HttpRequest,
        form: forms.BaseForm,
        *,
        title: str,
        button: str,
        row: Any = None,
        **more: Any,
    ) -> HttpResponse:
        """Show the form of an operation; what it says is saved by no model.

        Args:
            row: that it is about; None of a new one.
            more: what the template needs besides.
        """
        rows = [(None, {"fields": list(form.fields)})]
        adminform = _admin_form()(form, rows, {}, (), model_admin=self)
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "subtitle": None if row is None else str(row),
            "opts": self.opts,
            "original": row,
            "add": row is None,
            "change": False,
            "is_popup": False,
            "has_view_permission": self.has_view_permission(request),
            "adminform": adminform,
            "errors": form.errors,
            "inline_admin_formsets": [],
            "media": self.media + adminform.media,
            "button": button,
            **more,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/relay/form.html", context)

    # --- the record ------------------------------------------------------------------

    def log_acts(
        self,
        request: HttpRequest,
        rows: Sequence[Any],
        message: str,
        *,
        flag: int = CHANGE,
    ) -> None:
        """Write Django's own log of what was done, one entry a row."""
        if rows and request.user.pk is not None:
            LogEntry.objects.log_actions(request.user.pk, rows, flag, message)


def _admin_form() -> Any:
    if apps.is_installed("unfold"):  # its templates take its own
        return import_string("unfold.forms.AdminForm")
    return helpers.AdminForm
