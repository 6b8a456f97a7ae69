"""Tells the death handlers of a job that was killed by hand. A broken handler stops neither the others nor the kill."""

from __future__ import annotations

from .. import wire
from ..config import Config
from ..errors import MalformedPayload


def tell(config: Config, raw: bytes, error: BaseException | None = None) -> None:
    """Call every death handler with the job and the error, or "Job killed by API". Not for what is no JSON object."""
    try:
        payload = wire.decode(raw)
    except MalformedPayload:
        return
    if not isinstance(payload, dict):
        return
    error = error or _killed()
    for handler in config.death_handlers:
        try:
            handler(payload, error)
        except Exception as failed:  # the job is dead already; the others must hear of it
            config.report(failed, {"context": "death handler", "job": payload})


def _killed() -> RuntimeError:
    try:
        raise RuntimeError("Job killed by API")  # raised, so that it has a traceback
    except RuntimeError as error:
        return error
