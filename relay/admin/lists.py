"""Lists and pages that stay quick at millions of rows and open whatever rows hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import connections, models
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import is_aware, localtime

from relay.admin.acting import ActingAdmin, actor_of, row_of_page
from relay.conf import get_settings
from relay.exceptions import ReadTimeout
from relay.queries.reading import COUNT_CAP, SHOWN_CHARACTERS, bounded_read, clamped

__all__ = [
    "NOTHING",
    "CappedPaginator",
    "RelayAdmin",
    "RelayChangeList",
    "StateFilter",
    "actor_of",
    "moment",
    "showing",
]

_CLAMPED: Final = "clamped_"
NOTHING: Final = "–"  # noqa: RUF001 - an en dash

_M = TypeVar("_M", bound=models.Model)


def showing(text: str | None) -> SafeString | str:
    """Return a text from cut() or pretty() as a page shows it, escaped."""
    if text is None:
        return NOTHING  # the pages, unlike the lists, would say None
    if len(text) > SHOWN_CHARACTERS:
        text = f"{text[:SHOWN_CHARACTERS]}\n… (cut at {SHOWN_CHARACTERS:,} characters)"
    return format_html("<pre>{}</pre>", text)


def moment(value: datetime | None) -> SafeString | str:
    """Return a time in the current zone, to the second: leases are of seconds."""
    if value is None:
        return NOTHING
    local = localtime(value) if is_aware(value) else value  # as USE_TZ says
    return format_html(
        '<time class="nowrap" datetime="{}">{}</time>',
        local.isoformat(timespec="milliseconds"),
        local.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds"),
    )


def _moment_of(field: models.Field[Any, Any]) -> Callable[[Any], SafeString | str]:
    """Return the column of lists and pages that shows a time by moment()."""

    @admin.display(description=field.verbose_name)
    def shown(row: Any) -> SafeString | str:
        return moment(getattr(row, field.attname))

    shown.__name__ = field.attname  # the admin's class for the cell
    return shown


class StateFilter(admin.SimpleListFilter):
    """By state, as stored; a subclass names the states."""

    states: type[models.TextChoices]

    title = "state"
    parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        return [(state.value, state.label) for state in self.states]

    def queryset(
        self, request: HttpRequest, queryset: models.QuerySet[Any]
    ) -> models.QuerySet[Any]:
        state = self.value()
        if state is None:
            return queryset
        if state not in self.states.values:
            raise IncorrectLookupParameters(f"no state is called {state!r}")
        return queryset.filter(state=state)


# As vacuum and ANALYZE have left it: below zero where neither has been there yet.
COUNT_ALL: Final = """
SELECT count(*), (
    SELECT reltuples::int8 FROM pg_class WHERE oid = to_regclass(%(name)s))
