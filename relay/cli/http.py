"""Questions to a server over HTTP, by the standard library alone."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from relay.cli.errors import (
    CliError,
    ConflictError,
    MissingError,
    NotAllowedError,
    UnreachableError,
    UsageError,
)
from relay.cli.printer import inert

__all__ = ["ANSWER_SECONDS", "Answer", "Http", "path"]

ANSWER_SECONDS: Final = 30.0
# Longer than any answer that is meant: a page of jobs with all their arguments.
_MOST_BYTES: Final = 256 * 1024 * 1024
_ERRORS: Final[Mapping[int, type[CliError]]] = {
    400: UsageError,
    401: NotAllowedError,
    403: NotAllowedError,
    404: MissingError,
    409: ConflictError,
    412: ConflictError,
    413: UsageError,
    415: UsageError,
    422: UsageError,
    502: UnreachableError,
    503: UnreachableError,
    504: UnreachableError,
}
# Codes that say more than their status.
_CODES: Final[Mapping[str, type[CliError]]] = {
    "unknown_task": MissingError,
    "too_slow": CliError,
    "key_missing": CliError,
}


class Answer(dict[str, Any]):
    """A document of a server's; what is missing in it is told of, with a remedy."""

    def __missing__(self, name: str) -> Any:
        raise UnreachableError(
            f"the server answers without {name!r}: is it relay, and of this release?"
        )


def path(*parts: str) -> str:
    """Return a path of names that may hold anything."""
    return "/".join(quote(part, safe="") for part in parts)


class _NoRedirect(HTTPRedirectHandler):
    """The token is for the server that was named, not for where it points to."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Http:
    """One server.

    Attributes:
        status: of the latest answer.

    Args:
        url: where relay's pages begin there, such as https://jobs.example.com.
        token: sent with each question.
        reason: why, for the record.
    """

    def __init__(
        self, url: str, *, token: str | None = None, reason: str | None = None
    ) -> None:
        url = url.strip()
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or not parts.hostname:
            raise UsageError(f"--server {url!r}: write http://… or https://…")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise UsageError(
                "--server: the address alone; the token is for RELAY_TOKEN or a profile"
            )
        self.url = url.rstrip("/")
        self.status = 0
        self._headers = {"User-Agent": "relay-cli"}
        if token is not None:
            if not token.isascii() or not token.isprintable() or not token:
                raise UsageError("RELAY_TOKEN holds no token: it is one printable word")
            self._headers["Authorization"] = f"Bearer {token}"
        if reason is not None:
            # The bytes of UTF-8, as HTTP carries bytes.
            self._headers["Relay-Reason"] = inert(reason).encode().decode("latin-1")
        self._opener = build_opener(_NoRedirect)

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        seconds: float = ANSWER_SECONDS,
        also: tuple[int, ...] = (),
    ) -> Any:
        """Return the document that a server answers; None for an empty answer.

        Args:
            query: parameters; those that are None are left out.
            also: statuses besides 2xx whose answers are meant.

        Raises:
            CliError: by the status, and by the code of its answer.
        """
        request = self._request(method, path, "application/json", query, body)
        return self._document(self._sent(request, seconds, also))

    def read(self, path: str) -> str:
        """Return the text that a server answers; raises as ask()."""
        found = self._sent(self._request("GET", path, "text/plain"), ANSWER_SECONDS)
        return found.decode(errors="replace")

    def _request(
        self,
        method: str,
        path: str,
        accept: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Request:
        given = {name: v for name, v in (query or {}).items() if v is not None}
        address = f"{self.url}/{path}" + (f"?{urlencode(given)}" if given else "")
        headers = {**self._headers, "Accept": accept}
        data = None
        if method in ("POST", "PATCH"):
            data = json.dumps(body or {}).encode()
            headers["Content-Type"] = "application/json"
        # The scheme was checked.
        return Request(  # noqa: S310
            address, data=data, headers=headers, method=method
        )

    def _sent(
        self, request: Request, seconds: float, also: tuple[int, ...] = ()
    ) -> bytes:
        try:
            status, text, location = self._answered(request, seconds)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise self._away(error) from None
        self.status = status
        if 200 <= status < 300 or status in also:
            return text
        raise self._error(status, text, location)

    def _answered(
        self, request: Request, seconds: float
    ) -> tuple[int, bytes, str | None]:
        """Return the status of an answer, its body, and where it points to."""
        try:
            answer = self._opener.open(request, timeout=seconds)
        except HTTPError as error:  # which is an answer too
            answer = error
        with answer:
            text = answer.read(_MOST_BYTES)
            return answer.status, text, answer.headers.get("Location")

    def _document(self, text: bytes) -> Any:
        if not text:
            return None
        try:
            return json.loads(text, object_hook=Answer)
        except (ValueError, RecursionError):
            raise UnreachableError(
                f"{self.url} answers, but not as relay does: is relay.urls there?"
            ) from None

    def _error(self, status: int, text: bytes, location: str | None) -> CliError:
        if 300 <= status < 400:
            return UnreachableError(
                f"{self.url} points elsewhere ({status}, {location}): name that server"
            )
        kind = _ERRORS.get(status, CliError)
        problem = _problem(text)
        # Refusals come from what stands before relay too.
        if problem is None or ("code" not in problem and kind is not NotAllowedError):
            if kind is not NotAllowedError and status < 500:
                kind = UnreachableError
            said = "is relay.urls there?" if problem is None else problem["detail"]
            meaning = http.client.responses.get(status, "")
            return kind(
                f"{self.url} answers {status} {meaning}, and not as relay does: {said}"
            )
        code = problem.get("code")
        for fault in problem.get("errors") or ():
            if str(fault.get("code")) in _CODES:
                code = fault["code"]
        detail = problem["detail"]
        if status == 401:
            detail += " (see RELAY_TOKEN and relay profile)"
        more = {k: problem[k] for k in ("job_id", "state", "errors") if problem.get(k)}
        return _CODES.get(str(code), kind)(detail, code=code, data=more)

    def _away(self, error: Exception) -> UnreachableError:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError | socket.timeout):
            reason = "no answer in time"
        if isinstance(reason, ssl.SSLError):
            reason = f"TLS: {reason.reason or reason}"
        return UnreachableError(f"{self.url} cannot be reached: {reason}")


def _problem(text: bytes) -> dict[str, Any] | None:
    """Return an error as relay answers it; None if it is not relay's."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("detail"), str):
        return None
    faults = found.get("errors") or []
    if not isinstance(faults, list) or not all(isinstance(f, dict) for f in faults):
        return None
    return found
