"""Sidekiq 6.4 from Debian.

Its fetch is the basic one: what a killed process held is lost, and no round trip is paid for an acknowledgement.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contestants.base import Command

APP = Path(__file__).with_name("sidekiq_app")


@dataclass(frozen=True)
class Sidekiq:
    """One Ruby process."""

    name: str = "Sidekiq"
    drain_jobs: int = 30_000

    def version(self) -> str:
        """What `require "sidekiq"` brings."""
        if shutil.which("sidekiq") is None:
            raise RuntimeError("sidekiq is not on PATH; Debian and Ubuntu have it as the package ruby-sidekiq")
        command = ["ruby", "-e", 'require "sidekiq"; print "#{Sidekiq::VERSION} (Ruby #{RUBY_VERSION})"']
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def push(self, job: str, count: int, mode: str) -> Command:
        """By the Ruby twin of `bench.push`."""
        return Command(["ruby", str(APP / "push.rb"), job, str(count), mode])

    def worker(self, threads: int, queues: Sequence[str]) -> Command:
        """Queues without weights are served in their order."""
        options = [option for queue in queues for option in ("-q", queue)]
        arguments = ["sidekiq", "-r", str(APP / "workload.rb"), "-e", "production", "-c", str(threads), *options]
        return Command(arguments)