FROM (SELECT FROM {table} ORDER BY {key} DESC LIMIT %(most)s) AS newest
"""


class _Capped(int):
    """A count that stands for itself or more, and says so; or how many about."""

    about = 0

    def __str__(self) -> str:
        return f"about {self.about:,}" if self.about > self else f"{int(self):,}+"


if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator


class CappedPaginator(_Paginator):
    """Counts up to COUNT_CAP, along the index that serves the list.

    Of a list without a filter that is longer it tells PostgreSQL's own estimate.
    """

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        assert isinstance(rows, models.QuerySet)  # noqa: S101 - what the admin passes
        found, about = (
            (rows.values("pk")[: COUNT_CAP + 1].count(), 0)
            if rows.query.where
            else self._of_all(rows)
        )
        if found <= COUNT_CAP:
            return found
        if settings.USE_THOUSAND_SEPARATOR:
            # Grouping digits is done on the text, which has to be a plain number then.
            return COUNT_CAP
        capped = _Capped(COUNT_CAP)
        capped.about = about
        return capped

    def _of_all(self, rows: models.QuerySet[Any]) -> tuple[int, int]:
        """Return how many rows a table has, up to the cap, and the estimate."""
        connection, about = connections[rows.db], rows.model._meta
        key, table = about.pk.column, connection.ops.quote_name(about.db_table)
        text = COUNT_ALL.format(table=table, key=connection.ops.quote_name(key))
        values: dict[str, Any] = {"name": table, "most": COUNT_CAP + 1}
        with connection.cursor() as cursor:
            cursor.execute(text, values)
            [(found, estimate)] = cursor.fetchall()
        return found, estimate or 0


class RelayChangeList(ChangeList):
    """A list in the one order that its index gives, read at once."""

    def get_ordering(
        self, request: HttpRequest, queryset: models.QuerySet[Any]
    ) -> list[Any]:
        return list(self.model_admin.get_ordering(request))

    def get_ordering_field_columns(self) -> dict[int, Any]:
        return {}

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        assert isinstance(self.model_admin, RelayAdmin)  # noqa: S101 - made by it
        made_readable = self.model_admin.made_readable
        self.result_list = [made_readable(row) for row in self.result_list]


class RelayAdmin(ActingAdmin):
    """What relay's tables share in the admin: rows are looked at, not edited.

    A mixin, for Django's ModelAdmin or another. No form writes, unless a subclass says
    so. Times that Python cannot hold are shown as the nearest it can.
    """

    class Media:
        css = {"all": ("relay/admin/relay.css",)}  # noqa: RUF012 - as ModelAdmin has it

    # The permission to look, one of relay.operations.PERMISSIONS.
    view_permission: str

    # Columns that no list shows and that may be large.
    large_columns: Sequence[str] = ()
    # What a page shows besides the columns.
    page_annotations: dict[str, models.Expression] = {}  # noqa: RUF012 - never written
    # Query parameters that filter; a column that has no index is not among them.
    filter_parameters: Sequence[str] = ()

    paginator = CappedPaginator
    list_per_page = 50
    list_max_show_all = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    list_select_related = ()
    actions_on_bottom = False
    view_on_site = False
    empty_value_display = NOTHING

    @property
    def alias(self) -> str:
        """The database that holds the jobs."""
        return get_settings().database

    @cached_property
    def _moments(self) -> dict[str, Callable[[Any], SafeString | str]]:
        """The columns of times, and what shows each."""
        return {
            field.attname: _moment_of(field)
            for field in self.opts.concrete_fields
            if isinstance(field, models.DateTimeField)
        }

    def shown(self, names: Iterable[Any]) -> tuple[Any, ...]:
        """Return the names of columns, those of times as what shows them."""
        return tuple(self._moments.get(name, name) for name in names)

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        return self.shown(super().get_list_display(request))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return [
            (title, {**options, "fields": self.shown(options["fields"])})
            for title, options in super().get_fieldsets(request, obj)
        ]

    def get_readonly_fields(
        self, request: HttpRequest, obj: Any = None
    ) -> tuple[Any, ...]:
        return self.shown(super().get_readonly_fields(request, obj))

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Any]:
        rows: models.QuerySet[Any] = super().get_queryset(request).using(self.alias)
        readable = {_CLAMPED + name: clamped(name) for name in self._moments}
        rows = rows.annotate(**readable)
        return rows.defer(*self._moments, *self.large_columns)

    def made_readable(self, row: _M) -> _M:
        """Return the row of get_queryset() with its times set to what can be shown."""
        for name in self._moments:
            setattr(row, name, getattr(row, _CLAMPED + name))
        return row

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        if "\x00" in object_id:
            return None
        field: Any = self.opts.get_field(from_field) if from_field else self.opts.pk
        rows = self.get_queryset(request).annotate(**self.page_annotations)
        try:
            value = field.to_python(object_id)
            return self.made_readable(rows.get(**{field.name: value}))
        except (self.model.DoesNotExist, ValidationError, ValueError):
            return None

    def needs_bitmaps(self, request: HttpRequest) -> bool:
        """Tell whether what is asked for is found by an index that has no order."""
        return False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return RelayChangeList

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        try:
            with bounded_read(self.alias, bitmaps=self.needs_bitmaps(request)):
                return super().get_changelist_instance(request)
        except ReadTimeout as error:
            message = str(error)
            self.message_user(
                request, f"{message[0].upper()}{message[1:]}.", messages.ERROR
            )
            raise IncorrectLookupParameters from error

    def lookup_allowed(
        self, lookup: str, value: str, request: HttpRequest | None = None
    ) -> bool:
        return lookup in self.filter_parameters

    def selected_ids(
        self, request: HttpRequest, queryset: models.QuerySet[Any], *, limit: int
    ) -> list[Any] | None:
        """Return the keys an action is about; None, said to the user, if too many.

        What was ticked counts even if it has left the list's filter since: the act
        itself says what it skipped.
        """
        if (key := row_of_page(request)) is not None:
            return [self.opts.pk.to_python(key)]
        if request.POST.get("select_across") == "1":
            with bounded_read(self.alias, bitmaps=self.needs_bitmaps(request)):
                ids = list(queryset.values_list("pk", flat=True)[: limit + 1])
        else:
            ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)
            ids = [self.opts.pk.to_python(value) for value in ticked[: limit + 1]]
        if len(ids) <= limit:
            return ids
        self.message_user(
            request,
            f"More than {limit:,} are selected; nothing was changed. Narrow the "
            "filter, or go page by page.",
            messages.ERROR,
        )
        return None

    def is_all_of_more(
        self, request: HttpRequest, queryset: models.QuerySet[Any], *, limit: int
    ) -> bool:
        """Tell whether an action is about the whole list, and that is longer."""
        if request.POST.get("select_across") != "1" or row_of_page(request):
            return False
        with bounded_read(self.alias, bitmaps=self.needs_bitmaps(request)):
            return len(queryset.values_list("pk")[: limit + 1]) > limit

    def response_action(
        self,
        request: HttpRequest,
        queryset: models.QuerySet[Any],
        *where: Any,  # Django 6.1 says whether the form or the list asks
        **options: Any,
    ) -> HttpResponse | None:
        for value in request.POST.getlist(ACTION_CHECKBOX_NAME):
            try:
                self.opts.pk.to_python(value)
                is_known = "\x00" not in value
            except ValidationError:
                is_known = False
            if not is_known:
                self.message_user(request, "The selection is no list of keys.", "error")
                return None
        return super().response_action(request, queryset, *where, **options)

    def link(self, model: str, key: Any) -> SafeString | str:
        """Return a link to the page of relay's row of this model and key."""
        if key is None:
            return NOTHING
        name = f"{self.admin_site.name}:relay_{model}_change"
        try:
            return format_html('<a href="{}">{}</a>', reverse(name, args=[key]), key)
        except NoReverseMatch:  # the host's admin site leaves that model out
            return format_html("{}", key)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return actor_of(request).may(self.view_permission)

    def has_module_permission(self, request: HttpRequest) -> bool:
        # Asked on the page where one logs in, too.
        if not request.user.is_authenticated:
            return False
        return bool(self.has_view_or_change_permission(request))
