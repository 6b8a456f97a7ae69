"""Database connections around jobs: stale ones are closed before they can hurt, untouched threads pay nothing."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from asgiref.sync import sync_to_async
from django.db import connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from tests.django.conftest import Configure
from wurk_django import Job, current_job, database, job
from wurk_django.config import Config
from wurk_django.worker.launcher import Launcher

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other", "file"])

QUICK = {
    "CONCURRENCY": 1,
    "HEARTBEAT_INTERVAL": 0.5,
    "HEARTBEAT_TTL": 10,
    "FETCH_BLOCK": 0.2,
    "TIMEOUT": 2,
    "SCHEDULER_INITIAL_WAIT": 60,
}


@pytest.fixture(scope="module", autouse=True)
def _a_database_in_a_file(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`file`: SQLite in a file. A connection to one in memory is never closed, so it shows nothing."""
    path: Path = tmp_path_factory.mktemp("db") / "file.sqlite3"
    template = connections.settings["default"]
    connections.settings["file"] = {
        **template, "NAME": str(path), "CONN_MAX_AGE": None, "TEST": {**template["TEST"], "NAME": str(path)},
    }  # fmt: skip
    yield
    connections["file"].close()
    del connections.settings["file"]


@pytest.fixture
def closes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads in which connections were looked after."""
    names: list[str] = []
    real = database.close_old_connections

    def noted(**_signal: Any) -> None:
        names.append(threading.current_thread().name)
        real()

    monkeypatch.setattr(database, "close_old_connections", noted)
    return names


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says of every connection that it is usable; here it asks, as other databases do."""

    def is_usable(self: Any) -> bool:
        try:
            self.connection.execute("SELECT 1")
        except sqlite3.Error:
            return False
        return True

    monkeypatch.setattr(type(connections["file"]), "is_usable", is_usable)


def kill(connection: BaseDatabaseWrapper) -> None:
    """End a connection behind Django's back, as a server or firewall does at night."""
    connection.connection.close()


def select(alias: str = "file") -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT 41 + 1")
        return int(cursor.fetchone()[0])


Run = Callable[..., Any]


@pytest.fixture
def one_thread() -> Iterator[Run]:
    """Calls in one thread that has touched no database yet."""
    with ThreadPoolExecutor(1, thread_name_prefix="wurk-test") as pool:

        def run(call: Callable[..., Any], *arguments: Any) -> Any:
            return pool.submit(call, *arguments).result(10)

        yield run
        run(connections.close_all)


# --- what happens around one job --------------------------------------------------------------------------------------


def test_a_thread_that_touched_no_database_is_left_alone(one_thread: Run, closes: list[str]) -> None:
    one_thread(database.close_stale_connections)
    assert closes == []


def test_a_thread_that_opened_a_connection_is_looked_after(one_thread: Run, closes: list[str]) -> None:
    one_thread(select)
    one_thread(database.close_stale_connections)
    assert len(closes) == 1


def test_a_connection_past_its_age_is_closed(one_thread: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["file"], "CONN_MAX_AGE", 0)

    def is_open_afterwards() -> bool:
        select()
        database.close_stale_connections()
        return connections["file"].connection is not None

    assert one_thread(is_open_afterwards) is False


def test_a_connection_that_may_stay_stays(one_thread: Run) -> None:
    def same_afterwards() -> bool:
        select()
        before = connections["file"].connection
        database.close_stale_connections()
        return connections["file"].connection is before

    assert one_thread(same_afterwards) is True


@pytest.mark.usefixtures("alive")
def test_a_connection_that_died_in_a_job_is_closed_for_the_next(one_thread: Run) -> None:
    def next_job() -> int:
        select()
        kill(connections["file"])
        with pytest.raises(Exception, match="closed"):
            select()
        database.close_stale_connections()
        return select()

    assert one_thread(next_job) == 42


@pytest.mark.usefixtures("alive")
def test_a_connection_that_died_while_it_idled_is_closed_before_the_next_job(
    one_thread: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: a job that used the database, then a night
    now = [1000.0]
    monkeypatch.setattr(database, "monotonic", lambda: now[0])
    one_thread(select)
    one_thread(database.close_stale_connections)
    one_thread(lambda: kill(connections["file"]))
    # when
    now[0] += 8 * 3600
    one_thread(database.close_stale_connections)
    # then
    assert one_thread(select) == 42


@pytest.mark.usefixtures("alive")
def test_a_busy_threads_connection_is_not_asked_before_every_job(
    one_thread: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = type(connections["file"]).is_usable
    monkeypatch.setattr(type(connections["file"]), "is_usable", lambda self: (asked.append(1), real(self))[1])
    one_thread(select)
    one_thread(database.close_stale_connections)
    before = len(asked)
    for _ in range(20):
        one_thread(database.close_stale_connections)
        one_thread(select)
    assert len(asked) == before


@pytest.mark.usefixtures("alive")
def test_with_health_checks_a_dead_connection_is_noticed_by_the_next_job_at_once(
    one_thread: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["file"], "CONN_HEALTH_CHECKS", True)

    def next_job() -> int:
        select()
        database.close_stale_connections()
        kill(connections["file"])
        database.close_stale_connections()
        return select()

    assert one_thread(next_job) == 42


def test_queries_are_kept_from_piling_up_under_debug_only(configure: Configure, settings: Any) -> None:
    settings.DEBUG = True
    assert reset_queries in configure().around_job
    settings.DEBUG = False
    assert configure().around_job == (database.close_stale_connections,)


# --- in a worker ------------------------------------------------------------------------------------------------------


class Bench:
    """Jobs that tell their outcome, and a worker of one thread that runs them."""

    def __init__(self, config: Config) -> None:
        self.told: list[Any] = []
        self.changed = threading.Condition()
        self.launcher = Launcher(config)

    def tell(self, what: Any) -> None:
        with self.changed:
            self.told.append(what)
            self.changed.notify_all()

    def wait_for(self, count: int) -> list[Any]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.told) >= count, 10), self.told
            return list(self.told)


