"""Spans of a job's way, named as OpenTelemetry names messaging.

send and create around an enqueue, receive of a claim, process around a handler, settle
of the write of its end. Source: docs/howto/trace.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any, Final
from uuid import UUID

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider

from relay.conf import get_settings
from relay.exceptions import Cancel, Cancelled, Snooze, SoftTimeout
from relay.sensitive import has_sealed
from relay.traces import Made, Sendable, Traced
from relay.tracing import carrying

__all__ = ["OpenTelemetryTracer"]

logger = logging.getLogger("relay.tracing")

LOOK_SECONDS: Final = 1.0
# How long a process that ends waits for its spans to be sent on.
FLUSH_SECONDS: Final = 1.5
# Attempts whose spans are known until their ends are written: more than a child holds.
_MOST_RUNS: Final = 8_192
# How handlers steer; none of them is an error.
_STEERING: Final = (Snooze, Cancel, Cancelled)


class _Sent:
    """What the jobs of an enqueue carry, and the spans that are to learn their ids."""

    def __init__(
        self, carriers: Sequence[Mapping[str, str]], spans: Sequence[Span] = ()
    ) -> None:
        self.carriers = carriers
        self._spans = spans

    def made(self, ids: Sequence[UUID]) -> None:
        """Take in the ids of the jobs."""
        for span, job_id in zip(self._spans, ids, strict=False):
            span.set_attribute("messaging.message.id", str(job_id))


class _Fired:
    """The spans of an occurrence and of its job's enqueue below it."""

    def __init__(self, span: Span, sent: Span) -> None:
        self.carrier = carrying.carrier_of(sent)
        self._spans = (sent, span)

    def end(self, error: BaseException | None = None) -> None:
        """End both."""
        for span in self._spans:
            with _edge():
                if error is not None:
                    span.set_attribute("error.type", type(error).__name__)
                    span.set_status(StatusCode.ERROR)
                span.end()


