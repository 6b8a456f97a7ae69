"""Fetch and acknowledge for the threads of a capsule: one call for everybody.

Threads take claimed jobs from a deque. The one that finds it empty takes the lead and makes a pass: one script call
that acknowledges everything finished and claims for every idle thread; the others wait for the lead. When all queues
are empty the leader waits on blocking claims. docs/spec/reliability.md §3, 4.2.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from ..clock import monotonic
from ..config import MAX_BLOCKED_QUEUES, Capsule
from ..connection import Redis
from ..errors import MalformedPayload, RedisRefused, RedisUnavailable, WurkError
from ..storage import processes, queues
from ..storage.queues import Claimed, Lane
from .blocks import Blocks, ClaimFailed
from .downtime import Downtime
from .holdings import Holdings
from .lanes import Lanes
from .work import Work

log = logging.getLogger("wurk")

AHEAD_S = 0.002  # measured work that may be claimed beyond the idle threads
SMOOTHING = 0.2  # weight of the newest run in the measure
HOLD_S = 0.05  # a claimed job that was not started, and an acknowledgement that was not sent, wait no longer
TEND_S = 0.015  # so often the tender looks while there is something to tend
RECONCILE_S = 15.0
UNCOVERED_S = 0.1  # pause between passes while more queues are served than can be waited on
BROKEN_PAUSE_S = 1.0  # nothing but queues of a wrong type is left
CLOSE_S = 1.0  # for the leader to notice the end
FULL_PAUSE_S = 0.25  # Redis refuses blocking claims while its memory is full; passes go on


class Dispatcher:
    """Hands jobs to the threads of one capsule. Made by the manager; lives as long as the capsule works."""

    def __init__(
        self,
        capsule: Capsule,
        index: int,
        report: Callable[[BaseException, str], None],
        show_alive: Callable[[], int] = lambda: 0,
    ) -> None:
        self.capsule = capsule
        self._index = index
        self._options = capsule.config.options
        self._report = report
        self._show_alive = show_alive  # beats if need be; tells how often the fleet thought this process dead
        self._deaths: int | None = None
        self._lead = threading.Lock()  # held by the thread that passes for everybody or waits on the blocking claims
        self._passing = threading.Lock()  # held during a pass, while reconciling, and by a hard stop
        self._counting = threading.Lock()
        self._idle = 0
        self._ended = False
        self._parked = False  # the leader waits on the blocking claims
        self._ready: deque[Work] = deque()  # claimed, not started; oldest left
        self._done: deque[Work] = deque()  # finished, not acknowledged; oldest left
        self._holdings = Holdings()
        self._job_s: float | None = None  # how long a job takes, smoothed
        self._lost_claim = False
        self._reconciled_at = monotonic()
        self._downtime = Downtime(report)
        self._lanes = Lanes(capsule, index)
        self._pid = os.getpid()
        self._blocks = Blocks(capsule.claims, self._options.fetch_block)
        self._tending = threading.Event()
        self._tender = threading.Thread(target=self._tend, name=f"wurk-{capsule.name}-tender", daemon=True)

    # --- what threads call ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the tender. Threads may take jobs from now on."""
        self._tender.start()

    def take(self) -> Work | None:
        """The next job for the calling thread; waits for one. None: stop taking, the process winds down."""
        if not self._ended:
            try:
                return self._ready.popleft()
            except IndexError:
                pass
        return self._take_alone() or self._take_as_leader()

    def finish(self, work: Work, seconds: float) -> None:
        """A job is over and may be removed from its private list; `seconds` is how long it ran."""
        self._done.append(work)
        measured = self._job_s
        self._job_s = seconds if measured is None else measured + (seconds - measured) * SMOOTHING
        if not self._tending.is_set():
            self._tending.set()

    def release(self, work: Work) -> None:
        """This process no longer holds the job: it was moved on, or stays in its list for reconciling to find."""
        self._holdings.discard((work,))

    def flush(self) -> None:
        """Send every acknowledgement that is held. Raises RedisUnavailable or RedisRefused; then they are kept."""
        with self._passing:
            self._send_acks(self.capsule.redis)

    @property
    def empty(self) -> bool:
        """Nothing claimed that was not acknowledged."""
        return not len(self._holdings)

    @property
    def _redis(self) -> Redis:
        """Fails at once while jobs are taken: the next pass tries again. At the end there is no next pass."""
        return self.capsule.redis if self._ended else self.capsule.claims

    # --- winding down ---------------------------------------------------------------------------------------------

    def quiet(self) -> None:
        """Stop claiming. What was claimed and not started goes back to its queue."""
        self._ended = True
        self._blocks.wake()
        self._tending.set()
        self._give_back_ready()

    def requeue_running(self, running: Sequence[Work]) -> int:
        """Give the jobs of a hard stop back, oldest next to run. Acks go first: a finished job must not run again."""
        with self._passing:
            self._send_acks(self.capsule.redis)
            newest_first = sorted(running, key=lambda work: work.number, reverse=True)
            return queues.requeue(self.capsule.redis, [(work.lane, work.raw) for work in newest_first])

    def close(self) -> None:
        """Drop the connections of the blocking claims. Nobody takes jobs any more."""
        self._ended = True
        self._tending.set()
        self._blocks.wake()
        if self._lead.acquire(timeout=CLOSE_S):
            self._blocks.destroy()
            self._lead.release()

    # --- taking ---------------------------------------------------------------------------------------------------

    def _take_alone(self) -> Work | None:
        """A pass for this thread only, while the leader waits on its claims: nobody else would send our ack."""
        if not self._parked or not self._done or self._ended:
            return None
        try:
            self._prove_alive()
            if self._lost_claim:  # the leader reconciles first
                return None
            self._pass(1)
            return None if self._ended else self._ready.popleft()
        except (IndexError, RedisUnavailable, RedisRefused):
            return None  # nothing there; or an outage, which the leader reports

    def _take_as_leader(self) -> Work | None:
        with self._counting:
            self._idle += 1
        with self._lead:
            work = None
            try:
                if self._pid != os.getpid():
                    self._adopt_after_fork()
                while work is None and not self._ended:
                    try:
                        work = self._ready.popleft()
                    except IndexError:
                        self._fill()
            finally:
                with self._counting:  # under the lead: the next leader must not claim for this thread again
                    self._idle -= 1
            if work is None:
                self._wind_down()
            elif not self._idle and self._blocks.open:
                self._stop_waiting()
            return work

    def _fill(self) -> None:
        """One step of the leader: reconcile if need be, pass, or wait. Errors are reported, never raised."""
        try:
            if self._downtime.lasts:
                processes.measure_rtt_us(self._redis)
            self._prove_alive()
            if self._lost_claim or monotonic() - self._reconciled_at >= RECONCILE_S:
                self._reconcile()
            lanes = self._pass(None)
            if not self._ready:
                self._wait(lanes)
        except ClaimFailed as failure:
            self._accept(failure.claimed)
            self._meet(failure.error)
        except WurkError as error:
            self._meet(error)
        else:
            self._downtime.end()

    def _wait(self, lanes: Sequence[Lane]) -> None:
        if not lanes:
            self._pause(self._options.fetch_block)
            return
        covered = lanes[:MAX_BLOCKED_QUEUES]
        wait_s = UNCOVERED_S if len(covered) < len(lanes) else self._options.fetch_block
        self._parked = True
        try:
            # Whoever finished before `_parked` was set left its ack to us: pass again instead of waiting.
            if self._done or self._ended:
                return
            claimed = self._blocks.end() if self._blocks.stray(covered) else []
            deadline = monotonic() + wait_s
            while not claimed and not self._ended and (left := deadline - monotonic()) > 0:
                self._blocks.arm(covered)
                claimed = self._blocks.wait(left)
        finally:
            self._parked = False
        self._accept(claimed)
        self._prove_alive()

    def _prove_alive(self) -> None:
        """Beat before anything is claimed or started, if the last beat is too old, as after standing still.

        Once the fleet thought us dead, what we hold may be others': nothing is started without a proof, so what is
        ready goes back if it is ours still, and the next pass reconciles.
        """
        deaths = self._show_alive()
        if self._deaths is not None and deaths != self._deaths:
            self._lost_claim = True
            self._give_back_ready()
        self._deaths = deaths

    def _stop_waiting(self) -> None:
        """The last idle thread has a job: end the blocking claims, and give back at once what they still bring."""
        try:
            self._accept(self._blocks.end())
        except ClaimFailed as failure:
            self._accept(failure.claimed)
            self._lost_claim = True
        self._give_back_ready()

    def _wind_down(self) -> None:
        """What a thread does that was told to stop: nothing claimed stays here, nothing finished stays unsent."""
        self._stop_waiting()
        try:
            self.flush()
        except (RedisUnavailable, RedisRefused) as error:
            self._report(error, "acknowledging while winding down")  # the manager flushes again at the end

    # --- the pass -------------------------------------------------------------------------------------------------

    def _pass(self, wanted: int | None) -> list[Lane]:
        """Acknowledge everything and claim; returns the lanes of the pass. `wanted` None: for all idle threads."""
        with self._passing:
            lanes = self._lanes.in_order()
            if not lanes:
                self._send_acks(self._redis)
                return lanes
            count = min((wanted or self._idle) + self._ahead(), queues.MAX_CLAIM)
            first, limits = self._lanes.first_share(lanes, count)
            missing = count - self._dispatch(first, limits, count)
            rest = self._lanes.rest(lanes)
            if missing and rest:
                self._dispatch(rest, [missing] * len(rest), missing)
            return lanes

    def _send_acks(self, redis: Redis) -> None:
        while self._done:
            self._dispatch([], [], 0, redis)

    def _dispatch(self, lanes: Sequence[Lane], limits: Sequence[int], wanted: int, redis: Redis | None = None) -> int:
        """One script call; returns how many jobs were taken."""
        done = self._done
        sent: list[Work] = []
        while done and len(sent) < queues.MAX_ACKS:
            try:
                sent.append(done.popleft())
            except IndexError:  # another pass took it
                break
        if not sent and not lanes:
            return 0
        acks = [work.ack() for work in sent]
        try:
            claimed = queues.dispatch(redis or self._redis, acks, lanes, limits, wanted, self._options)
        except BaseException as error:
            done.extendleft(reversed(sent))
            if isinstance(error, RedisUnavailable) and lanes:
                self._lost_claim = True
            if isinstance(error, RedisRefused) and error.code == "WRONGTYPE" and lanes:
                return self._dispatch_one_by_one(lanes, limits, wanted, error)
            raise
        self._holdings.discard(sent)
        self._accept(claimed)
        return len(claimed)

    def _dispatch_one_by_one(
        self, lanes: Sequence[Lane], limits: Sequence[int], wanted: int, error: RedisRefused
    ) -> int:
        """A key has a wrong type: put its queue aside for a while, loudly, and go on with the others."""
        if len(lanes) == 1:
            self._lanes.put_aside(lanes[0])
            self._report(error, f"claiming from {lanes[0].public}")
            return 0
        taken = 0
        for lane, limit in zip(lanes, limits, strict=True):
            if taken < wanted:
                taken += self._dispatch([lane], [limit], min(limit, wanted - taken))
        return taken

    def _accept(self, claimed: Sequence[Claimed]) -> None:
        if not claimed:
            return
        now = monotonic()
        for lane, payload in claimed:
            if payload is None:
                self._report(MalformedPayload("a job over the size limit went to the dead set"), lane.public)
                continue
            work = Work(lane, payload, now)
            self._holdings.add(work)
            self._ready.append(work)
        if not self._tending.is_set():
            self._tending.set()

    def _ahead(self) -> int:
        """How many jobs beyond the idle threads: AHEAD_S of measured work, so none where jobs take longer than that."""
        measured = self._job_s
        if measured is None:
            return 0
        return int(AHEAD_S / measured) if measured > AHEAD_S / queues.MAX_CLAIM else queues.MAX_CLAIM

    def _reconcile(self) -> None:
        """Find jobs in our private lists that nobody here holds, and give them back."""
        redis, lanes = self._redis, self._lanes.all()
        with self._passing:
            # After a lost answer numbers say nothing: an ack applied with it is held here still and hides a job.
            suspects = lanes if self._lost_claim else self._holdings.unaccounted(redis, lanes)
            if suspects:
                self._accept(self._blocks.end())  # a claim that has answered unread would look like a lost one
            for lane in suspects:
                self._holdings.give_back_lost(redis, lane, self._options)
            self._reconciled_at = monotonic()
            self._lost_claim = False

    # --- the tender -----------------------------------------------------------------------------------------------

    def _tend(self) -> None:
        """See that nothing waits here because every thread is stuck in a long job. Runs in a thread of its own."""
        unsent: Work | None = None  # the oldest unsent ack at the last look
        while not self._ended:
            self._tending.wait()
            if not self._ready and not self._done:
                self._tending.clear()
                if not self._ready and not self._done:  # else one came before the flag was down
                    continue
                self._tending.set()
            time.sleep(TEND_S)
            unsent = self._tend_once(unsent)

    def _tend_once(self, unsent: Work | None) -> Work | None:
        try:
            if self._ready and self._ready[0].claimed_at < monotonic() - (HOLD_S - 2 * TEND_S):
                self._give_back_ready()
            oldest = self._done[0] if self._done else None
            if oldest is not None and oldest is unsent and not self._downtime.lasts:
                with self._passing:
                    self._send_acks(self._redis)
        except IndexError:  # started or acknowledged while we looked
            return None
        except WurkError as error:
            log.debug("the tender of %s waits for Redis: %s", self.capsule.name, error)
            return None
        return oldest

    def _give_back_ready(self) -> None:
        """Return claimed jobs that no thread has started, newest first."""
        unstarted: list[Work] = []
        while True:
            try:
                unstarted.append(self._ready.pop())
            except IndexError:
                break
        if not unstarted:
            return
        try:
            queues.requeue(self._redis, [(work.lane, work.raw) for work in unstarted])
        except (RedisUnavailable, RedisRefused) as error:
            self._lost_claim = True  # they are not held below, so reconciling finds them
            self._report(error, "giving jobs back")
        self._holdings.discard(unstarted)

    # --- outages --------------------------------------------------------------------------------------------------

    def _meet(self, error: BaseException) -> None:
        """An error of a pass or a wait: the first is reported; then wait a moment and carry on."""
        if isinstance(error, RedisRefused) and error.code == "OOM":
            self._pause(FULL_PAUSE_S)
            return
        if isinstance(error, RedisRefused) and error.code == "WRONGTYPE":
            self._find_wrong_type(error)
            return
        self._lost_claim = True
        if isinstance(error, MalformedPayload):
            self._report(error, "a claim that was not read")
            return
        self._blocks.close()
        self._pause(self._downtime.meet(error))

    def _find_wrong_type(self, error: RedisRefused) -> None:
        with self._passing:
            for lane in self._lanes.in_order():
                self._dispatch([lane], [1], 1)
        if not self._lanes.some_put_aside:
            self._report(error, "waiting for jobs")
            self._pause(BROKEN_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        deadline = monotonic() + seconds
        while not self._ended and (left := deadline - monotonic()) > 0:
            time.sleep(min(left, HOLD_S))

    def _adopt_after_fork(self) -> None:
        """Built in a parent: private lists carry our own pid, and the parent's claims are not ours."""
        self._pid = os.getpid()
        self._lanes = Lanes(self.capsule, self._index)
        self._holdings = Holdings()
        self._ready.clear()
        self._done.clear()
        self._blocks.close()
        self._blocks = Blocks(self.capsule.claims, self._options.fetch_block)
