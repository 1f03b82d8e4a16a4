"""Breadth-first search over all states of the protocol, judged by the invariants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from tests.model.protocol import first_state, steps
from tests.model.state import FINAL, Limits, State, Step, Worker

__all__ = ["Result", "search"]

LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found.

    Attributes:
        rule: the invariant that was broken; None if none was.
        trace: the shortest list of steps that breaks it, a line each.
    """

    states: int
    transitions: int
    depth: int
    rule: str | None = None
    trace: tuple[str, ...] = ()

    def describe(self) -> str:
        found = (
            f"{self.states} states, {self.transitions} transitions, depth {self.depth}"
        )
        if self.rule is None:
            return f"{found}: nothing violated"
        return "\n".join([f"{found}: {self.rule}", *self.trace])


def search(
    workers: int, jobs: int, *, limits: Limits = LIMITS, faults: int, mutant: str = ""
) -> Result:
    """Visit every state that can be reached with so many faults, names left aside.

    Ends at the first state or step that breaks an invariant, which needs the fewest
    faults, and then the fewest steps. Once all were visited, looks for a state from
    which no end can be reached without another fault.
    """
    first = _canonical(first_state(workers, jobs))
    before: dict[State, State | None] = {first: None}
    sources: dict[State, list[State]] = {}
    layer, struck = [first], []
    depth = transitions = 0
    while layer:
        following = []
        for state in layer:
            for step in steps(state, limits, mutant):
                if step.is_fault and not faults:
                    continue
                transitions += 1
                after = _canonical(step.state)
                if not step.is_fault:
                    sources.setdefault(after, []).append(state)
                rule = _broken_by_step(state, step)
                if after not in before:
                    rule = rule or _broken_by_state(after, limits)
                    before[after] = state
                    (struck if step.is_fault else following).append(after)
                if rule is not None:
                    trace = _trace(before, state, limits, mutant, step.state)
                    return Result(len(before), transitions, depth + 1, rule, trace)
        layer = following
        depth += bool(layer)
        if not layer:
            layer, struck, faults = struck, [], faults - 1
            depth += bool(layer)
    stuck = _first_stuck(before, sources)
    if stuck is not None:
        rule = "J1: no end can be reached any more without another fault"
        trace = _trace(before, stuck, limits, mutant, None)
        return Result(len(before), transitions, depth, rule, trace)
    return Result(len(before), transitions, depth)


def _canonical(state: State) -> State:
    """Return the one that stands for all that differ by names only."""
    return min(
        State(
            tuple([state.jobs[place] for place in order]),
            tuple(
                sorted(
                    Worker(*worker[:3], tuple([worker[3][place] for place in order]))
                    for worker in state.workers
                )
            ),
        )
        for order in _ORDERS[len(state.jobs)]
    )


_ORDERS: Final = [tuple(permutations(range(count))) for count in range(4)]


# --- what must hold ----------------------------------------------------------------


def _broken_by_step(before: State, step: Step) -> str | None:
    for place, (old, new) in enumerate(zip(before.jobs, step.state.jobs, strict=True)):
        if old == new:
            continue
        if old.state in FINAL and old[:5] != new[:5]:
            return "J6: a row in a final state changes"
        if not step.is_fenced:
            return "J5: a token that is not the row's writes"
        goes_back = (old.state, new.state) == ("running", "waiting")
        charged = sum(new[2:5]) - sum(old[2:5])
        if goes_back and charged != (place in step.charged):
            return "J10: a repeat that nothing is charged for"
        if new.state == "running" and old.state == "waiting":
            assert step.worker is not None
            if step.state.workers[step.worker].cells[place].wire == "o":
                return "J4: a claim leaves an older token valid"
    return None


def _broken_by_state(state: State, limits: Limits) -> str | None:
    for place, job in enumerate(state.jobs):
        owners = sum(worker.cells[place].owns for worker in state.workers)
        if owners != (job.state == "running"):
            return "J4: a running job has not exactly one owner"
        if job.is_asked and job.state == "waiting":
            return "J17: a job that was asked to stop waits to run again"
        if job.state == "waiting" and (
            job.failures > limits.max_retries
            or job.crashes >= limits.crashes
            or job.losses >= limits.losses
        ):
            return "J11: a job goes on beyond its limit"
        runs = 0
        for worker in state.workers:
            hand = worker.cells[place].hand
            if hand == "R" and worker.process == "up":
                return "J8: a worker that is up has lost a job that it runs"
            runs += worker.process == "up" and hand != ""
        if runs > 1:
            return "J9: two run a job at once, and neither was paused"
    return None


# --- how it came to that -----------------------------------------------------------


def _first_stuck(
    before: dict[State, State | None], sources: dict[State, list[State]]
) -> State | None:
    good = [state for state in before if all(job.state in FINAL for job in state.jobs)]
    reaching = set(good)
    while good:
        for state in sources.get(good.pop(), ()):
            if state not in reaching:
                reaching.add(state)
                good.append(state)
    return next((state for state in before if state not in reaching), None)


def _trace(
    before: dict[State, State | None],
    last: State,
    limits: Limits,
    mutant: str,
    broken: State | None,
) -> tuple[str, ...]:
    """Walk the path again, with workers and jobs under the same names all the way."""
    path: list[State] = []
    at: State | None = last
    while at is not None:
        path.append(at)
        at = before[at]
    path.reverse()
    if broken is not None:
        path.append(_canonical(broken))
    state, lines = path[0], []
    for wanted in path[1:]:
        step = next(
            step
            for step in steps(state, limits, mutant)
            if _canonical(step.state) == wanted
        )
        state = step.state
        lines.append(f"{len(lines) + 1:3}. {_words(step)}")
    return (*lines, *_picture(state))


def _words(step: Step) -> str:
    by = "" if step.worker is None else f"worker {step.worker + 1}: "
    of = "" if step.job is None else f" job {step.job + 1}"
    return f"{by}{step.verb}{of}"


def _picture(state: State) -> Iterator[str]:
    for number, job in enumerate(state.jobs, 1):
        asked = ", asked to stop" if job.is_asked else ""
        yield (
            f"  => job {number} {job.state}{asked}; failures {job.failures}, crashes "
            f"{job.crashes}, losses {job.losses}"
        )
    for number, worker in enumerate(state.workers, 1):
        held = [
            f"job {place}: {'owner, ' * cell.owns}hand {cell.hand or '-'}, "
            f"wire {cell.wire or '-'}"
            for place, cell in enumerate(worker.cells, 1)
            if any(cell)
        ]
        state_of = f"{worker.process}{', lost' * worker.is_lost}"
        yield f"  => worker {number} {state_of}; {'; '.join(held)}"
