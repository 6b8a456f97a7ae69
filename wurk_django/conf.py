"""From Django's settings to a Config.

One dict, `WURK`. Unknown keys and wrong values are errors with a hint, told by the system checks and again, as
ConfigurationError, when the configuration is first needed. Order: command line, `WURK`, environment, defaults.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from . import buffer, database, wire
from .config import DEFAULT_QUEUE, Config, Options, parse_queues
from .connection import READ_TIMEOUT_S, RedisOptions, redact
from .errors import ConfigurationError
from .feature import Feature

#: The rooms that are plugged in, in the order of their middleware: outermost first.
FEATURES: tuple[Feature, ...] = ()

Check = Callable[[Any], str | None]

#: What people who know Sidekiq or wurk may write, and what it is called here.
SIDEKIQ_NAMES = {
    "AVERAGE_SCHEDULED_POLL_INTERVAL": "POLL_INTERVAL",
    "FETCH_POLL_INTERVAL": "FETCH_BLOCK",
    "SUPER_FETCH_REAPER_INTERVAL": "REAPER_INTERVAL",
}
_NO_DICT = object()  # the key under which `read` gives back a WURK that is no dict


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the settings, and the way out."""

    check_id: str
    message: str
    hint: str


def _positive(value: Any) -> str | None:
    return None if _is_number(value) and value > 0 else "must be a number above 0"


def _not_negative(value: Any) -> str | None:
    return None if _is_number(value) and value >= 0 else "must be a number, 0 or more"


def _at_least(least: float, value: Any) -> str | None:
    return None if _is_number(value) and value >= least else f"must be a number, {least} or more"


def _two_or_more(value: Any) -> str | None:
    return None if _is_number(value) and value >= 2 else "must be a number, 2 or more"


def _count(value: Any) -> str | None:
    return None if type(value) is int and value >= 1 else "must be a whole number, 1 or more"


def _whole(value: Any) -> str | None:
    return None if type(value) is int and value >= 0 else "must be a whole number, 0 or more"


def _wait_timeout(value: Any) -> str | None:
    longest = READ_TIMEOUT_S - 0.5  # the answer must come before the connection gives up
    good = _is_number(value) and 0.001 <= value <= longest
    return None if good else f"must be a number of seconds from 0.001 to {longest}"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be True or False"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "must be a text"


