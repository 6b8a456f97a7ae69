"""Seeded mutants: each takes one safeguard out of a copy of the package, and the crash points must notice it.

`python -m tests.mutants`; docs/spec/safety.md, G17.
"""
