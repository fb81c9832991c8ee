"""What runs here: versions of Python, of packages, and of this source, if it is a checkout."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from benchserver.environment.reading import NOT_INSTALLED, not_known

_SOURCE = Path(__file__).resolve().parents[2]

_PACKAGES = (
    "aiohttp",
    "blake3",
    "click",
    "hdrhistogram",
    "lmcache",
    "matplotlib",
    "mooncake-transfer-engine-non-cuda",
    "msgpack",
    "numpy",
    "prometheus-client",
    "pyzmq",
    "rich",
    "torch",
    "triton",
)
"""What this program uses, and what a server beside it would."""


def software_document(git_within_s: float) -> dict[str, Any]:
    """Return the versions; a loaded library may know more than its package says."""
    return {
        "bench_server": version_of("bench-server"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: version_of(name) for name in _PACKAGES},
        "libzmq": _loaded("zmq", "zmq_version"),
        "torch_cuda": _cuda(),
        "git_revision": revision_of(_SOURCE, git_within_s),
    }


def version_of(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED


def revision_of(source: Path, within_s: float) -> str:
    """Return the commit that a checkout is at, `-dirty` behind it if files were changed."""
    if not (source / ".git").exists():
        return not_known("this is no checkout")
    command = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(
            [*command, "--exclude", "*"],
            capture_output=True,
            timeout=within_s,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
    except FileNotFoundError:
        return not_known("git is not installed")
    except (OSError, subprocess.TimeoutExpired):
        return not_known(f"git gave no answer within {within_s:g} s")
    lines = done.stdout.decode("utf-8", "replace").split() or [""]
    return lines[0] or not_known(f"git ended with {done.returncode}")


def _loaded(module: str, function: str) -> str:
    """Return what a module says of its library, if it is loaded; it is not loaded for that."""
    if module not in sys.modules:
        return not_known(f"{module} is not loaded")
    return str(getattr(sys.modules[module], function)())


def _cuda() -> str:
    """Return the CUDA that torch was built for, if it is loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return not_known("torch is not loaded")
    return str(torch.version.cuda or "none")
