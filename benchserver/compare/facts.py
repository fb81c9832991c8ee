"""What must be equal of two runs whose figures are compared: facts by their keys.  Pure.

scenario, config.*       what was asked for
server.*                 how it was reached, and what it offers; its release may differ
server_config.*          how it is set up, as it says itself
engine.*                 what the engine that was played is like
machine.*, software.*    what the run ran on and with
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

CONFIG_FREE = frozenset(("rpc_url", "http_url", "http_ca", "wait_ready_s", "seed"))
"""Options that decide where, or with which tokens, and not what work is done."""

SERVER_KEYS = ("chunk_tokens", "transfer_mode", "transport", "embedded")
MACHINE_KEYS = (
    *("system", "kernel", "architecture", "cpu_model", "cpus", "usable_cpus", "numa_nodes"),
    *("memory_bytes", "shm_bytes", "container", "gpu_driver", "gpus"),
)
SOFTWARE_FREE = frozenset(("lmcache", "mooncake-transfer-engine-non-cuda", "matplotlib"))
"""Packages that do not measure: the server's, and what draws pictures."""

_SETUP_FREE = frozenset(
    (
        *("host", "port", "http_host", "http_port", "prometheus_port"),
        *("instance_id", "service_instance_id"),
    )
)
"""Of a server's configuration: where it is, and who."""

_SIZES = ("memory_bytes", "shm_bytes")
_UNKNOWN = "not known"
NOT_SAID = "not in the report"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_DEPTH = 16

WORK = ("scenario", "config.", "server.chunk_tokens")
"""What the keys begin with that decide the work: runs that are equal in them are of one cell."""

Facts = Mapping[str, str]


def facts_of(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of a report; a part that it does not have is a fact too."""
    run = _part(report, "run")
    facts = {"scenario": _scenario(report), "server.host": _host(report)}
    config, server = _part(report, "config"), _part(report, "server")
    facts |= _flat("config", _without(config, CONFIG_FREE))
    facts |= _flat("server", {key: server.get(key) for key in SERVER_KEYS})
    facts |= _flat("engine", _without(_part(run, "engine"), CONFIG_FREE))
    facts |= _server_facts(_part(run, "server"))
    facts |= _software_facts(_part(run, "software"))
    machine = _part(report, "environment")
    facts |= _flat("machine", {key: _size(key, machine.get(key)) for key in MACHINE_KEYS})
    for name, part in (("run", run), ("machine", machine)):
        facts |= {} if part else {name: NOT_SAID}
    return facts


def decides_work(key: str) -> bool:
    """Tell whether a fact decides the work that a run does."""
    return key.startswith(WORK)


def _scenario(report: Mapping[str, Any]) -> str:
    """Return the command of a run, by its replay line."""
    words = str(report.get("replay", "")).split(" ", 2)
    return words[1] if len(words) > 1 and not words[1].startswith("-") else "baseline"


def _host(report: Mapping[str, Any]) -> str:
    """Return where the server is; its ports may differ, and names of this host are one."""
    url = str(_part(report, "server").get("rpc_url", ""))
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = url
    return "this host" if host in _LOOPBACK or host.startswith("127.") else host


def _server_facts(server: Mapping[str, Any]) -> dict[str, str]:
    facts = _flat("server", {"l1_bytes": server.get("l1_bytes"), "cache": server.get("cache")})
    return facts | _flat("server_config", server.get("configuration"))


def _software_facts(software: Mapping[str, Any]) -> dict[str, str]:
    packages = _without(_part(software, "packages"), SOFTWARE_FREE)
    keys = ("bench_server", "git_revision", "python", "libzmq", "torch_cuda")
    return _flat("software", {**{key: software.get(key) for key in keys}, **packages})


def _size(key: str, value: Any) -> Any:
    """Return a size of memory as GiB: a kernel of another day keeps some pages more for itself."""
    is_size = key in _SIZES and isinstance(value, int) and not isinstance(value, bool)
    return f"{value / 2**30:.1f} GiB" if is_size else value


def _flat(prefix: str, value: Any, depth: int = 0) -> dict[str, str]:
    """Return the single values of a document by their paths, as text."""
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        facts = dict[str, str]()
        for key, inner in value.items():
            if prefix.startswith("server_config") and key in _SETUP_FREE:
                continue
            facts |= _flat(f"{prefix}.{key}", inner, depth + 1)
        return facts
    if isinstance(value, str):
        return {prefix: _UNKNOWN if value.startswith(_UNKNOWN) else value}
    return {prefix: json.dumps(value, sort_keys=True)}


def _without(values: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in names}


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def covers(allowed: str, key: str) -> bool:
    """Tell whether a key that a user allows to differ is this one, or a part that has it."""
    return key == allowed or key.startswith(f"{allowed}.")


def parts_of(keys: Iterator[str]) -> set[str]:
    """Return keys, and the parts that they are in: what may be allowed."""
    found = set[str]()
    for key in keys:
        words = key.split(".")
        found |= {".".join(words[: count + 1]) for count in range(len(words))}
    return found
