"""Spans of a job's way, named as OpenTelemetry names messaging.

send and create around an enqueue, receive of a claim, process around a handler, settle
of the write of its end; schedule around what an occurrence enqueues. Beside each its
metrics. Source: docs/howto/trace.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from opentelemetry import context, trace
from opentelemetry._logs import LoggerProvider
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider

from relay.conf import get_settings
from relay.exceptions import Cancel, Cancelled, Snooze
from relay.sensitive import has_sealed
from relay.traces import Made, Sendable, Traced
from relay.tracing import carrying
from relay.tracing.edge import edge, version
from relay.tracing.errors import Errors
from relay.tracing.meters import Meters
from relay.tracing.names import Attributes, Names

__all__ = ["OpenTelemetryTracer"]

LOOK_SECONDS: Final = 1.0
# How long a process that ends waits for what it has told to be sent on.
FLUSH_SECONDS: Final = 1.5
# Attempts whose spans are known until their ends are written: more than a child holds.
_MOST_RUNS: Final = 8_192
# How handlers steer; none of them is an error.
_STEERING: Final = (Snooze, Cancel, Cancelled)


class _Sent:
    """What the jobs of an enqueue carry, and the spans that are to learn their ids."""

    def __init__(
        self,
        names: Names,
        carriers: Sequence[Mapping[str, str]],
        spans: Sequence[Span] = (),
    ) -> None:
        self.carriers = carriers
        self._names = names
        self._spans = spans

    def made(self, ids: Sequence[UUID]) -> None:
        """Take in the ids of the jobs."""
        for span, job_id in zip(self._spans, ids, strict=False):
            span.set_attributes(self._names.of_job(job_id))


class _Fired:
    """The spans of an occurrence and of its job's enqueue below it."""

    def __init__(self, span: Span, sent: Span, job: Made, meters: Meters) -> None:
        self.carrier = carrying.carrier_of(sent)
        self._spans = (sent, span)
        self._job = job
        self._meters = meters
        self._begun_at = time.perf_counter()

    def end(self, error: BaseException | None = None) -> None:
        """End both."""
        self._meters.sent([self._job], time.perf_counter() - self._begun_at, error)
        for span in self._spans:
            with edge():
                if error is not None:
                    _mark_failed(span, error)
                span.end()


