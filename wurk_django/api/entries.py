"""One member of `schedule`, `retry` or `dead`, and what can be done with it.

Every change is one script that first takes out the exact bytes that were read: of two people, or of a person and a
worker, one wins, and the other one hears False. docs/spec/core.md §7, D12 to D14.
"""

from __future__ import annotations

from datetime import datetime

from ..config import Config
from ..errors import RedisRefused
from ..storage import sorted_sets
from ..storage.sorted_sets import Member
from . import deaths
from .records import JobRecord, time_of
from .rewriting import prepare_move


class SortedEntry(JobRecord):
    """A job with a score: when it is due, or when it died."""

    def __init__(self, member: Member, set_name: str, config: Config) -> None:
        super().__init__(member.raw, config)
        self.set_name = set_name
        self.score = member.score

    @property
    def id(self) -> str:
        """`<score>|<jid>`, as Sidekiq names it."""
        return f"{self.score!r}|{self.jid or ''}"

    @property
    def at(self) -> datetime | None:
        """The score as a time; None when no calendar has it."""
        return time_of(self.score)

    def delete(self) -> bool:
        """Take it out of the set."""
        return bool(sorted_sets.remove(self._config.redis, self.set_name, [self.value]))

    def retry(self) -> bool:
        """Put it into its queue now, without using up an attempt.

        False: it was gone, or a client middleware stopped it, and then it stays. Raises InvalidJob for what is no job.
        """
        return self._enqueue(spare_attempt=True)

    def add_to_queue(self) -> bool:
        """Put it into its queue now, its `retry_count` as it is. Returns and raises as `retry`."""
        return self._enqueue(spare_attempt=False)

    def kill(self, *, notify_failure: bool = True, ex: BaseException | None = None) -> bool:
        """Move it to the dead set, byte for byte, and tell the death handlers."""
        [moved] = sorted_sets.move_to_dead(self._config.redis, self.set_name, [self.value], self._config.options)
        if moved and notify_failure:
            deaths.tell(self._config, self.value, ex)
        return moved

    def reschedule(self, at: float | datetime) -> bool:
        """Let it be due at another time: epoch seconds, or an aware datetime."""
        score = at.timestamp() if isinstance(at, datetime) else float(at)
        moved = sorted_sets.reschedule(self._config.redis, self.set_name, self.value, score)
        if moved:
            self.score = score
        return moved

    def _enqueue(self, *, spare_attempt: bool) -> bool:
        move = prepare_move(self.value, self._config, spare_attempt=spare_attempt)
        if move is None:
            return False
        [moved] = sorted_sets.move_to_queues(self._config.redis, self.set_name, [move])
        if moved < 0:
            raise RedisRefused(f"the key of the queue {move.queue!r} holds no list; the job stays", "WRONGTYPE")
        return bool(moved)
