"""Run one claimed job and say what is to become of it.

The nest, outermost first: parse, failure handling, busy table and counts, the host's hooks around a job, instance,
server middleware, `perform` (docs/spec/core.md §8.1). The answer "may be acknowledged" is given only on paths where
the job is done or its outcome is booked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from .. import registry, wire
from ..clock import monotonic
from ..config import Capsule
from ..errors import MalformedPayload, RedisRefused, RedisUnavailable
from ..jobs import Job, instantiate, keyword_arguments, running
from ..storage import sorted_sets
from ..wire import Payload
from .busy import Busy, Cell
from .control import Shutdown, Skip, caused_by_shutdown
from .event_loop import EventLoop
from .interrupt import Interruptible
from .job_log import JobLog
from .retry import Bury, Drop, Failure, Retry, decide
from .work import Outcome, Work

log = logging.getLogger("wurk")


class Runner:
    """Runs jobs of a capsule. Shared by its threads; holds nothing of a single job."""

    def __init__(self, capsule: Capsule, busy: Busy, loop: EventLoop) -> None:
        self._capsule = capsule
        self._config = capsule.config
        self._options = capsule.config.options
        self._busy = busy
        self._loop = loop
        self._job_log = JobLog(capsule.config.options)
        self._around = capsule.config.around_job

    def run(self, work: Work, thread: Interruptible, name: str, cell: Cell) -> Outcome:
        """Run the job in this thread. Never raises for what the job does."""
        try:
            payload = wire.decode_job(work.raw)
        except MalformedPayload as malformed:
            return self._bury_malformed(work, malformed)
        work.jid = payload["jid"]
        self._busy.enter(name, work)
        token = running.set((payload, work.lane.name))
        level = self._job_log.level(payload)
        started = monotonic()
        error: BaseException | None = None
        try:
            if level is not None:
                self._job_log.start(level, payload)
            self._perform(payload, work.lane.name, thread)
        except BaseException as raised:  # a job may raise anything; each outcome is booked below
            error = raised
            cell.failed += 1
        finally:
            cell.processed += 1
            self._busy.leave(name)
        try:
            if level is not None:
                self._job_log.end(level, payload, monotonic() - started, error)
            return Outcome.ACKNOWLEDGE if error is None else self._settle(work, payload, error)
        finally:
            error = None
            running.reset(token)

    def _perform(self, payload: Payload, queue: str, thread: Interruptible) -> None:
        job_class: type[Job] = registry.find(payload["class"])
        thread.enter()
        try:
            for hook in self._around:
                hook()
            instance = instantiate(job_class, payload)
            perform: Callable[..., Any] = instance.perform  # type: ignore[attr-defined]  # every registered class has it

            def call() -> Any:
                result = perform(*payload["args"], **keyword_arguments(payload))
                if not job_class.is_async:
                    return result
                wrap = self._config.around_coroutine
                return self._loop.run(wrap(result) if wrap else result, thread)

            chain = self._capsule.server_middleware
            if len(chain):
                chain.invoke(call, instance, payload, queue)
            else:
                call()
        finally:
            thread.leave()
            self._clean_up(self._around, "after a job")

    def end_thread(self) -> None:
        """Let the host clean up after the calling thread, which runs no more jobs."""
        self._clean_up(self._config.at_thread_end, "at the end of a thread")

    def _clean_up(self, hooks: Iterable[Callable[[], object]], context: str) -> None:
        for hook in hooks:
            try:
                hook()
            except Exception as error:  # the host's clean-up; the job's own outcome stands
                self._config.report(error, context)

    # --- failures -------------------------------------------------------------------------------------------------

    def _settle(self, work: Work, payload: Payload, error: BaseException) -> Outcome:
        if isinstance(error, Skip):
            return Outcome.ACKNOWLEDGE
        if isinstance(error, Shutdown) or caused_by_shutdown(error):
            return Outcome.KEEP
        try:
            outcome = self._book(work, error)
        except (RedisUnavailable, RedisRefused) as refused:
            self._report(refused, "Internal exception!", payload, work)
            return Outcome.KEEP
        self._report(error, "Job raised exception", payload, work)
        return outcome

    def _book(self, work: Work, error: BaseException) -> Outcome:
        original = wire.decode(work.raw)
        failure = Failure(original, work.lane.name, error, registry.get(original["class"]))
        decision = decide(failure, self._options, self._config.report, self._config.backtrace_cleaner)
        redis = self._capsule.redis
        if isinstance(decision, Retry):
            stored = wire.encode_again(decision.payload)
            ours = sorted_sets.book_retry(redis, work.lane, work.counter, work.raw, stored, decision.delay_s)
            return self._booked(ours, work)
        self._tell_death_handlers(decision.payload, error)
        if isinstance(decision, Drop):
            return Outcome.ACKNOWLEDGE
        assert isinstance(decision, Bury)
        stored = wire.encode_again(decision.payload)
        ours = sorted_sets.bury(redis, work.lane, work.counter, work.raw, stored, self._options)
        return self._booked(ours, work)

    def _bury_malformed(self, work: Work, error: MalformedPayload) -> Outcome:
        try:
            ours = sorted_sets.bury(self._capsule.redis, work.lane, work.counter, work.raw, work.raw, self._options)
        except (RedisUnavailable, RedisRefused) as refused:
            self._config.report(refused, {"context": "Internal exception!", "jobstr": work.raw})
            return Outcome.KEEP
        self._config.report(error, {"context": "Invalid JSON for job", "jobstr": work.raw})
        return self._booked(ours, work)

    def _booked(self, ours: bool, work: Work) -> Outcome:
        if not ours:
            log.warning("%s of %s was taken over while it ran here; its other run decides", work.jid, work.lane.name)
        return Outcome.BOOKED

    def _tell_death_handlers(self, payload: Payload, error: BaseException) -> None:
        for handler in self._config.death_handlers:
            try:
                handler(payload, error)
            except Exception as failed:  # a broken handler must neither stop the others nor keep the job alive
                self._config.report(failed, {"context": "death handler", "job": payload})

    def _report(self, error: BaseException, context: str, payload: Payload, work: Work) -> None:
        self._config.report(error, {"context": context, "job": payload, "jobstr": work.raw})
