"""Hostile payloads: what anybody who can write to Redis may leave in a queue, and what must become of each.

`CORPUS` maps a name to the bytes of one list element; `expect(name)` says what a worker does with it:

    "dead"   it is no job: into the dead set once, byte for byte, without a retry
    "fails"  an ordinary failure, because nobody registered its class: into the retry set with error fields, or, for
             the names in `LAST_ATTEMPT`, into the dead set with error fields
    "runs"   it is performed and acknowledged

Jobs that run have the class `JOB`, which a test registers as a job that takes any arguments: `def accept(*args,
**kwargs)`. The classes of jobs that fail must not be registered; `write_canary` makes a package that some of them
name, and `was_imported` tells whether anything imported it.
"""

from __future__ import annotations

import base64
import gzip
import json
import marshal
import os
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from wurk_django.wire import MAX_CLAIM_BYTES

Fate = Literal["dead", "fails", "runs"]

JOB = "corpus.Job"
UNKNOWN = "corpus.Unknown"
JID = "c0ffee00c0ffee00c0ffee00"
CANARY = "wurk_canary"

#: Names that a careless worker would import, walk or evaluate.
HOSTILE_NAMES: tuple[str, ...] = (
    "os.system", "os#system", "posix.system", "nt.system", "subprocess.Popen", "subprocess.call", "shutil.rmtree",
    "__import__", "builtins.eval", "builtins.exec", "eval", "exec", "builtins", "object", "type", "sys.exit",
    "importlib.import_module", "django.conf.settings", "wurk_django.registry", "wurk_django.jobs.Job",
    "wurk_django.config.default", "corpus.Job.__init__", "corpus.Job.perform.__globals__", "corpus.Job ", "Corpus.Job",
    "corpus.job", ".corpus.Job", "corpus..Job", "corpus.Job\x00", "corpus/Job", "../corpus.Job", "corpus::Job",
    "Kernel", "Object", "Sidekiq::Extensions::DelayedClass", "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper",
    "lambda: 0", "(lambda: __import__('os').getpid())()", "{0.__class__.__mro__}", "%(class)s", "${jndi:ldap://x/a}",
    "__main__", "__class__", "_jobs", "find", "*", "", " ",
    CANARY, f"{CANARY}.run", f"{CANARY}.sub", f"{CANARY}.sub.run", f"{CANARY}:run", f"{CANARY}#run", f"{CANARY}::Run",
    f"{CANARY}.__init__",
)  # fmt: skip

LAST_ATTEMPT = frozenset({"retry-count-beyond-64-bits", "retry-zero", "retry-negative", "retry-for-negative"})


def expect(name: str) -> Fate:
    """What must become of the payload of this name."""
    return _FATES[name]


def write_canary(directory: Path) -> None:
    """Put the package that hostile names point at into a directory (which the test puts on the path)."""
    for package in (directory / CANARY, directory / CANARY / "sub"):
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(
            f"from pathlib import Path\nPath({str(directory / 'imported')!r}).touch()\ndef run(*args): pass\n"
        )


def was_imported(directory: Path) -> bool:
    return (directory / "imported").exists()


def render(**fields: Any) -> bytes:
    """A job as JSON; a field that is given as `...` is left out."""
    job = {"class": JOB, "args": [], "jid": JID, "queue": "default", "retry": True, **fields}
    return json.dumps({key: value for key, value in job.items() if value is not ...}, separators=(",", ":")).encode()


def spliced(args: bytes, rest: bytes = b"", name: str = JOB) -> bytes:
    """A job whose arguments are these raw bytes; `rest` goes in front of the closing brace."""
    return b'{"class":"%b","jid":"%b","retry":true,"args":%b%b}' % (name.encode(), JID.encode(), args, rest)


def _not_text() -> Iterator[tuple[str, bytes]]:
    good = render(args=["é"])
    yield "empty", b""
    yield "white-space", b" \r\n\t "
    yield "nul", b"\x00"
    yield "nul-around-json", b"\x00" + good
    for name, bad in {
        "lone-ff": b"\xff", "continuation": b"\x80", "overlong-slash": b"\xc0\xaf", "overlong-nul": b"\xc0\x80",
        "cut-short": b"\xe2\x82", "latin-1": "é".encode("latin-1"), "beyond-unicode": b"\xf4\x90\x80\x80",
        "encoded-surrogate": b"\xed\xa0\x80", "encoded-surrogate-pair": b"\xed\xa0\xbd\xed\xb8\x80",
    }.items():  # fmt: skip
        yield f"utf8-{name}", spliced(b'["' + bad + b'"]')
    yield "utf8-in-a-key", spliced(b"[]", b',"\xff":1')
    yield "utf8-behind-the-object", good + b"\xff"
    yield "bom", b"\xef\xbb\xbf" + good
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
        yield encoding, good.decode().encode(encoding)
    yield "utf-7-bom", b"+/v8-" + good


