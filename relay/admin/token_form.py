"""The form of a new API token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError

from relay.admin.act_form import ActForm
from relay.conf import LONGEST
from relay.operations import SCOPES, Actor
from relay.operations.tokens import DEFAULT_LIFE

__all__ = ["TokenForm"]

_SAYS: Final = {
    "read": "look at jobs, queues, workers, schedules and figures",
    "payload": "see arguments, results and progress",
    "submit": "enqueue jobs",
    "operate": "what read may, and act on jobs, queues, workers and schedules",
    "admin": "everything",
}


class TokenForm(ActForm):
    """What operations.create_token takes; offers who asks no more than they may do.

    Args:
        actor: who asks.
    """

    name = forms.CharField(
        max_length=100, help_text="What people call it; the record names it."
    )
    scopes = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple)
    queues = forms.CharField(
        required=False,
        help_text="The only ones whose jobs it is for, between commas. Empty: all.",
    )
    tasks = forms.CharField(
        required=False,
        help_text="The only ones that it may have run, by their names or as mail.*, "
        "between commas. Empty: all, without those that ask for a permission.",
    )
    expires_in = forms.IntegerField(
        label="Expires in days",
        required=False,
        min_value=1,
        max_value=LONGEST.days,
        initial=DEFAULT_LIFE.days,
    )
    never_expires = forms.BooleanField(required=False)
    reason = forms.CharField(
        required=False, max_length=500, help_text="Why, for the record."
    )

    def __init__(self, *args: Any, actor: Actor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scopes = self.fields["scopes"]
        assert isinstance(scopes, forms.MultipleChoiceField)  # noqa: S101 - as above
        scopes.choices = [
            (scope, f"{scope}: {_SAYS[scope]}")
            for scope, permissions in SCOPES.items()
            if all(map(actor.may, permissions))
        ]

    def clean_queues(self) -> Sequence[str] | None:
        return self._names("queues")

    def clean_tasks(self) -> Sequence[str] | None:
        return self._names("tasks")

    def _names(self, field: str) -> Sequence[str] | None:
        names = [each.strip() for each in self.cleaned_data[field].split(",")]
        return [name for name in names if name] or None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        days, is_endless = cleaned.get("expires_in"), cleaned.get("never_expires")
        if "expires_in" in cleaned and days is None and not is_endless:
            text = "Say in how many days it ends, or that it never does."
            self.add_error("expires_in", ValidationError(text))
        return cleaned

    def options(self) -> dict[str, Any]:
        """Return what the operation is called with, by name."""
        given = self.cleaned_data
        is_endless = given["never_expires"]
        return {
            "name": given["name"],
            "scopes": given["scopes"],
            "queues": given["queues"],
            "tasks": given["tasks"],
            "expires_in": None if is_endless else timedelta(days=given["expires_in"]),
        }
