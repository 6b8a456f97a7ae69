"""What the benchmark needs, set up by itself: a virtual environment with the tree and its peers, and Sidekiq from apt.

Standard library only: it runs before anything is installed. `BENCH_VENV` names an environment to use as it is;
otherwise `.venv-bench` in the repository's root is made, and filled again when the requirements change.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
OLDEST_PYTHON = (3, 11)


def enter() -> None:
    """Go on in the benchmark's environment: replaces this process, unless it runs there already."""
    given = os.environ.get("BENCH_VENV")
    folder = Path(given).absolute() if given else ROOT / ".venv-bench"
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    if not given:
        _fill(folder)
    _install_sidekiq()
    python = str(folder / "bin" / "python")
    os.chdir(ROOT)
    os.execv(python, [python, "-m", "bench.run", *sys.argv[1:]])


def _fill(folder: Path) -> None:
    """Make the environment, or bring it up to date."""
    if sys.version_info < OLDEST_PYTHON:
        sys.exit("The benchmark needs Python 3.11 or newer: start it with that interpreter.")
    mark = folder / "filled-for"
    wanted = _fingerprint()
    if mark.exists() and mark.read_text() == wanted:
        return
    print(f"setting up {folder.name} ...", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", f"{ROOT}[fast,embedded]", "-r", str(REQUIREMENTS)], check=True, stdout=sys.stderr)
    mark.write_text(wanted)


def _fingerprint() -> str:
    parts = [sys.version.encode(), *(path.read_bytes() for path in (ROOT / "setup.cfg", REQUIREMENTS))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _install_sidekiq() -> None:
    """By apt where that is possible without asking; elsewhere its rows say what is missing."""
    if shutil.which("sidekiq") or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    print("installing ruby-sidekiq ...", file=sys.stderr)
    apt = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "ruby-sidekiq"]):
        subprocess.run(["apt-get", *arguments], env=apt, stdout=sys.stderr, check=False)
