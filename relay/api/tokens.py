"""API tokens: made, listed, revoked. A secret is answered once, and kept nowhere."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from relay import operations
from relay.api.base import ApiView, address
from relay.api.bodies import EmptyBody, TokenBody
from relay.api.endpoints import CURSOR, LIMIT, endpoint
from relay.api.once import HEADER
from relay.api.problems import ProblemError, invalid
from relay.operations.tokens import UNCOMPRESSED
from relay.queries import tokens
from relay.queries.documents import TokenDocument, TokenPage

__all__ = ["TokenRevokeView", "TokenView", "TokensView"]


class NewTokenDocument(TokenDocument):
    """A token that was made now; secret is what its holder sends, told only here."""

    secret: str


class TokensView(ApiView):
    """/v1/tokens."""

    @endpoint(
        "view_apitoken", {200: TokenPage}, query={"limit": LIMIT, "cursor": CURSOR}
    )
    def get(self, request: Request) -> Response:
        """List the tokens, the newest first; never their secrets."""
        return self.page(request, tokens.list_tokens(self.actor, **self.query))

    @endpoint("manage_token", {201: NewTokenDocument}, body=TokenBody)
    def post(self, request: Request) -> Response:
        """Make a token, for no more than its maker may do; its secret is told once."""
        if HEADER in request.headers:  # its answer would be kept, with the secret
            detail = f"{HEADER}: is not for tokens, whose secrets are kept nowhere"
            problem = invalid(HEADER, "invalid", detail)
            raise ProblemError(problem.code, problem.detail, errors=problem.errors)
        made = operations.create_token(self.actor, **self.read(request))
        token = tokens.get_token(self.who.seeing(), made.token.pk)
        place = address(request, "token", made.token.pk)
        headers = {"Location": place, **UNCOMPRESSED}
        document = NewTokenDocument(**token, secret=made.secret)
        return Response(document, status=201, headers=headers)


class TokenView(ApiView):
    """/v1/tokens/{id}."""

    @endpoint("view_apitoken", {200: TokenDocument}, codes=("not_found",))
    def get(self, request: Request, token_id: str) -> Response:
        """Return one token."""
        return Response(tokens.get_token(self.actor, self.job_id(token_id)))


class TokenRevokeView(ApiView):
    """/v1/tokens/{id}/revoke."""

    @endpoint(
        "manage_token",
        {200: TokenDocument},
        body=EmptyBody,
        codes=("not_found", "conflict"),
    )
    def post(self, request: Request, token_id: str) -> Response:
        """Let a token open nothing from the next request on; it stays on record."""
        self.read(request)
        found = self.job_id(token_id)
        operations.revoke_token(self.actor, found)
        return Response(tokens.get_token(self.who.seeing(), found))
