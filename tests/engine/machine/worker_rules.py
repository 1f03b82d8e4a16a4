"""The rules of workers: claims, and every way in which an attempt ends."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from relay.engine import finish, holdings, lease
from relay.engine.claim import Marks, read_claimed, send_claim
from relay.engine.connection import EngineConnection
from tests.engine.machine import records as m
from tests.engine.machine.draws import (
    QUEUES,
    acts,
    keeps,
    kinds,
    left_open,
    on_tokens,
    pick,
    sides,
)
from tests.engine.machine.records import Change, Token
from tests.engine.machine.state import WORKERS, State

__all__ = ["WorkerRules"]


class WorkerRules(State):
    """What workers, keepers and reapers do."""

    def _held_tokens(self) -> list[Token]:
        return [token for token in self.tokens if self.model.holds(token)]

    def _tokens(self, number: int, kind: str, count: int = 1) -> list[Token]:
        """Return count tokens that are held, or no more held though their jobs run."""
        if kind == "held" and self.open is None and not self._held_tokens():
            self._claim(self._worker(number), 2, QUEUES, "start", 0, None)
            self.the_tables_are_what_the_model_says()
        held = self._held_tokens()
        running = {token.id for token in held}
        stale = [
            token for token in self.tokens if token.id in running and token not in held
        ]
        chosen = {"held": held, "stale": stale}.get(kind) or self.tokens
        start = number % len(chosen)
        return (chosen[start:] + chosen[:start])[:count]

    @acts
    @rule(
        number=pick,
        limit=st.integers(1, 4),
        queues=st.sampled_from([QUEUES, QUEUES[::-1], QUEUES[:1]]),
        looks_from=st.sampled_from(["start", "mark", "sweep"]),
        side=sides,
        leave_open=left_open,
    )
    def claim(
        self,
        number: int,
        limit: int,
        queues: tuple[str, ...],
        looks_from: str,
        side: int,
        leave_open: bool | None,
    ) -> None:
        worker = self._worker(number)
        self._claim(worker, limit, queues, looks_from, side, leave_open)

    @precondition(lambda self: self.open is None and self.model.ready(QUEUES))
    @rule(number=pick, side=sides)
    def jobs_go_round(self, number: int, side: int) -> None:
        """Claim, hand back and claim again, so that old tokens are about."""
        worker = self._worker(number)
        self._claim(worker, 2, QUEUES, "start", side, None)
        self.the_tables_are_what_the_model_says()
        for token in self._held_tokens():
            if token.worker == worker:
                self._release(token, side, None)
                self.the_tables_are_what_the_model_says()
        self._claim(worker, 10, QUEUES, "start", side, None)

    def _claim(
        self,
        worker: UUID,
        limit: int,
        queues: tuple[str, ...],
        looks_from: str,
        side: int,
        leave_open: bool | None,
    ) -> None:
        marks = Marks() if looks_from == "start" else self.marks[worker]
        if looks_from == "sweep":
            marks.sweep()

        def act(connection: EngineConnection) -> list[tuple[UUID, int]]:
            spans = marks.spans(queues)
            cursor = send_claim(connection, spans, limit=limit, worker_id=worker)
            jobs = read_claimed(cursor, queues)
            marks.note(jobs, limit=limit)
            return [(job.id, job.attempt) for job in jobs]

        def judge(answer: list[tuple[UUID, int]]) -> Change:
            self.tokens += [
                Token(id=job_id, worker=worker, attempt=attempt)
                for job_id, attempt in answer
            ]
            is_exact = looks_from != "mark"
            return self.model.claim(worker, queues, limit, is_exact, answer)

        self._act(side, "hot", act, judge, leave_open=leave_open)

    @on_tokens
    @rule(
        number=pick,
        kind=kinds,
        count=st.integers(1, 3),
        keep=keeps,
        side=sides,
        leave_open=left_open,
    )
    def complete(
        self,
        number: int,
        kind: str,
        count: int,
        keep: int | None,
        side: int,
        leave_open: bool | None,
    ) -> None:
        tokens = self._tokens(number, kind, count)
        worker = tokens[0].worker
        tokens = [token for token in tokens if token.worker == worker]
        # One result for each job, as in a worker: the newest it holds.
        tokens = list({token.id: token for token in tokens}.values())
        self._complete(tokens, keep, side, leave_open)

    def _complete(
        self,
        tokens: list[Token],
        keep: int | None,
        side: int,
        leave_open: bool | None,
    ) -> None:
        worker = tokens[0].worker
        done = [
            finish.Completed(token.id, token.attempt, "null", _seconds(keep))
            for token in tokens
        ]

        def act(connection: EngineConnection) -> set[UUID]:
            return finish.read_finished(
                finish.send_completed(connection, done, worker_id=worker)
            )

        judge = partial(self.model.complete, tokens, keep)
        self._act(side, "hot", act, judge, leave_open=leave_open)

    @on_tokens
    @rule(
        number=pick,
        kind=kinds,
        verb=st.sampled_from(
            ["retry", "fail", "cancel", "hand_back", "snooze", "release"]
        ),
        delay=st.sampled_from([0, 10, 20]),
        side=sides,
        leave_open=left_open,
    )
    def settle(
        self,
        number: int,
        kind: str,
        verb: Any,
        delay: int,
        side: int,
        leave_open: bool | None,
    ) -> None:
        [token] = self._tokens(number, kind)
        self._settle(token, verb, delay, side, leave_open)

    def _settle(
        self,
        token: Token,
        verb: Any,
        delay: int,
        side: int,
        leave_open: bool | None,
    ) -> None:
        is_charged = verb in ("retry", "fail")
        job = self.model.jobs.get(token.id)
        if job is not None and verb == "retry" and job.failures >= job.max_retries:
            verb = "fail"  # as the executor decides
        settled = finish.Settled(
            id=token.id,
            attempt=token.attempt,
            verb=verb,
            delay_seconds=delay * 60,
            is_charged=is_charged,
            most=m.SNOOZE_LIMIT if verb == "snooze" else None,
            error_class=None if verb == "release" else verb.capitalize(),
        )

        def act(connection: EngineConnection) -> set[UUID]:
            return finish.read_finished(
                finish.send_settled(
                    connection,
                    [settled],
                    worker_id=token.worker,
                    hand_back_limit=timedelta(minutes=m.HAND_BACK_LIMIT),
                )
            )

        def judge(answer: set[UUID]) -> Change:
            return self.model.settle(
                token,
                verb,
                delay=delay,
                is_charged=is_charged,
                answer=answer,
            )

        self._act(side, "hot", act, judge, leave_open=leave_open)

    @on_tokens
    @rule(number=pick, kind=kinds, side=sides, leave_open=left_open)
    def release_held(
        self,
        number: int,
        kind: str,
        side: int,
        leave_open: bool | None,
    ) -> None:
        [token] = self._tokens(number, kind)
        self._release(token, side, leave_open)

    def _release(self, token: Token, side: int, leave_open: bool | None) -> None:
        self._act(
            side,
            "hot",
            lambda connection: holdings.release_held(
                connection,
                token.worker,
                [(token.id, token.attempt)],
                reason="tests",
            ),
            partial(self.model.release_held, [token]),
            leave_open=leave_open,
        )

    @acts
    @rule(number=pick, count=st.integers(1, 3), side=sides, leave_open=left_open)
    def renew(
        self, number: int, count: int, side: int, leave_open: bool | None
    ) -> None:
        start = number % WORKERS
        workers = (self.workers[start:] + self.workers[:start])[:count]
        self._act(
            side,
            "duty",
            lambda connection: lease.renew(
                connection, workers, lease=timedelta(minutes=m.LEASE)
            ),
            partial(self.model.renew, workers),
            leave_open=leave_open,
        )

    @precondition(lambda self: self._is_any(["running"]))
    @rule(number=pick, state=st.sampled_from(["draining", "stopped"]), side=sides)
    def set_state(self, number: int, state: Any, side: int) -> None:
        worker = self.workers[number % WORKERS]
        self._act(
            side,
            "duty",
            lambda connection: lease.set_state(connection, [worker], state),
            lambda _: self.model.set_state(worker, state),
        )

    @precondition(
        lambda self: self.blocked is None and any(map(self._is_due, self.workers))
    )
    @rule(side=sides, leave_open=left_open)
    def give_up(self, side: int, leave_open: bool | None) -> None:
        self._act(
            side, "duty", lease.give_up, self.model.give_up, leave_open=leave_open
        )

    @precondition(lambda self: self._is_any(["running"]))
    @rule(number=pick, side=sides, leave_open=left_open)
    def take(self, number: int, side: int, leave_open: bool | None) -> None:
        self._take(self._holder(number), side, leave_open)

    def _take(self, worker: UUID, side: int, leave_open: bool | None) -> None:
        def act(connection: EngineConnection) -> int:
            count, _ = lease.take(connection, worker, loss_limit=m.LOSS_LIMIT)
            return count

        judge = partial(self.model.take, worker)
        self._act(side, "duty", act, judge, leave_open=leave_open)

    @precondition(lambda self: self._is_any(["running"]))
    @rule(
        number=pick,
        started=st.sets(pick, max_size=4),
        is_charged=st.sampled_from([True, True, False]),
        side=sides,
        leave_open=left_open,
    )
    def settle_dead_child(
        self,
        number: int,
        started: set[int],
        is_charged: bool,
        side: int,
        leave_open: bool | None,
    ) -> None:
        worker = self._holder(number)
        own = [token for token in self.tokens if token.worker == worker]
        chosen = [own[-1 - one % len(own)] for one in sorted(started)] if own else []
        begun = list({token.id: token for token in chosen}.values())
        self._settle_dead(worker, begun, is_charged, side, leave_open)

    def _settle_dead(
        self,
        worker: UUID,
        begun: list[Token],
        is_charged: bool,
        side: int,
        leave_open: bool | None,
    ) -> None:
        child = holdings.DeadChild(
            worker_id=worker,
            started=[(token.id, token.attempt) for token in begun],
            delays=[0.0, 600.0],
            is_charged=is_charged,
            reason="tests",
        )

        def act(connection: EngineConnection) -> int:
            count, _ = holdings.settle_dead_child(
                connection, child, crash_limit=m.CRASH_LIMIT
            )
            return count

        def judge(answer: int) -> Change:
            return self.model.settle_dead_child(
                worker, begun, [0, 10], is_charged, answer
            )

        self._act(side, "duty", act, judge, leave_open=leave_open)


def _seconds(keep: int | None) -> float | None:
    return None if keep is None else keep * 60
