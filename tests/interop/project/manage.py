"""Django's command line for the project that meets the Ruby peer."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from django.core.management import execute_from_command_line

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """A killed test run must leave no worker behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    end_with_parent()
    execute_from_command_line(sys.argv)
