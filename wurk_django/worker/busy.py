"""What the threads of this process are running, and how many jobs they have processed and failed."""

from __future__ import annotations

import json
import threading
import time

from .work import Work


class Busy:
    """The table of running jobs. Rows are set and removed by the threads, read by the heartbeat."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Work, int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def enter(self, thread: str, work: Work) -> None:
        """This thread starts a job."""
        self._rows[thread] = (work, int(time.time()))

    def leave(self, thread: str) -> None:
        """This thread's job is over."""
        self._rows.pop(thread, None)

    def rows(self) -> dict[str, bytes]:
        """Thread id to the JSON of its job. Wire: queue, payload as a text within the text, run_at in seconds."""
        return {
            thread: json.dumps(
                {"queue": work.lane.name, "payload": work.raw.decode("utf-8", "replace"), "run_at": run_at},
                ensure_ascii=False,
                separators=(",", ":"),
            ).encode()
            for thread, (work, run_at) in list(self._rows.items())
        }


class Cell:
    """The counts of one thread; only that thread writes them."""

    __slots__ = ("failed", "processed")

    def __init__(self) -> None:
        self.processed = 0
        self.failed = 0


class Tally:
    """The counts of all threads of a process, and how much of them is in Redis already."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._cells: list[Cell] = []
        self._taken = (0, 0)

    def cell(self) -> Cell:
        """A cell for one thread. It stays after the thread: its counts are part of the total."""
        cell = Cell()
        with self._mutex:
            self._cells.append(cell)
        return cell

    def take(self) -> tuple[int, int]:
        """Processed and failed since the last call."""
        with self._mutex:
            processed = sum(cell.processed for cell in self._cells)
            failed = sum(cell.failed for cell in self._cells)
            new = processed - self._taken[0], failed - self._taken[1]
            self._taken = processed, failed
        return new

    def put_back(self, processed: int, failed: int) -> None:
        """What was taken could not be written: count it again next time."""
        with self._mutex:
            self._taken = self._taken[0] - processed, self._taken[1] - failed
