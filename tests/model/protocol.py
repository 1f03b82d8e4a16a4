"""A job's way between workers as an abstract machine: its steps.

Each mirrors one statement of relay/engine, which is atomic because it decides under the
lock of the row that it changes, or one act of relay/worker:

    claim            engine/claim.py CLAIM. A late one: its snapshot was taken while
                     the worker was alive, it commits after that was stopped or lost
    write            the end of a handler in worker/loop.py, and engine/finish.py
                     COMPLETE or SETTLE (retry, fail, release, cancel) by their fence;
                     what is unanswered is written again, what is in flight may arrive
                     at any time
    release unknown  engine/holdings.py HELD, then RELEASE_HELD
    settle           engine/holdings.py SETTLE_DEAD_CHILD, then engine/lease.py
                     SET_STATE; uncharged: relay itself had killed the child
    give up          the lease ends, and engine/lease.py GIVE_UP: never of a worker that
                     runs, which worker/fence.py ends before that
    take             engine/lease.py TAKE, from whom GIVE_UP or ORPHAN_HOLDERS found
    renew            engine/lease.py RENEW
    cancel           engine/control.py CANCEL

Left out: what is due when (a retry waits as a queued job does), snoozes, manual
retries, priorities, limits, paused queues, outages of the database, a server that goes
back in time. A worker is one child process with its row. One that has ended comes back
at once under a new id, as soon as no job's row names the old one. Attempts are not
numbered: a token is the row's or it is stale for ever, which is all that a fence can
tell; what kind of outcome is in flight is chosen where it arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from tests.model.state import Cell, Job, Limits, State, Step, Worker

__all__ = ["MUTANTS", "first_state", "steps"]

# Ways to make the protocol worse, each with the rule that it breaks.
MUTANTS: Final = {
    "finish by id": "J6",
    "finish by id and state": "J5",
    "finish without attempt": "J5",
    "claim keeps the attempt": "J4",
    "give up without a second look": "J8",
    "take without a second look": "J6",
    "take by elapsed time": "J8",
    "take uncharged": "J10",
    "renewal revives": "J8",
    "no fence": "J8",
    "settle before the process is reaped": "J8",
    "no orphan sweep": "J1",
    "unknown rows are kept": "J1",
    "retry deaf to cancel": "J17",
    "take deaf to cancel": "J17",
    "retry without end": "J11",
    "crash without end": "J11",
}

OUTCOMES: Final = ("completed", "failed", "handed back")

_NOTHING: Final = Cell()


def first_state(workers: int, jobs: int) -> State:
    """Return the state in which all jobs wait and all workers are idle."""
    return State((Job(),) * jobs, (Worker(cells=(_NOTHING,) * jobs),) * workers)


def steps(state: State, limits: Limits, mutant: str = "") -> Iterator[Step]:
    """Yield every step that can follow.

    Args:
        mutant: one of MUTANTS, for a protocol made worse.
    """
    protocol = _Protocol(state, limits, mutant)
    for number in range(len(state.workers)):
        yield from protocol.of_worker(number)
        for place in range(len(state.jobs)):
            yield from protocol.of_pair(number, place)
    for place in range(len(state.jobs)):
        yield from protocol.of_job(place)


class _Protocol:
    def __init__(self, state: State, limits: Limits, mutant: str) -> None:
        self.jobs, self.workers = state
        self.limits = limits
        self.mutant = mutant

    # --- a worker ----------------------------------------------------------------

    def of_worker(self, number: int) -> Iterator[Step]:
        worker = self.workers[number]
        if _is_idle(worker):
            return
        process = worker.process
        if process == "up":
            for gone in ("paused", "dead"):
                for cells in _with_outcomes_sent(worker):
                    changed = worker._replace(process=gone, cells=cells)
                    yield self._of(number, gone, changed, is_fault=True)
        elif process == "paused":
            if not worker.is_lost:
                yield self._of(number, "goes on", worker._replace(process="up"))
            yield self._of(number, "goes on, late", worker._replace(process="late"))
            yield self._of(
                number, "dead", worker._replace(process="dead"), is_fault=True
            )
        elif process == "late":
            yield self._of(number, "is ended", worker._replace(process="dead"))
        yield from self._lease(number, worker)
        if not worker.is_lost and (
            process == "dead" or self.mutant == "settle before the process is reaped"
        ):
            yield from self._settle(number, worker)

    def _lease(self, number: int, worker: Worker) -> Iterator[Step]:
        revives = self.mutant == "renewal revives" and worker.is_lost
        if worker.process == "late" and (not worker.is_lost or revives):
            changed = worker._replace(process="up", is_lost=False)
            yield self._of(number, "renew", changed)
        if worker.is_lost:
            return
        lost = worker._replace(is_lost=True, is_seen=False)
        is_over = worker.process != "up" or self.mutant == "no fence"
        if self.mutant == "give up without a second look":
            if is_over and not worker.is_seen:
                yield self._of(number, "reaper looks", worker._replace(is_seen=True))
            if worker.is_seen:
                yield self._of(number, "give up", lost)
        elif is_over:
            yield self._of(number, "give up", lost)

    def _settle(self, number: int, worker: Worker) -> Iterator[Step]:
        for is_charged in (True, False):
            jobs, charged = {}, []
            for place, cell in enumerate(worker.cells):
                if not cell.owns:
                    continue
                job = self.jobs[place]
                if is_charged and cell.hand and not job.is_asked:
                    crashes = job.crashes + 1
                    job = job._replace(crashes=crashes)
                    charged.append(place)
                    has_ended = crashes >= self.limits.crashes
                    if self.mutant == "crash without end":
                        has_ended = False
                    jobs[place] = _ended(job) if has_ended else _back(job)
                else:
                    jobs[place] = _back(job)
            changed = worker._replace(is_lost=True)
            state = self._after(number, changed, jobs)
            verb = "settle" if is_charged else "settle uncharged"
            yield Step(verb, number, None, state, charged=tuple(charged))

    # --- a worker and a job ------------------------------------------------------

    def of_pair(self, number: int, place: int) -> Iterator[Step]:
        worker, job = self.workers[number], self.jobs[place]
        cell = worker.cells[place]
        if job.state == "waiting" and not cell.hand:
            yield from self._claim(number, place)
        if not any(cell):
            return
        if cell.hand and worker.process in ("up", "late"):
            yield from self._write(number, place, cell._replace(hand=""))
        if cell.wire:
            yield from self._write(number, place, cell._replace(wire=""))
        if cell.owns:
            yield from self._lose(number, place)

    def _claim(self, number: int, place: int) -> Iterator[Step]:
        worker = self.workers[number]
        process = worker.process
        if process == "up" and not worker.is_lost:
            yield self._claimed(number, place, worker, "claim")
            verb = "claim, unanswered"
            yield self._claimed(number, place, worker, verb, is_answered=False)
        elif process in ("paused", "dead"):
            yield self._claimed(number, place, worker, "claim, late")
        if _is_idle(worker):
            for gone in ("paused", "dead"):
                changed = worker._replace(process=gone, is_lost=True)
                verb = f"{gone} and given up; its claim, late, of"
                yield self._claimed(number, place, changed, verb)

    def _claimed(
        self,
        number: int,
        place: int,
        worker: Worker,
        verb: str,
        *,
        is_answered: bool = True,
    ) -> Step:
        is_answered = is_answered and worker.process != "dead"
        wire = worker.cells[place].wire
        if self.mutant == "claim keeps the attempt":
            wire = wire.lower()
        cell = Cell(owns=True, hand="r" if is_answered else "", wire=wire)
        job = self.jobs[place]._replace(state="running")
        state = self._after(number, _with_cell(worker, place, cell), {place: job})
        return Step(verb, number, place, state, is_fault=verb != "claim")

    def _write(self, number: int, place: int, after: Cell) -> Iterator[Step]:
        """Yield what an outcome does, of a handler that ends or that was in flight."""
        worker, job = self.workers[number], self.jobs[place]
        cell = worker.cells[place]
        answered = _with_cell(worker, place, after)
        is_stale = (cell.hand if cell.hand != after.hand else cell.wire).isupper()
        is_fenced = job.state == "running" and cell.owns and not is_stale
        is_written = is_fenced or self._is_let_through(job, cell)
        if not is_written:
            yield self._of(number, "write: refused,", answered, place)
        for outcome in OUTCOMES if is_written else ():
            jobs = {place: self._written(job, outcome)}
            step = Step(
                f"write: {outcome},",
                number,
                place,
                self._after(number, answered, jobs),
                is_fenced=is_fenced,
                charged=(place,) if outcome == "failed" else (),
            )
            yield step
            if worker.process != "dead" and not after.wire:
                again = _with_cell(worker, place, after._replace(wire="o"))
                yield step._replace(
                    verb=f"unanswered {step.verb}",
                    state=self._after(number, again, jobs),
                    is_fault=True,
                )
        if worker.process == "dead":
            yield self._of(number, "outcome lost,", answered, place, is_fault=True)

    def _is_let_through(self, job: Job, cell: Cell) -> bool:
        if self.mutant == "finish by id":
            return True
        is_running = job.state == "running"
        if self.mutant == "finish by id and state":
            return is_running
        return self.mutant == "finish without attempt" and is_running and cell.owns

    def _written(self, job: Job, outcome: str) -> Job:
        if outcome == "completed":
            return _ended(job, "completed")
        if outcome == "handed back":
            return _back(job)
        job = job._replace(failures=job.failures + 1)
        has_ended = job.failures > self.limits.max_retries
        if has_ended and self.mutant != "retry without end":
            return _ended(job)
        if self.mutant == "retry deaf to cancel":
            return job._replace(state="waiting")
        return _back(job)

    def _lose(self, number: int, place: int) -> Iterator[Step]:
        """Yield how a job is taken from who has its row."""
        worker, job = self.workers[number], self.jobs[place]
        cell = worker.cells[place]
        is_unknown = not cell.hand and cell.wire != "o"
        is_heard = worker.process == "up" and not worker.is_lost
        if is_heard and is_unknown and self.mutant != "unknown rows are kept":
            state = self._after(None, None, {place: _back(job)})
            yield Step("release unknown", number, place, state)
        if self.mutant == "take by elapsed time":
            yield Step("take", number, place, self._taken(place), charged=(place,))
        elif not worker.is_lost:
            return
        elif self.mutant == "take without a second look":
            if not job.is_seen:
                state = self._after(None, None, {place: job._replace(is_seen=True)})
                yield Step("reaper looks at", number, place, state)
        elif self.mutant != "no orphan sweep" or worker.process != "dead":
            yield Step("take", number, place, self._taken(place), charged=(place,))

    def _taken(self, place: int) -> State:
        job = self.jobs[place]._replace(is_seen=False)
        if self.mutant != "take uncharged":
            job = job._replace(losses=job.losses + 1)
        if self.mutant == "take deaf to cancel":
            job = job._replace(state="waiting")
        elif job.losses >= self.limits.losses and not job.is_asked:
            job = _ended(job)
        else:
            job = _back(job)
        return self._after(None, None, {place: job})

    # --- a job -------------------------------------------------------------------

    def of_job(self, place: int) -> Iterator[Step]:
        job = self.jobs[place]
        if job.state == "waiting":
            state = self._after(None, None, {place: _ended(job, "cancelled")})
            yield Step("cancel", None, place, state, is_fault=True)
        elif job.state == "running" and not job.is_asked:
            state = self._after(None, None, {place: job._replace(is_asked=True)})
            yield Step("cancel", None, place, state, is_fault=True)
        if job.is_seen:
            yield Step("take", None, place, self._taken(place), charged=(place,))
        if job.is_haunted and self._is_let_through(job, _NOTHING):
            jobs = {place: _ended(job, "completed")}
            state = self._after(None, None, jobs)
            verb = "write of one that is gone:"
            yield Step(verb, None, place, state, False, False)

    # --- what follows from a change ----------------------------------------------

    def _of(
        self,
        number: int,
        verb: str,
        worker: Worker,
        place: int | None = None,
        *,
        is_fault: bool = False,
    ) -> Step:
        return Step(verb, number, place, self._after(number, worker, {}), is_fault)

    def _after(
        self, number: int | None, worker: Worker | None, jobs: dict[int, Job]
    ) -> State:
        """Return the state with these rows changed, and what follows at once."""
        rows = list(self.jobs)
        workers = list(self.workers)
        if worker is not None and number is not None:
            workers[number] = worker
        for place, job in jobs.items():
            rows[place] = job
            if job.state != "running":
                workers = [_disowned(one, place) for one in workers]
        for at, one in enumerate(workers):
            if one.process == "dead":
                workers[at] = self._buried(one, rows)
            elif one.process != "up" and not any(map(any, one.cells)):
                workers[at] = Worker(cells=one.cells)
        return State(tuple(rows), tuple(workers))

    def _buried(self, worker: Worker, rows: list[Job]) -> Worker:
        """Leave of a dead worker what its rows need; what it sent stays in flight."""
        cells = []
        for place, (owns, hand, wire) in enumerate(worker.cells):
            if wire and not (owns and wire == "o"):
                rows[place] = rows[place]._replace(is_haunted=True)
                wire = ""
            cells.append(Cell(owns, hand if owns else "", wire))
        if any(cell.owns for cell in cells):
            return worker._replace(cells=tuple(cells))
        return Worker(cells=(_NOTHING,) * len(cells))


# --- rows ------------------------------------------------------------------------


def _is_idle(worker: Worker) -> bool:
    return worker.process == "up" and not any(map(any, worker.cells))


def _back(job: Job) -> Job:
    """Return the row of a job that goes back, or ends as it was asked to."""
    return _ended(job, "cancelled") if job.is_asked else job._replace(state="waiting")


def _ended(job: Job, state: str = "failed") -> Job:
    return job._replace(state=state)


def _with_cell(worker: Worker, place: int, cell: Cell) -> Worker:
    cells = worker.cells
    return worker._replace(cells=(*cells[:place], cell, *cells[place + 1 :]))


def _disowned(worker: Worker, place: int) -> Worker:
    """Take the job's row from the worker, which does not know yet."""
    cell = worker.cells[place]
    if not cell.owns:
        return worker
    stale = Cell(hand=cell.hand.upper(), wire=cell.wire.upper())
    return _with_cell(worker, place, stale)


def _with_outcomes_sent(worker: Worker) -> Iterator[tuple[Cell, ...]]:
    """Yield what a worker holds as it is struck: some handlers may just have ended."""
    yield from product(
        *(
            (cell, cell._replace(hand="", wire=_sent(cell)))
            if cell.hand and not cell.wire
            else (cell,)
            for cell in worker.cells
        )
    )


def _sent(cell: Cell) -> str:
    return "o" if cell.hand.islower() else "O"
