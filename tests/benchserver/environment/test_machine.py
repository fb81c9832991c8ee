"""The machine: a tree as kernels show it, an empty one, and the one that runs this."""

from __future__ import annotations

import json
from pathlib import Path

from benchserver.environment.machine import machine_document
from tests.rules.documents import rows_under

DOCUMENT = Path(__file__).parents[3] / "docs/report.md"

FILES = {
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nflags\t: fpu\n",
    "proc/meminfo": "MemTotal:       2048 kB\nMemFree: 1 kB\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX 570.86  Release\nGCC version: 12\n",
    "proc/driver/nvidia/gpus/0000:19:00.0/information": (
        "Model: \t\t NVIDIA H200\nIRQ: 5\nGPU UUID: \t GPU-9f\n"
    ),
    "sys/devices/system/node/node0/x": "",
    "sys/devices/system/node/node1/x": "",
    "sys/devices/system/node/possible": "0-1",
    "sys/class/net/eth0/speed": "25000\n",
    "sys/class/net/eth0/operstate": "up\n",
    "sys/class/net/lo/operstate": "unknown\n",
    "sys/class/net/lo/speed": "-1\n",
    "dev/shm/x": "",
}


def test_a_machine_with_two_nodes_and_a_gpu(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    document = machine_document((1.5, 1.0, 0.5), tmp_path)
    assert document["cpu_model"] == "A CPU @ 2 GHz"
    assert (document["memory_bytes"], document["numa_nodes"]) == (2048 * 1024, 2)
    assert document["shm_bytes"] > 0
    assert document["load_average_at_begin"] == [1.5, 1.0, 0.5]
    assert document["networks"] == [
        {"name": "eth0", "state": "up", "speed_mbit_per_s": 25000},
        {"name": "lo", "state": "unknown", "speed_mbit_per_s": "not known: it does not say"},
    ]
    assert document["gpu_driver"] == "NVIDIA UNIX 570.86  Release"
    assert document["gpus"] == [
        {"bus": "0000:19:00.0", "model": "NVIDIA H200", "uuid": "GPU-9f"},
    ]


def test_what_is_not_there_is_said_to_be_unknown_or_not_installed(tmp_path: Path) -> None:
    document = machine_document((), tmp_path)
    assert document["gpu_driver"] == "not installed"
    assert (document["gpus"], document["networks"]) == ([], [])
    unknown = ("cpu_model", "memory_bytes", "numa_nodes", "shm_bytes", "load_average_at_begin")
    for name in unknown:
        assert document[name].startswith("not known: "), name


def test_interfaces_are_shown_up_to_a_number(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"sys/class/net/veth{number}").mkdir(parents=True)
    assert len(machine_document((), tmp_path)["networks"]) == 64


def test_this_machine() -> None:
    document = machine_document(())
    rows = rows_under(DOCUMENT.read_text(encoding="utf-8"), "in `environment`", "what it holds")
    assert {name.strip("`") for cell in rows for name in cell.split(", ")} == document.keys()
    assert json.loads(json.dumps(document)) == document
    assert document["memory_bytes"] > 1 << 20
    assert 0 < document["usable_cpus"] <= document["cpus"]
    assert document["descriptors"]["soft"] > 0
    assert set(document["container"]) == {"cpus", "memory_bytes", "processes"}
