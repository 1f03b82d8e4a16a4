"""What the rules of the state machine draw."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition

__all__ = ["KEYS", "QUEUES", "acts", "delta", "keeps", "kinds", "left_open"]
__all__ += ["minutes", "on_tokens", "pick", "sides"]

QUEUES = ("default", "other")
KEYS = ("00" * 16, "11" * 16)

pick = st.integers(0, 1_000)
minutes = st.sampled_from([10, 20, 30])
keeps = st.sampled_from([None, 0, 10, 30])
sides = st.sampled_from([0, 1])
kinds = st.sampled_from(["held", "held", "stale", "any"])
# None ends the transaction at once; else it is left open, and this says how it ends.
left_open = st.sampled_from([None, None, None, True, False])


acts = precondition(lambda self: self.blocked is None)
on_tokens = precondition(lambda self: self.blocked is None and self.tokens)


def delta(keep: int | None) -> timedelta | None:
    return None if keep is None else timedelta(minutes=keep)