def _not_json() -> Iterator[tuple[str, bytes]]:
    good = render()
    yield "json-cut-short", good[:-1]
    yield "json-cut-in-a-string", good[:12]
    yield "json-twice", good + good
    yield "json-lines", good + b"\n" + good
    yield "json-with-garbage", good + b";"
    yield "json-single-quotes", good.replace(b'"', b"'")
    yield "json-comment", b"/* */" + good
    yield "json-trailing-comma", spliced(b"[1,]")
    yield "json-bare-keys", b"{class:1,args:[],jid:1}"
    yield "json-padded-with-nbsp", "\u00a0".encode() + good
    yield "json-padded-with-form-feed", b"\f" + good
    yield "json-raw-newline-in-a-string", spliced(b'["a\nb"]')
    yield "json-raw-nul-in-a-string", spliced(b'["a\x00b"]')
    yield "json-bad-escape", spliced(b'["\\x41"]')
    yield "json-half-escape", spliced(b'["\\u12"]')
    for name, text in {
        "nan": b"NaN", "minus-nan": b"-NaN", "infinity": b"Infinity", "minus-infinity": b"-Infinity", "1e999": b"1e999",
        "minus-1e999": b"-1e999", "1e400-in-an-object": b'{"a":1E+400}', "leading-zero": b"01", "plus": b"+1",
        "bare-point": b".5", "open-point": b"1.", "hexadecimal": b"0x10", "python-true": b"True",
        "python-none": b"None", "undefined": b"undefined",
        "4301-digits": b"9" * 4301, "minus-4301-digits": b"-" + b"9" * 4301,
        "million-digits": b"9" * 1_000_000,
    }.items():  # fmt: skip
        yield f"number-{name}", spliced(b"[" + text + b"]")
    yield "number-nan-in-an-unknown-field", spliced(b"[]", b',"x":NaN')
    yield "number-4301-digits-in-retry-count", spliced(b"[]", b',"retry_count":' + b"9" * 4301)
    yield "number-infinite-at", spliced(b"[]", b',"at":1e999')


def _other_formats() -> Iterator[tuple[str, bytes]]:
    for protocol in range(6):
        yield f"pickle-{protocol}", pickle.dumps(_Shell(), protocol)
    yield "pickle-global", b"cos\nsystem\n(S'true'\ntR."
    yield "yaml-python", b'!!python/object/apply:os.system ["true"]'
    yield "yaml-ruby", b"--- !ruby/object:Gem::Installer\ni: x\n"
    yield "yaml-flow-bare", b"{class: corpus.Job, args: [], jid: a}"
    yield "marshal", marshal.dumps({"class": JOB, "args": [], "jid": JID})
    yield "marshal-code", marshal.dumps(compile("1", "x", "eval"))
    yield "ruby-marshal", b"\x04\x08[\x07i\x06i\x07"
    yield "msgpack", b"\x83\xa5class\xaacorpus.Job\xa4args\x90\xa3jid\xa1a"
    yield "gzip", gzip.compress(render(), mtime=0)
    yield "zlib", zlib.compress(render())
    yield "base64", base64.b64encode(render())
    yield "xml", b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'
    yield "javascript", b"alert(1)"
    yield "resp", b"*1\r\n$8\r\nFLUSHALL\r\n"


class _Shell:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


def _not_a_job() -> Iterator[tuple[str, bytes]]:
    for name, value in {
        "null": None, "true": True, "false": False, "zero": 0, "float": 1.5, "string": "corpus.Job", "empty-array": [],
        "array": [JOB, []], "array-of-jobs": [{"class": JOB, "args": [], "jid": JID}], "empty-object": {},
    }.items():  # fmt: skip
        yield f"shape-{name}", json.dumps(value).encode()
    wrong: dict[str, dict[str, Any]] = {
        "class": {"null": None, "number": 5, "float": 1.5, "bool": True, "array": [JOB], "object": {"n": JOB}},
        "args": {"null": None, "number": 5, "bool": False, "string": "abc", "object": {"0": 1}},
        "jid": {"null": None, "number": 5, "float": 0.5, "bool": True, "array": [JID], "object": {}, "empty": ""},
    }
    for field, values in wrong.items():
        yield f"{field}-missing", render(**{field: ...})
        for name, value in values.items():
            yield f"{field}-{name}", render(**{field: value})
    yield "jid-lone-surrogate", render(jid="a\ud800")
    yield "class-empty", render(**{"class": ""})


