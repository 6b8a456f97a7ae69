"""Every crash point: each scenario, broken at each command that it sends to Redis, in each way that one can break.

A scenario is recorded once through a proxy; each of its commands times each fault is a point. A point runs in a forked
child, which is really killed where the fault is a kill; then another worker recovers, and the books must balance.
`python -m tests.enumerator --help`; docs/spec/safety.md, G2.
"""
