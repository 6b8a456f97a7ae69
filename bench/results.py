"""What a measure hands back: samples of interleaved rounds, reasons of failures, and rows judged against targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from bench.process import ContestantError


@dataclass(frozen=True)
class Target:
    """A limit that a row's figure must keep."""

    limit: float
    at_least: bool
    text: str

    def met(self, figure: float) -> bool:
        """Whether the figure keeps it."""
        return figure >= self.limit if self.at_least else figure <= self.limit


def at_least(limit: float, unit: str = "×") -> Target:
    """The figure must not be below."""
    return Target(limit, at_least=True, text=f"≥ {limit:g}{unit}")


def at_most(limit: float, unit: str = "×") -> Target:
    """The figure must not be above."""
    return Target(limit, at_least=False, text=f"≤ {limit:g}{unit}")


@dataclass(frozen=True)
class Row:
    """A line of the table. `figure` is what the target judges; None means that something did not run."""

    measure: str
    what: str
    ours: str
    theirs: str
    figure: float | None
    unit: str = "×"
    target: Target | None = None

    @property
    def verdict(self) -> str:
        """For the last column."""
        if self.figure is None:
            return "n/a"
        if self.target is None:
            return "–"
        return "pass" if self.target.met(self.figure) else "FAIL"


@dataclass
class Rounds:
    """The samples of each contestant, one a round, and why a contestant has none."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, once: Callable[[], float | list[float]]) -> None:
        """Take one contestant's turn; one that failed has no further turns."""
        if name in self.failures:
            return
        try:
            taken = once()
        except Exception as error:  # one failing contestant must not end the run: its reason goes to the table
            kind = "" if isinstance(error, ContestantError) else f"{type(error).__name__}: "
            self.failures[name] = f"{kind}{error}"
            return
        self.samples.setdefault(name, []).extend(taken if isinstance(taken, list) else [taken])

    def median(self, name: str) -> float | None:
        """The median of its rounds; None when it failed."""
        return None if name in self.failures or name not in self.samples else median(self.samples[name])

    def percentile(self, name: str, percent: float) -> float | None:
        """A percentile of all its samples, pooled; None when it failed."""
        if name in self.failures or name not in self.samples:
            return None
        ordered = sorted(self.samples[name])
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


@dataclass(frozen=True)
class Outcome:
    """All that one measure found."""

    rows: list[Row]
    rounds: Rounds


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Ours over theirs; None when one is missing."""
    return None if ours is None or not theirs else ours / theirs


def shown(value: float | None, unit: str) -> str:
    """A figure as the table shows it: as many digits as are worth reading."""
    if value is None:
        return "n/a"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()
