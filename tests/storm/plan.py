"""What the enemy does and when. The same seed gives the same plan."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

CALM_AT_THE_END_S = 3.0
PAUSE_S = 4.5  # longer than a heartbeat lives and the grace after it

#: How often each act is chosen, and how long it lasts at least and at most. 0: a moment.
ACTS: dict[str, tuple[int, float, float]] = {
    "kill worker": (5, 0, 0),
    "kill child": (4, 0, 0),
    "restart worker": (3, 0, 0),
    "pause worker": (1, PAUSE_S, PAUSE_S + 1),
    "reset lines": (3, 0, 0),
    "lose request": (3, 0, 0),
    "lose answer": (3, 0, 0),
    "restart server": (2, 0.1, 1),
    "kill server": (2, 0.1, 1),
    "kill clients": (2, 0, 0),
    "fill server": (1, 0.5, 2),
    "demote server": (1, 0.5, 1.5),
    "busy script": (1, 0.5, 1.5),
    "flush scripts": (2, 0, 0),
}
#: These use the server as a whole, so one at a time.
OF_THE_SERVER = frozenset({"restart server", "kill server", "fill server", "demote server", "busy script"})


@dataclass(frozen=True)
class Act:
    """One attack: `chance` chooses its victim among those that are there then."""

    at_s: float
    kind: str
    lasts_s: float
    chance: float


def make_plan(seed: int, seconds: float) -> list[Act]:
    """Attacks in the order of their times: each kind in turn at least once if there is time, the others by chance."""
    dice = Random(seed)
    kinds, weights = list(ACTS), [weight for weight, _, _ in ACTS.values()]
    first = dice.sample(kinds, len(kinds))
    plan: list[Act] = []
    at_s, server_free_s, pause_free_s = 1.0, 0.0, 0.0
    while at_s < seconds - CALM_AT_THE_END_S:
        kind = first.pop() if first else dice.choices(kinds, weights)[0]
        lasts_s = dice.uniform(*ACTS[kind][1:])
        if kind in OF_THE_SERVER:
            at_s = max(at_s, server_free_s)
            server_free_s = at_s + lasts_s + 0.5
        if kind == "pause worker":
            at_s = max(at_s, pause_free_s)
            pause_free_s = at_s + lasts_s + 1
        plan.append(Act(round(at_s, 3), kind, round(lasts_s, 3), dice.random()))
        at_s += dice.uniform(0.2, 1.0)
    return plan