def _too_large() -> Iterator[tuple[str, bytes]]:
    for levels in (101, 1000, 100_000):
        # The job and its arguments are two of the levels.
        inner = levels - 1
        yield f"deep-arrays-{levels}", spliced(b"[" * inner + b"]" * inner)
        yield f"deep-objects-{levels}", spliced(b"[" + b'{"a":' * (inner - 1) + b"1" + b"}" * (inner - 1) + b"]")
    yield "deep-mixed-1000", spliced(b'[{"a":' * 500 + b"1" + b"}]" * 500)
    yield "deep-in-an-unknown-field", spliced(b"[]", b',"x":' + b"[" * 100 + b"]" * 100)
    yield "deep-unclosed", b"[" * 500_000
    yield "deep-unclosed-objects", b'{"a":' * 100_000
    yield "size-over-the-claim-limit", render(args=["x" * MAX_CLAIM_BYTES])


def _failing() -> Iterator[tuple[str, bytes]]:
    for name in HOSTILE_NAMES:
        if name:
            yield f"name-{name}", render(**{"class": name})
    yield "name-lone-surrogate", render(**{"class": "a\udc80"})
    yield "name-forging-a-log-line", render(**{"class": "A\r\nINFO: all is well\x1b[2J\u2028"})
    yield "name-of-a-megabyte", render(**{"class": "A" * (1 << 20)})
    yield "duplicate-class-hostile-last", spliced(b"[]", b',"class":"os.system"')
    for field, values in {
        "retry": {"null": None, "text": "5", "float": 2.5, "array": [], "object": {}},
        "retry-count": {"text": "3", "float": 2.5, "bool": True, "null": None, "array": [1], "negative": -5},
        "failed-at": {"text": "yesterday", "object": {}, "negative": -1, "beyond-64-bits": 10**40, "float-ms": 1.8e12},
        "backtrace": {"text": "all", "negative": -3, "beyond-64-bits": 10**40, "object": {"a": 1}, "float": 0.5},
        "error-backtrace": {"number": 5, "array": [1, None, {}], "not-base64": "§", "not-zlib": "aGVsbG8="},
        "retry-queue": {"private-list": "q|h|1|n|0", "number": 5, "control": "q\n", "surrogate": "\ud800"},
        "retry_queue": {"long": "q" * 201, "null": None},
        "retry-for": {"text": "5m", "array": [], "object": {}, "bool": True, "negative": -1, "beyond-64-bits": 10**40},
        "dead": {"text": "no", "null": None, "zero": 0},
        "wrapped": {"number": 5, "array": ["os.system"], "object": {}, "canary": f"{CANARY}.run", "empty": ""},
    }.items():  # fmt: skip
        for name, value in values.items():
            yield f"{field}-{name}", render(**{"class": UNKNOWN, field.replace("-", "_"): value})
    yield "retry-count-beyond-64-bits", render(**{"class": UNKNOWN, "retry_count": 10**40})
    yield "retry-zero", render(**{"class": UNKNOWN, "retry": 0})
    yield "retry-negative", render(**{"class": UNKNOWN, "retry": -1})
    yield "bomb-of-a-string", render(**{"class": UNKNOWN, "error_backtrace": bomb(json.dumps(["a" * (64 << 20)]))})
    yield "bomb-of-lines", render(**{"class": UNKNOWN, "error_backtrace": bomb("[" + '"",' * 300_000 + '""]')})
    yield "bomb-of-depth", render(**{"class": UNKNOWN, "error_backtrace": bomb("[" * 200_000)})
    yield "bomb-in-a-bomb", render(**{"class": UNKNOWN, "error_backtrace": bomb(json.dumps([bomb("[" * 10_000)]))})