@pytest.fixture
def bench(configure: Configure) -> Iterator[Bench]:
    bench = Bench(configure(**QUICK))
    bench.launcher.start()
    yield bench
    bench.launcher.stop()
    connections.close_all()


@pytest.mark.usefixtures("alive")
@pytest.mark.oracle("reports:P26", "safety:C15")
def test_after_an_idle_night_the_next_job_succeeds_on_its_first_attempt(
    bench: Bench, redis: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(database, "monotonic", lambda: now[0])

    @job(name="connections.query")
    def query(dies: str) -> None:
        found = current_job()
        assert found is not None
        if dies == "in mid-query" and found.retry_count is None:
            kill(connections["file"])
        bench.tell([dies, select(), found.retry_count])
        if dies == "afterwards":
            kill(connections["file"])

    # given: a job after which the connection dies, and a night
    query.perform_async("afterwards")
    bench.wait_for(1)
    now[0] += 8 * 3600
    # when
    query.perform_async("no")
    # then
    assert bench.wait_for(2) == [["afterwards", 42, None], ["no", 42, None]]
    assert redis.zcard("retry") == 0
    # and one that is interrupted in mid-query fails once and is retried
    query.perform_async("in mid-query")
    deadline = threading.Event()
    while not redis.zcard("retry"):
        assert not deadline.wait(0.01)
    ((member, _due),) = redis.zrange("retry", 0, -1, withscores=True)
    redis.zadd("retry", {member: 1})
    bench.launcher.scheduler.enqueue_due()
    assert bench.wait_for(3)[2] == ["in mid-query", 42, 0]


def test_a_worker_whose_jobs_touch_no_database_never_looks_after_connections(bench: Bench, closes: list[str]) -> None:
    class Plain(Job, name="connections.plain"):
        def perform(self, number: int) -> None:
            bench.tell(number)

    Plain.perform_bulk([[number] for number in range(20)])
    bench.wait_for(20)
    assert closes == []


def test_a_thread_that_ends_closes_its_connections(bench: Bench) -> None:
    @job(name="connections.leave")
    def leave() -> None:
        select()
        bench.tell(connections["file"])

    leave.perform_async()
    (connection,) = bench.wait_for(1)
    assert connection.connection is not None
    bench.launcher.stop()
    assert connection.connection is None


def test_an_async_jobs_connection_is_looked_after_in_the_thread_of_its_orm_calls(
    bench: Bench, closes: list[str]
) -> None:
    from asgiref.sync import sync_to_async

    @job(name="connections.async")
    async def query() -> None:
        await sync_to_async(select)()
        bench.tell(await sync_to_async(lambda: threading.current_thread().name)())

    query.perform_async()
    (first,) = bench.wait_for(1)
    query.perform_async()
    bench.wait_for(2)
    assert closes
    assert set(closes) == {first}


def test_a_job_that_pushes_inside_atomic_waits_for_its_commit(bench: Bench, redis: redis_py.Redis) -> None:
    from django.db import transaction

    @job(name="connections.push")
    def push() -> None:
        with transaction.atomic(using="file"):
            after.set(queue="later").perform_async()
            early = redis.llen("queue:later")
        bench.tell([early, redis.llen("queue:later")])

    @job(name="connections.after")
    def after() -> None:
        """Stays in its queue."""

    push.perform_async()
    assert bench.wait_for(1) == [[0, 1]]


@pytest.mark.oracle("reports:P27")
def test_twenty_threads_open_at_most_a_connection_each_and_keep_no_queries(
    configure: Configure, settings: Any, redis: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DEBUG = True
    monkeypatch.setitem(connections.settings["file"], "CONN_MAX_AGE", 60)
    opened: list[str] = []
    kept: list[int] = []

    def note(sender: object, connection: BaseDatabaseWrapper, **_signal: Any) -> None:
        opened.append(threading.current_thread().name)

    @job(name="connections.touch")
    def touch() -> None:
        select()
        kept.append(len(connections["file"].queries_log))

    @job(name="connections.atouch")
    async def atouch() -> None:
        await sync_to_async(select)()
        kept.append(0)

    bench = Bench(configure(**{**QUICK, "CONCURRENCY": 20}))
    connection_created.connect(note)
    try:
        bench.launcher.start()
        touch.perform_bulk([[]] * 400)
        atouch.perform_bulk([[]] * 200)
        deadline = time.monotonic() + 60
        while len(kept) < 600 and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        connection_created.disconnect(note)
        bench.launcher.stop()
        connections.close_all()

    assert len(kept) == 600
    assert max(kept) <= 1, "the queries of one job"
    threads = {name for name in opened if name.startswith("wurk-")}
    assert len([name for name in opened if name in threads]) == len(threads) <= 20
    assert len(opened) <= 20 + 21, "and those of the helpers in which the async ones wait"
