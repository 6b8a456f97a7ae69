"""Loops without any job system, the yardstick of the `sleep` and `cpu` measures: `python -m bench.bare KIND COUNT`.

Prints runs a second (`sleep`, `cpu`), or how many loops of `spin` take a millisecond here (`calibrate`).
"""

from __future__ import annotations

import sys
import threading
import time

from bench import workload

THREADS = 10
CALIBRATION_LOOPS = 20_000


def sleep(count: int) -> float:
    """Threads that only sleep, started together."""
    gate = threading.Barrier(THREADS + 1)

    def run() -> None:
        gate.wait()
        for _ in range(count // THREADS):
            time.sleep(workload.SLEEP_S)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    gate.wait()
    begin = time.monotonic()
    for thread in threads:
        thread.join()
    return count / (time.monotonic() - begin)


def cpu(count: int) -> float:
    """The same Python as the job, in one thread."""
    begin = time.monotonic()
    for number in range(count):
        workload.cpu(number, "short")
    return count / (time.monotonic() - begin)


def calibrate(count: int) -> float:
    """The best of `count` tries, since noise only ever adds time."""
    best_s = min(_spin_s() for _ in range(count))
    return CALIBRATION_LOOPS * 0.001 / best_s


def _spin_s() -> float:
    begin = time.perf_counter()
    workload.spin(CALIBRATION_LOOPS)
    return time.perf_counter() - begin


KINDS = {"sleep": sleep, "cpu": cpu, "calibrate": calibrate}

if __name__ == "__main__":
    print(KINDS[sys.argv[1]](int(sys.argv[2])))