def _name(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "must be a text that is not empty"


def _texts(value: Any) -> str | None:
    good = isinstance(value, list | tuple | set) and all(isinstance(item, str) for item in value)
    return None if good else "must be a list of texts"


def _one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else f"must be one of {', '.join(map(repr, choices))}"


def _queues(value: Any) -> str | None:
    if not isinstance(value, list | tuple) or not value:
        return 'must be a list such as ["critical,3", "default"]'
    try:
        names = parse_queues(value).names
    except (ConfigurationError, TypeError, IndexError) as error:
        return str(error) or "must be a list of names"
    odd = next((name for name in names if not wire.is_queue_name(name)), None)
    return None if odd is None else f"has {odd!r:.300}, which cannot be a queue name: no '|', no control characters"


def _capsules(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return 'must be a dict such as {"binary": {"CONCURRENCY": 2, "QUEUES": ["sirius"]}}'
    for name, capsule in value.items():
        if not isinstance(capsule, Mapping) or not set(capsule) <= {"CONCURRENCY", "QUEUES"}:
            return f"{name!r} may have CONCURRENCY and QUEUES, nothing else"
        wrong = _count(capsule.get("CONCURRENCY", 1)) or _queues(capsule.get("QUEUES", [DEFAULT_QUEUE]))
        if wrong:
            return f"{name!r}: {wrong}"
    return None


def _topology(value: Any) -> str | None:
    good = isinstance(value, list | tuple) and value and all(isinstance(slot, Mapping) for slot in value)
    if not good:
        return 'must be a list such as [{"COUNT": 2, "QUEUES": ["critical"], "CONCURRENCY": 5}, {"QUEUES": ["low"]}]'
    wrong = next(filter(None, (_count(slot.get("COUNT", 1)) for slot in value)), None)
    if wrong:
        return f"has a COUNT that {wrong}"
    return _capsules({number: _served_by(slot) for number, slot in enumerate(value, start=1)})


def _served_by(slot: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in slot.items() if name != "COUNT"}


def _redis(value: Any) -> str | None:
    if value == "embedded":
        return None
    if isinstance(value, str):
        return _redis_url(value)
    if isinstance(value, Mapping) and set(value) == {"URL"}:
        return _redis_url(value["URL"])
    if isinstance(value, Mapping) and set(value) == {"CACHE"}:
        known = isinstance(value["CACHE"], str) and value["CACHE"] in settings.CACHES
        return None if known else f"names a cache that CACHES does not have: {value['CACHE']!r}"
    if isinstance(value, Mapping) and {"SENTINELS", "MASTER"} <= set(value) <= {"SENTINELS", "MASTER", "URL"}:
        return _sentinels(value["SENTINELS"]) or _text(value["MASTER"]) or _redis_url(value.get("URL", "redis://"))
    return 'must be a URL, "embedded", {"URL": …}, {"CACHE": alias} or {"SENTINELS": [[host, port]], "MASTER": name}'


def _redis_url(value: Any) -> str | None:
    good = isinstance(value, str) and value.startswith(("redis://", "rediss://", "unix://"))
    return None if good else 'must be a redis://, rediss:// or unix:// URL, or "embedded"'


def _sentinels(value: Any) -> str | None:
    def is_address(item: Any) -> bool:
        return isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str) and type(item[1]) is int

    good = isinstance(value, list | tuple) and value and all(map(is_address, value))
    return None if good else 'needs SENTINELS such as [["10.0.0.1", 26379]]'


def _address(value: Any) -> str | None:
    port = value.rpartition(":")[2] if isinstance(value, str) else value
    good = isinstance(value, bool) or (re.fullmatch(r"[0-9]{1,5}", str(port)) and int(port) <= 65535)
    return None if good else 'must be a port, "host:port", or True for port 7433'


def _options_dict(value: Any) -> str | None:
    good = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    return None if good else 'must be a dict such as {"retry": 5}'


#: Settings that are options of the core under another spelling: WURK["MAX_RETRIES"] is Options.max_retries.
OPTION_CHECKS: dict[str, Check] = {
    "CONCURRENCY": _count,
    "TIMEOUT": _positive,
    "POLL_INTERVAL": _positive,
    "POLL_INTERVAL_AVERAGE": _positive,
    "SCHEDULER_INITIAL_WAIT": _not_negative,
    "HEARTBEAT_INTERVAL": _positive,
    "HEARTBEAT_TTL": _positive,
    "REAPER_INTERVAL": _positive,
    "REAPER_GRACE": _not_negative,
    "REAPER_WATCH_INTERVAL": _positive,
    "REAPER_FULL_INTERVAL": _positive,
    "POISON_LIMIT": _count,
    "HUNG_TIMEOUT": lambda value: None if value is False else _at_least(20, value),
    "MAXMEM_MB": _not_negative,
    "FETCH_BLOCK": _positive,
    "LEADER_KEY": _name,
    "LEADER_TTL": _positive,
    "LEADER_INTERVAL": _positive,
    "HEALTH_CHECK": _address,
    "HEALTH_METRICS": _flag,
    "READY_WINDOW": _positive,
    "MIN_READY": _count,
    "WEDGED_AFTER": _two_or_more,
    "MAX_RETRIES": _whole,
    "DEAD_MAX_JOBS": _count,
    "DEAD_TIMEOUT_IN_SECONDS": _positive,
    "MAX_JOB_BYTES": _count,
    "ON_COMPLEX_ARGUMENTS": _one_of("raise", "warn", "off"),
    "WIRE_TIMESTAMPS": _one_of("milliseconds", "seconds"),
    "ENQUEUE_ON_COMMIT": _flag,
    "REDIS_IDLE_TIMEOUT": _positive,
    "RELIABLE_PUSH": _flag,
    "RELIABLE_PUSH_BUFFER": _count,
    "RELIABLE_PUSH_OVERFLOW": _one_of("raise", "drop_oldest"),
    "RELIABLE_PUSH_DRAIN_INTERVAL": _not_negative,
    "PUSH_WAIT_REPLICAS": _whole,
    "PUSH_WAIT_TIMEOUT": _wait_timeout,
    "DEFAULT_JOB_OPTIONS": _options_dict,
    "LABELS": _texts,
    "TAG": _text,
    "ENVIRONMENT": _text,
    "LOGGED_JOB_ATTRIBUTES": _texts,
    "SKIP_DEFAULT_JOB_LOGGING": _flag,
    "LOG_ARGUMENTS": _flag,
    "LOG_FORMAT": _one_of("pretty", "plain", "json"),
}

#: Settings that say something else than one option.
OTHER_CHECKS: dict[str, Check] = {
    "REDIS": _redis,
    "QUEUES": _queues,
    "CAPSULES": _capsules,
    "PROCESSES": lambda value: None if value == "auto" else _count(value),
    "TOPOLOGY": _topology,
    "CLIENT_MIDDLEWARE": _texts,
    "SERVER_MIDDLEWARE": _texts,
    "ERROR_HANDLERS": _texts,
    "DEATH_HANDLERS": _texts,
    "RECOVERY_CALLBACKS": _texts,
    "POISON_CALLBACKS": _texts,
    "BACKTRACE_CLEANER": _text,
    "DEMO": _text,
}

CHECKS: dict[str, Check] = {**OPTION_CHECKS, **OTHER_CHECKS}


def read() -> dict[Any, Any]:
    """The dict `WURK` of the settings, without what is None: that counts as not set. Empty when there is none."""
    given: Any = getattr(settings, "WURK", {})
    if not isinstance(given, Mapping):
        return {_NO_DICT: given}
    return {name: value for name, value in given.items() if value is not None}


def problems(given: Mapping[Any, Any]) -> list[Problem]:
    """Everything that is wrong with these settings."""
    if _NO_DICT in given:
        message = f"WURK must be a dict; it is {given[_NO_DICT]!r:.300}."
        return [Problem("wurk_django.E002", message, 'Write WURK = {"CONCURRENCY": 10}, for example.')]
    found = []
    for name, value in given.items():
        check = CHECKS.get(name)
        if check is None:
            message = f"WURK has an unknown key {name!r}."
            found.append(Problem("wurk_django.E001", message, _hint_for(str(name).upper())))
            continue
        wrong = check(value)
        if wrong:
            shown = _without_passwords(value) if name == "REDIS" else repr(value)
            found.append(Problem("wurk_django.E002", f"WURK[{name!r}] {wrong}; it is {shown}.", "Correct the value."))
    ttl = given.get("HEARTBEAT_TTL") or Options.heartbeat_ttl
    interval = given.get("HEARTBEAT_INTERVAL") or Options.heartbeat_interval
    if _is_number(ttl) and _is_number(interval) and ttl < 2 * interval:
        found.append(
            Problem(
                "wurk_django.E004",
                f"WURK['HEARTBEAT_TTL'] ({ttl} s) is less than two beats ({interval} s each): a late beat would make a"
                " living process look dead.",
                "Make HEARTBEAT_TTL at least three times HEARTBEAT_INTERVAL.",
            )
        )
    if "TOPOLOGY" in given and "PROCESSES" in given:
        message = "WURK has both TOPOLOGY and PROCESSES; TOPOLOGY says how many processes there are."
        found.append(Problem("wurk_django.E002", message, "Remove PROCESSES."))
    if "REDIS" not in given:
        found.extend(_problems_without_redis(_redis_source(given)))
    return found


def load(overrides: Mapping[str, Any] | None = None) -> Config:
    """Build a Config from the settings and what the command line adds. Raises ConfigurationError."""
    chosen = {name: value for name, value in (overrides or {}).items() if value is not None}
    given = read() | chosen
    if "PROCESSES" in chosen:
        given.pop("TOPOLOGY", None)
    wrong = problems(given)
    if wrong:
        raise ConfigurationError(" ".join(f"{problem.message} {problem.hint}" for problem in wrong))
    config = Config(_options(given), redis_options(given))
    database.install(config)
    if config.options.reliable_push:
        buffer.install(config)
    for feature in FEATURES:
        config.install(feature)
    for path in given.get("CLIENT_MIDDLEWARE", ()):
        config.client_middleware.add(_import("CLIENT_MIDDLEWARE", path))
    for path in given.get("SERVER_MIDDLEWARE", ()):
        config.server_middleware.add(_import("SERVER_MIDDLEWARE", path))
    config.error_handlers += [_import("ERROR_HANDLERS", path) for path in given.get("ERROR_HANDLERS", ())]
    config.death_handlers += [_import("DEATH_HANDLERS", path) for path in given.get("DEATH_HANDLERS", ())]
    config.recovery_callbacks += [_import("RECOVERY_CALLBACKS", path) for path in given.get("RECOVERY_CALLBACKS", ())]
    config.poison_callbacks += [_import("POISON_CALLBACKS", path) for path in given.get("POISON_CALLBACKS", ())]
    if given.get("BACKTRACE_CLEANER"):
        config.backtrace_cleaner = _import("BACKTRACE_CLEANER", given["BACKTRACE_CLEANER"])
    config.capsule("default", given.get("QUEUES", [DEFAULT_QUEUE]), config.options.concurrency)
    for name, capsule in given.get("CAPSULES", {}).items():
        config.capsule(
            name, capsule.get("QUEUES", [DEFAULT_QUEUE]), capsule.get("CONCURRENCY", config.options.concurrency)
        )
    return config


def load_slots(overrides: Mapping[str, Any]) -> list[Config]:
    """What each process of `TOPOLOGY` serves; nothing without it, or when the command line says what is served."""
    chosen = {name: value for name, value in overrides.items() if value is not None}
    if chosen.keys() & {"QUEUES", "CONCURRENCY", "PROCESSES"}:
        return []
    slots = []
    for slot in read().get("TOPOLOGY", ()):
        slots += [load({**chosen, **_served_by(slot)})] * slot.get("COUNT", 1)
    return slots


def redis_options(given: Mapping[str, Any]) -> RedisOptions:
    """Where Redis is, by these settings, the environment or DEBUG."""
    source = _redis_source(given)
    if isinstance(source, Mapping):
        if "CACHE" in source:
            return _cache_options(source["CACHE"])
        if "SENTINELS" in source:
            sentinels = tuple((str(host), int(port)) for host, port in source["SENTINELS"])
            return RedisOptions(source.get("URL", "redis:///0"), sentinels, source["MASTER"])
        source = source["URL"]
    if source == "embedded":
        return RedisOptions(_embedded_url)
    return RedisOptions(str(source))


def base_directory() -> Path:
    """Where the project is: BASE_DIR of the settings, else the working directory."""
    return Path(getattr(settings, "BASE_DIR", None) or Path.cwd())


def _redis_source(given: Mapping[str, Any]) -> Any:
    return given.get("REDIS") or os.environ.get("REDIS_URL") or ("embedded" if settings.DEBUG else None)


def _embedded_url() -> str:
    from . import embedded

    return embedded.ensure(base_directory())


def _cache_options(alias: str) -> RedisOptions:
    from django.core.cache import caches

    cache = caches[alias]
    client = getattr(cache, "client", None)
    if client is None or not hasattr(client, "get_client"):
        raise ConfigurationError(f"the cache {alias!r} is no django-redis cache; WURK['REDIS'] needs one, or a URL")
    lender = client.get_client(write=True)
    if hasattr(lender.connection_pool, "sentinel_manager"):
        raise ConfigurationError(
            f"the cache {alias!r} finds its server by Sentinel; name SENTINELS and MASTER in WURK['REDIS'] instead"
        )
    return RedisOptions.of_client(lender)


def _options(given: Mapping[str, Any]) -> Options:
    known = {field.name for field in fields(Options)}
    chosen = {name.lower(): value for name, value in given.items() if name in OPTION_CHECKS and name.lower() in known}
    merged = {**dict(Options().default_job_options), **(chosen.pop("default_job_options", None) or {})}
    for name in ("labels", "logged_job_attributes"):
        if name in chosen:
            chosen[name] = tuple(chosen[name])
    chosen.setdefault("tag", base_directory().name)
    chosen.setdefault("maxmem_mb", _maxmem_of_environment())
    defaults = Options()
    return replace(defaults, **chosen, default_job_options=tuple(merged.items()), naive_datetimes=not settings.USE_TZ)


def _maxmem_of_environment() -> float | None:
    text = os.environ.get("WURK_MAXMEM_MB") or os.environ.get("SIDEKIQ_MAXMEM_MB") or ""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < math.inf else None


def _import(setting: str, path: str) -> Any:
    try:
        return import_string(path)
    except ImportError as error:
        raise ConfigurationError(f"WURK[{setting!r}]: {path!r} cannot be imported: {error}") from error


def _problems_without_redis(source: Any) -> list[Problem]:
    """What is wrong with the Redis of the environment, or with having none."""
    if source is None:
        hint = (
            "Set WURK = {'REDIS': 'redis://…'} or the environment variable REDIS_URL. The embedded server is used by"
            " itself only while DEBUG is on; WURK['REDIS'] = 'embedded' asks for it."
        )
        return [Problem("wurk_django.E003", "No Redis is configured.", hint)]
    wrong = _redis(source)
    if wrong is None:
        return []
    message = f"The environment variable REDIS_URL {wrong}; it is {_without_passwords(source)}."
    return [Problem("wurk_django.E002", message, "Correct the value, or set WURK['REDIS'].")]


def _hint_for(name: str) -> str:
    close = [SIDEKIQ_NAMES[name]] if name in SIDEKIQ_NAMES else difflib.get_close_matches(name, CHECKS, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(sorted(CHECKS))}."


def _without_passwords(value: Any) -> str:
    """A wrong address as it may be shown."""
    if isinstance(value, Mapping):
        return str({name: redact(item) if isinstance(item, str) else item for name, item in value.items()})
    return repr(redact(value) if isinstance(value, str) else value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
