"""Keeps a record of every job that ran: a server middleware and a death handler, named in the settings."""

from __future__ import annotations

from typing import Any

from wurk_django.middleware import CallNext

from .models import JobRecord


class KeepRecord:
    """Server middleware: notes each run and how it ended."""

    def call(self, job: object, payload: dict[str, Any], queue: str, call_next: CallNext) -> Any:
        """Run the job, then note its outcome; an error goes on to the worker, which retries."""
        try:
            result = call_next()
        except Exception as error:
            _note(payload, queue, JobRecord.State.FAILED, error)
            raise
        _note(payload, queue, JobRecord.State.DONE)
        return result


def note_death(payload: dict[str, Any], error: BaseException) -> None:
    """Death handler: the worker gave the job up."""
    _note(payload, payload["queue"], JobRecord.State.DEAD, error)


def _note(payload: dict[str, Any], queue: str, state: str, error: BaseException | None = None) -> None:
    facts = {"name": payload["class"], "queue": queue, "state": state, "error": str(error or "")[:200]}
    if state != JobRecord.State.DEAD:  # a death is told about a run that was noted already
        facts["attempts"] = payload.get("retry_count", -1) + 2
    JobRecord.objects.update_or_create(facts, {**facts, "waited_s": _waited_s(payload)}, jid=payload["jid"])


def _waited_s(payload: dict[str, Any]) -> float:
    """Seconds in the schedule: from the push until the job was put into its queue (both in milliseconds)."""
    made, queued = payload.get("created_at"), payload.get("enqueued_at")
    return (queued - made) / 1000 if made and queued else 0.0