class OpenTelemetryTracer:
    """Makes spans by OpenTelemetry's API.

    Args:
        provider: the global one unless given.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        version = metadata.version("django-relay")
        self._provider = provider
        self._is_on = provider is not None
        self._look_at = 0.0
        self._tracer = trace.get_tracer("relay", version, provider)
        self._lock = threading.Lock()
        self._runs: dict[tuple[UUID, int], str] = {}

    @property
    def is_on(self) -> bool:
        """Whether somebody has set a provider: without one, spans go nowhere.

        Looked for once a second: the look takes a tenth of what a short job does.
        """
        if not self._is_on and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            provider = trace.get_tracer_provider()
            self._is_on = not isinstance(provider, trace.ProxyTracerProvider)
        return self._is_on

    # --- enqueue ---------------------------------------------------------------------

    @contextmanager
    def send(self, jobs: Sequence[Sendable]) -> Iterator[_Sent]:
        """Surround an enqueue; its jobs carry the context of send, or each its own."""
        first = jobs[0]
        has_each = 1 < len(jobs) <= get_settings().otel.create_limit
        attributes = _messaging(first.queue, "send")
        if len(jobs) == 1:
            attributes |= _about(first)
        else:
            attributes["messaging.batch.message_count"] = len(jobs)
        with self._around(
            f"send {first.queue}",
            kind=SpanKind.CLIENT if has_each else SpanKind.PRODUCER,
            attributes=attributes,
        ) as span:
            if has_each:
                with self._create(jobs) as sent:
                    yield sent
            else:
                carriers = [carrying.carrier_of(span)] * len(jobs)
                yield _Sent(carriers, [span] if len(jobs) == 1 else [])

    @contextmanager
    def _create(self, jobs: Sequence[Sendable]) -> Iterator[_Sent]:
        spans = [
            self._started(
                f"create {job.queue}",
                kind=SpanKind.PRODUCER,
                attributes={**_messaging(job.queue, "create"), **_about(job)},
            )
            for job in jobs
        ]
        try:
            yield _Sent([carrying.carrier_of(span) for span in spans], spans)
        except BaseException:
            for span in spans:
                span.set_status(StatusCode.ERROR)
            raise
        finally:
            for span in spans:
                with _edge():
                    span.end()

    def fire(self, schedule: str, due_at: str, job: Made) -> _Fired:
        """Begin a trace of a schedule's occurrence and, below it, its job's enqueue."""
        span = self._started(
            f"schedule {schedule}",
            context=context.Context(),
            kind=SpanKind.INTERNAL,
            attributes={"relay.schedule": schedule, "relay.occurrence": due_at},
        )
        sent = self._started(
            f"send {job.queue}",
            context=trace.set_span_in_context(span, context.Context()),
            kind=SpanKind.PRODUCER,
            attributes={
                **_messaging(job.queue, "send"),
                **_about(job),
                "messaging.message.id": str(job.id),
            },
        )
        return _Fired(span, sent)

    # --- claim, run, finish ----------------------------------------------------------

    def receive(self, jobs: Sequence[Traced], worker_id: UUID, seconds: float) -> None:
        """Make a span for each queue of a claim, with links to where its jobs began."""
        by_queue: dict[str, list[Traced]] = {}
        for job in jobs:
            by_queue.setdefault(job.queue, []).append(job)
        times = _times(seconds)
        with _edge():
            for queue, found in by_queue.items():
                self._receive(queue, found, worker_id, times)

    def _receive(
        self,
        queue: str,
        jobs: Sequence[Traced],
        worker_id: UUID,
        times: tuple[int, int],
    ) -> None:
        attributes = _messaging(queue, "receive")
        attributes["messaging.client.id"] = str(worker_id)
        attributes["messaging.batch.message_count"] = len(jobs)
        started_at, ended_at = times
        self._tracer.start_span(
            f"receive {queue}",
            context=context.Context(),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=carrying.links_to(*(carrying.read(job.trace)[1] for job in jobs)),
            start_time=started_at,
        ).end(ended_at)

    @contextmanager
    def process(self, job: Traced, worker_id: UUID) -> Iterator[Span]:
        """Surround a handler: a child of the enqueue, or a new trace; with links.

        An error's message may quote what the job was given: where some of that is
        sensitive, the span has its class alone.
        """
        sent, creation, previous = carrying.read(job.trace)
        with self._around(
            f"process {job.queue}",
            context=sent if get_settings().otel.parent else context.Context(),
            kind=SpanKind.CONSUMER,
            links=carrying.links_to(creation, previous),
            attributes={
                **_messaging(job.queue, "process"),
                "messaging.message.id": str(job.id),
                "messaging.client.id": str(worker_id),
                "relay.task": job.task,
                "relay.attempt": job.attempt,
                "relay.worker.id": str(worker_id),
                "relay.wait_s": job.wait_s,
            },
            tells_error=False,
        ) as span:
            try:
                yield span
            except _STEERING:
                raise
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                if not has_sealed(job.args):
                    span.record_exception(error)
                raise
            finally:
                if (text := carrying.text_of(span)) is not None:
                    self.note_ran(job.id, job.attempt, text)

    def ran(self, job_id: UUID, attempt: int) -> str | None:
        """Return the span of an attempt that has ended here; None if it has none."""
        return self._runs.get((job_id, attempt))

    def note_ran(self, job_id: UUID, attempt: int, span: str) -> None:
        """Take in the span of an attempt; the oldest is forgotten for it."""
        with self._lock:
            if len(self._runs) >= _MOST_RUNS:
                del self._runs[next(iter(self._runs))]
            self._runs[job_id, attempt] = span

    def settle(
        self,
        ends: Sequence[tuple[Traced, str | None]],
        worker_id: UUID,
        seconds: float,
    ) -> None:
        """Make a span of the write of each end, a child of the attempt's own."""
        times = _times(seconds)
        for job, outcome in ends:
            with self._lock:
                ran = self._runs.pop((job.id, job.attempt), None)
            if ran is not None and outcome is not None:
                with _edge():
                    self._settle(job, outcome, ran, worker_id, times)

    def _settle(
        self,
        job: Traced,
        outcome: str,
        ran: str,
        worker_id: UUID,
        times: tuple[int, int],
    ) -> None:
        started_at, ended_at = times
        self._tracer.start_span(
            f"settle {job.queue}",
            context=carrying.under(ran),
            kind=SpanKind.CLIENT,
            attributes={
                **_messaging(job.queue, "settle"),
                "messaging.message.id": str(job.id),
                "messaging.client.id": str(worker_id),
                "relay.outcome": outcome,
            },
            start_time=started_at,
        ).end(ended_at)

    # --- around them -----------------------------------------------------------------

    def _started(self, name: str, **options: Any) -> Span:
        """Return a span that has begun; an invalid one where a processor raised."""
        with _edge():
            return self._tracer.start_span(name, **options)
        return trace.INVALID_SPAN

    @contextmanager
    def _around(
        self, name: str, *, tells_error: bool = True, **options: Any
    ) -> Iterator[Span]:
        """Surround by a span. What a processor raises changes no enqueue and no job.

        Args:
            tells_error: whether an error that gets out is recorded in the span.
        """
        span = self._started(name, **options)
        try:
            with trace.use_span(
                span,
                record_exception=tells_error,
                set_status_on_exception=tells_error,
            ):
                yield span
        finally:
            with _edge():
                span.end()

    @contextmanager
    def under(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Go on with the trace that a request names, unless one is current already."""
        if trace.get_current_span().get_span_context().is_valid:
            yield
            return
        token = context.attach(carrying.from_headers(headers))
        try:
            yield
        finally:
            context.detach(token)

    def ids(self) -> tuple[str, str] | None:
        """Return the ids of the trace and the span that are current, if any are."""
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return None
        return trace.format_trace_id(found.trace_id), trace.format_span_id(
            found.span_id
        )

    def flush(self) -> None:
        """Send on what was made; whoever takes it in may be away, so wait a moment."""
        provider: Any = self._provider or trace.get_tracer_provider()
        send_on = getattr(provider, "force_flush", None)
        if send_on is not None:
            # A thread: not every exporter heeds a limit.
            thread = threading.Thread(target=send_on, name="relay-flush", daemon=True)
            thread.start()
            thread.join(FLUSH_SECONDS)


@contextmanager
def _edge() -> Iterator[None]:
    """Let no processor of spans break an enqueue, a job, a claim or a finish."""
    try:
        yield
    except SoftTimeout:  # the handler's, which comes between any two lines
        raise
    except Exception:  # an edge: the project's code, and what another process told
        logger.exception("a span was not made", extra={"event": "trace.failed"})


def _messaging(queue: str, operation: str) -> dict[str, str | int]:
    return {
        "messaging.system": "relay",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def _about(job: Sendable) -> dict[str, str | int]:
    return {"relay.task": job.task, "relay.priority": job.priority}


def _times(seconds: float) -> tuple[int, int]:
    """Return when what has just ended began and ended, in ns since 1970."""
    now = time.time_ns()
    return now - int(seconds * 1e9), now