class OpenTelemetryTracer:
    """Makes spans and metrics by OpenTelemetry's API.

    Args:
        provider: of spans; the global one unless given.
        meters: of metrics, likewise.
        loggers: of logs, likewise.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        meters: MeterProvider | None = None,
        loggers: LoggerProvider | None = None,
    ) -> None:
        self._provider = provider
        self._has_spans = provider is not None
        self._tracer = trace.get_tracer("relay", version(), provider)
        self._meters = Meters(meters)
        self._errors = Errors(loggers)
        self._names = Names()
        self._is_on = self._has_spans or self._meters.is_on
        self._look_at: float | None = 0.0
        self._lock = threading.Lock()
        self._runs: dict[tuple[UUID, int], str] = {}

    @property
    def is_on(self) -> bool:
        """Whether somebody has set a provider: without one, nothing goes anywhere.

        Looked for once a second: the look takes a tenth of what a short job does.
        """
        if self._look_at is not None and time.monotonic() >= self._look_at:
            self._look()
        return self._is_on

    def _look(self) -> None:
        if not self._has_spans:
            provider = trace.get_tracer_provider()
            self._has_spans = not isinstance(provider, trace.ProxyTracerProvider)
        self._meters.look()
        self._is_on = self._has_spans or self._meters.is_on
        has_all = self._has_spans and self._meters.is_on
        self._look_at = None if has_all else time.monotonic() + LOOK_SECONDS

    # --- enqueue ---------------------------------------------------------------------

    @contextmanager
    def send(self, jobs: Sequence[Sendable]) -> Iterator[_Sent]:
        """Surround an enqueue; its jobs carry the context of send, or each its own."""
        first = jobs[0]
        has_each = 1 < len(jobs) <= get_settings().otel.create_limit
        more: Attributes = {"relay.jobs": len(jobs)}
        if len(jobs) == 1:
            more = _about(first)
        with (
            self._meters.sending(jobs),
            self._around(
                f"send {first.queue}",
                kind=SpanKind.CLIENT if has_each else SpanKind.PRODUCER,
                attributes=self._names.of("send", first.queue, more),
            ) as span,
        ):
            try:
                if has_each:
                    with self._create(jobs) as sent:
                        yield sent
                else:
                    carriers = [carrying.carrier_of(span)] * len(jobs)
                    spans = [span] if len(jobs) == 1 else []
                    yield _Sent(self._names, carriers, spans)
            except BaseException as error:
                self._errors.note(span, "send", error)
                raise

    @contextmanager
    def _create(self, jobs: Sequence[Sendable]) -> Iterator[_Sent]:
        spans = [
            self._started(
                f"create {job.queue}",
                kind=SpanKind.PRODUCER,
                attributes=self._names.of("create", job.queue, _about(job)),
            )
            for job in jobs
        ]
        try:
            carriers = [carrying.carrier_of(span) for span in spans]
            yield _Sent(self._names, carriers, spans)
        except BaseException as error:
            for span in spans:
                _mark_failed(span, error)
            raise
        finally:
            for span in spans:
                with edge():
                    span.end()

    def fire(self, schedule: str, due_at: str, job: Made) -> _Fired:
        """Begin a trace of a schedule's occurrence and, below it, its job's enqueue."""
        span = self._started(
            f"schedule {schedule}",
            context=context.Context(),
            kind=SpanKind.INTERNAL,
            attributes={"relay.schedule": schedule, "relay.occurrence": due_at},
        )
        more = {**_about(job), **self._names.of_job(job.id)}
        sent = self._started(
            f"send {job.queue}",
            context=trace.set_span_in_context(span, context.Context()),
            kind=SpanKind.PRODUCER,
            attributes=self._names.of("send", job.queue, more),
        )
        return _Fired(span, sent, job, self._meters)

    # --- claim, run, finish ----------------------------------------------------------

    def receive(self, jobs: Sequence[Traced], worker_id: UUID, seconds: float) -> None:
        """Make a span for each queue of a claim, with links to where its jobs began."""
        by_queue: dict[str, list[Traced]] = {}
        for job in jobs:
            by_queue.setdefault(job.queue, []).append(job)
        times = _times(seconds)
        for queue, found in by_queue.items():
            self._meters.received(queue, len(found), seconds)
            if self._has_spans:
                with edge():
                    self._receive(queue, found, worker_id, times)

    def _receive(
        self,
        queue: str,
        jobs: Sequence[Traced],
        worker_id: UUID,
        times: tuple[int, int],
    ) -> None:
        more: Attributes = {"relay.worker.id": str(worker_id), "relay.jobs": len(jobs)}
        started_at, ended_at = times
        self._tracer.start_span(
            f"receive {queue}",
            context=context.Context(),
            kind=SpanKind.CLIENT,
            attributes=self._names.of("receive", queue, more),
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
        more: Attributes = {
            "relay.job.id": str(job.id),
            "relay.worker.id": str(worker_id),
            "relay.task": job.task,
            "relay.attempt": job.attempt,
            "relay.wait_s": job.wait_s,
        }
        begun_at, failure = time.perf_counter(), None
        with self._around(
            f"process {job.queue}",
            context=sent if get_settings().otel.parent else context.Context(),
            kind=SpanKind.CONSUMER,
            links=carrying.links_to(creation, previous),
            attributes=self._names.of("process", job.queue, more),
        ) as span:
            try:
                yield span
            except _STEERING:
                raise
            except BaseException as error:
                failure = error
                is_quoted = not has_sealed(job.args)
                self._errors.note(span, "process", error, is_quoted=is_quoted)
                raise
            finally:
                seconds = time.perf_counter() - begun_at
                self._meters.processed(job, seconds, failure)
                failure = None  # its traceback holds this frame
                text = carrying.text_of(span) if self._has_spans else None
                if text is not None:
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
        written = [job.queue for job, outcome in ends if outcome is not None]
        self._meters.settled(written, seconds)
        times = _times(seconds)
        for job, outcome in ends:
            with self._lock:
                ran = self._runs.pop((job.id, job.attempt), None)
            if ran is not None and outcome is not None:
                with edge():
                    self._settle(job, outcome, ran, worker_id, times)

    def _settle(
        self,
        job: Traced,
        outcome: str,
        ran: str,
        worker_id: UUID,
        times: tuple[int, int],
    ) -> None:
        more: Attributes = {
            "relay.job.id": str(job.id),
            "relay.worker.id": str(worker_id),
            "relay.outcome": outcome,
        }
        started_at, ended_at = times
        self._tracer.start_span(
            f"settle {job.queue}",
            context=carrying.under(ran),
            kind=SpanKind.CLIENT,
            attributes=self._names.of("settle", job.queue, more),
            start_time=started_at,
        ).end(ended_at)

    # --- around them -----------------------------------------------------------------

    def _started(self, name: str, **options: Any) -> Span:
        """Return a span that has begun; an invalid one where a processor raised."""
        with edge():
            return self._tracer.start_span(name, **options)
        return trace.INVALID_SPAN

    @contextmanager
    def _around(self, name: str, **options: Any) -> Iterator[Span]:
        """Surround by a span. What a processor raises changes no enqueue and no job."""
        span = self._started(name, **options)
        try:
            with trace.use_span(
                span, record_exception=False, set_status_on_exception=False
            ):
                yield span
        finally:
            with edge():
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
        spans = self._provider or trace.get_tracer_provider()
        threads = [
            # Not every exporter heeds a limit.
            threading.Thread(target=send_on, name="relay-flush", daemon=True)
            for provider in (spans, self._meters.provider, self._errors.provider)
            if (send_on := getattr(provider, "force_flush", None)) is not None
        ]
        deadline = time.monotonic() + FLUSH_SECONDS
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _mark_failed(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(StatusCode.ERROR)


def _about(job: Sendable) -> Attributes:
    return {"relay.task": job.task, "relay.priority": job.priority}


def _times(seconds: float) -> tuple[int, int]:
    """Return when what has just ended began and ended, in ns since 1970."""
    now = time.time_ns()
    return now - int(seconds * 1e9), now