def bomb(text: str) -> str:
    """A stored backtrace that unfolds to this text."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _running() -> Iterator[tuple[str, bytes]]:
    yield "plain", render(args=[1, "a", None])
    yield "minimal", b'{"class":"corpus.Job","args":[],"jid":"a"}'
    yield "padded", b" \r\n\t" + render() + b"\n"
    yield "spaced", json.dumps({"jid": JID, "args": [1], "class": JOB}, indent=2).encode()
    yield "escaped-keys", render().replace(b'"class"', b'"cl\\u0061ss"')
    yield "duplicate-class-known-last", b'{"class":"os.system","args":[],"jid":"a","class":"corpus.Job"}'
    yield "duplicate-args", b'{"class":"corpus.Job","args":5,"jid":"a","args":[1]}'
    yield "duplicate-jid", b'{"class":"corpus.Job","args":[],"jid":5,"jid":"b"}'
    yield "duplicate-key-in-an-argument", spliced(b'[{"a":1,"a":2}]')
    for name, text in {
        "64-bits": b"9223372036854775808", "4300-digits": b"9" * 4300, "1e308": b"1e308", "minus-zero": b"-0.0",
        "underflow": b"1e-999", "whole-float": b"1.0",
    }.items():  # fmt: skip
        yield f"number-{name}", spliced(b"[" + text + b"]")
    yield "deep-arrays-100", spliced(b"[" * 99 + b"]" * 99)
    yield "deep-objects-100", spliced(b"[" + b'{"a":' * 98 + b"1" + b"}" * 98 + b"]")
    yield "brackets-in-a-string", render(args=["[{" * 5000])
    yield "wide-100000-arguments", spliced(b"[" + b"1," * 99_999 + b"1]")
    yield "wide-100000-empty-arrays", spliced(b"[" + b"[]," * 99_999 + b"[]]")
    yield "wide-100000-keys-in-an-argument", render(args=[{f"k{number}": 0 for number in range(100_000)}])
    yield "wide-100000-fields", render(**{f"k{number}": 0 for number in range(100_000)})
    yield "wide-100000-tags", render(tags=["t"] * 100_000)
    yield "long-string", render(args=["x" * (4 << 20)])
    yield "long-field-name", render(**{"x" * (1 << 20): 1})
    yield "long-jid", render(jid="j" * 100_000)
    for field, values in _ODD_FIELDS.items():
        for name, value in values.items():
            yield f"odd-{field}-{name}", render(**{field: value})
    for name in HOSTILE_NAMES[:8]:
        yield f"wrapped-{name}", render(wrapped=name)
    for name, text in _TEXTS.items():
        yield f"text-{name}-argument", render(args=[text, {text: text}])
        yield f"text-{name}-tag", render(tags=[text], bid=text, display_class=text, error_message=text, **{text: text})
        if name != "lone-surrogate":
            yield f"text-{name}-jid", render(jid=text)


_ODD_FIELDS: dict[str, dict[str, Any]] = {
    "queue": {
        "missing": ..., "null": None, "number": 5, "array": ["a"], "object": {}, "empty": "", "pipe": "a|b",
        "private-list": "default|host|1|0123456789ab|0", "newline": "a\nb", "nul": "a\x00b", "c1": "a\x85b",
        "surrogate": "\ud800", "long": "q" * 201, "path": "../../etc", "glob": "*", "key": "queue:default",
    },
    "kwargs": {"null": None, "array": [1], "text": "a", "number": 1, "odd-keys": {"": 1, "a b": 2, "self": 3}},
    "at": {"text": "soon", "null": None, "negative": -1, "object": {}, "number": 1e300},
    "tags": {"text": "a", "object": {"a": 1}, "number": 5, "of-nothing": [None], "of-arrays": [[1], {}]},
    "retry": {"text": "x", "object": {}, "negative": -1},
    "retry_count": {"text": "x", "object": {}},
    "created_at": {"text": "x", "object": {}, "bool": True, "beyond-64-bits": 10**40},
    "enqueued_at": {"text": "x", "array": [], "null": None, "negative": -5},
    "wrapped": {"number": 5, "array": [], "object": {}},
    "log_level": {"number": 5, "array": [], "hostile": "__class__", "object": {}},
    "bid": {"number": 5, "array": [], "object": {}},
    "expiry": {"text": "soon", "array": [], "object": {}},
    "locale": {"number": 5, "path": "../../x"},
}  # fmt: skip

_TEXTS = {
    "log-forging": "a\r\nWARN: forged\u2028next\x1b[31m", "nul": "a\x00b", "lone-surrogate": "a\udfff",
    "html": "<script>alert(1)</script>",
    "format": "%s %n {0} ${x}", "right-to-left": "\u202eabc", "beyond-the-plane": "\U0001f600\U0010ffff",
}  # fmt: skip

_SOURCES: tuple[tuple[Fate, Any], ...] = (
    ("dead", _not_text), ("dead", _not_json), ("dead", _other_formats), ("dead", _not_a_job), ("dead", _too_large),
    ("fails", _failing), ("runs", _running),
)  # fmt: skip


def _gather() -> tuple[dict[str, bytes], dict[str, Fate]]:
    payloads: dict[str, bytes] = {}
    fates: dict[str, Fate] = {}
    for fate, source in _SOURCES:
        for name, raw in source():
            assert name not in payloads, f"two payloads are named {name}"
            payloads[name], fates[name] = raw, fate
    return payloads, fates


CORPUS, _FATES = _gather()
