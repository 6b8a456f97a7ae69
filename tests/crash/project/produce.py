"""A producer: `python -m tests.crash.project.produce count` pushes that many jobs and prints each jid it was given."""

from __future__ import annotations

import sys

import django

if __name__ == "__main__":
    django.setup()
    from tests.crash.project.jobs import work

    for _ in range(int(sys.argv[1])):
        print(work.perform_async(), flush=True)
