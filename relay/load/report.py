"""What a load came to, as one document and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from relay.load.driver import Outcome
from relay.load.percentiles import summary_ms
from relay.load.waiting import Ended

__all__ = ["document", "is_success", "text"]


def document(
    options: Mapping[str, Any], outcome: Outcome, ended: Ended | None, *, batch: int
) -> dict[str, Any]:
    """Return everything that is known, as JSON can carry it.

    Its keys stand in docs/reference/commands.md.

    Args:
        options: what was asked for.
        ended: of the jobs, where they were waited for.
    """
    succeeded = len(outcome.latencies)
    return {
        "options": dict(options),
        "seconds": round(outcome.seconds, 6),
        "interrupted": outcome.is_interrupted,
        "requests": {
            "succeeded": succeeded,
            "failed": outcome.errors.total(),
            "unsent": outcome.unsent,
            "per_second": _rate(succeeded, outcome.seconds),
        },
        "jobs": {
            "made": outcome.jobs,
            "duplicates": succeeded * batch - outcome.jobs,
            "per_second": _rate(outcome.jobs, outcome.seconds),
        },
        "latency_ms": summary_ms(outcome.latencies),
        "errors": {
            name: {"count": count, "first": outcome.messages[name]}
            for name, count in outcome.errors.most_common()
        },
        "wait": None if ended is None else _waited(ended),
    }


def is_success(report: Mapping[str, Any]) -> bool:
    """Tell whether no request failed, and each job waited for ended and did not fail.

    A wait that was broken off says nothing of the jobs that it left.
    """
    wait = report["wait"]
    if report["requests"]["failed"]:
        return False
    if wait is None:
        return True
    is_cut = bool(wait["unended"]) and not wait["interrupted"]
    return not is_cut and not wait["states"].get("failed")


def text(report: Mapping[str, Any]) -> str:
    """Return the document as lines for people."""
    return "\n".join(_lines(report))


def _rate(count: int, seconds: float) -> float | None:
    return round(count / seconds, 1) if seconds > 0 else None


def _waited(ended: Ended) -> dict[str, Any]:
    per_second = ended.per_second
    return {
        "states": dict(ended.states),
        "gone": ended.gone,
        "unended": ended.unended,
        "interrupted": ended.is_interrupted,
        "enqueue_to_start_ms": summary_ms(ended.to_start),
        "enqueue_to_end_ms": summary_ms(ended.to_end),
        "per_second": None if per_second is None else round(per_second, 1),
    }


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    requests, jobs = report["requests"], report["jobs"]
    if report["interrupted"]:
        yield "interrupted: this is what was done until then"
    yield (
        f"requests  {requests['succeeded']:,} succeeded, {requests['failed']:,} failed "
        f"in {report['seconds']:,.2f} s{_per_second(requests['per_second'])}"
    )
    if requests["unsent"]:
        yield (
            f"          {requests['unsent']:,} more were due and never sent: the rate "
            "was not kept"
        )
    duplicates = f", {jobs['duplicates']:,} duplicates" if jobs["duplicates"] else ""
    yield (
        f"jobs      {jobs['made']:,} enqueued{duplicates}"
        f"{_per_second(jobs['per_second'])}"
    )
    yield _percentiles("latency", report["latency_ms"])
    for name, error in report["errors"].items():
        yield f"error     {error['count']:,} x {name}: {error['first']}"
    if report["wait"] is not None:
        yield from _wait_lines(report["wait"])


def _wait_lines(wait: Mapping[str, Any]) -> Iterator[str]:
    counts = [f"{count:,} {state}" for state, count in wait["states"].items()]
    if wait["gone"]:
        counts.append(f"{wait['gone']:,} deleted before they were looked at")
    if wait["unended"]:
        counts.append(f"{wait['unended']:,} not ended yet")
    yield (
        f"ended     {', '.join(counts) or 'no jobs'}{_per_second(wait['per_second'])}"
    )
    yield _percentiles("to start", wait["enqueue_to_start_ms"])
    yield _percentiles("to end", wait["enqueue_to_end_ms"])


def _per_second(rate: float | None) -> str:
    return "" if rate is None else f": {rate:,.0f}/s"


def _percentiles(name: str, found: Mapping[str, float] | None) -> str:
    if found is None:
        return f"{name:<10}no samples"
    values = "  ".join(f"{key} {value:,.2f}" for key, value in found.items())
    return f"{name:<10}{values}  ms"
