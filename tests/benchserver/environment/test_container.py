"""Limits of control groups, by either version, from trees as kernels show them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchserver.environment.container import ContainerLimits, container_limits

NONE = ContainerLimits(cpus=None, memory_bytes=None, processes=None)


def limits(tmp_path: Path, ours: str, files: Mapping[str, str]) -> ContainerLimits:
    mount = tmp_path / "cgroup"
    mount.mkdir()
    for name, text in files.items():
        path = mount / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "ours").write_text(ours)
    return container_limits(tmp_path / "ours", mount)


def test_no_groups_no_limits(tmp_path: Path) -> None:
    assert container_limits(tmp_path / "missing", tmp_path / "neither") == NONE
    assert limits(tmp_path, "0::/\n", {}) == NONE


def test_a_container_of_version_2(tmp_path: Path) -> None:
    files = {"cpu.max": "150000 100000\n", "memory.max": "1073741824\n", "pids.max": "512\n"}
    found = limits(tmp_path, "0::/\n", files)
    assert found == ContainerLimits(cpus=1.5, memory_bytes=1 << 30, processes=512)


def test_the_lowest_on_the_way_to_the_root_counts(tmp_path: Path) -> None:
    files = {
        "a.slice/cpu.max": "200000 100000\n",
        "a.slice/memory.max": "4096\n",
        "a.slice/b.service/cpu.max": "max 100000\n",
        "a.slice/b.service/memory.max": "8192\n",
        "a.slice/b.service/pids.max": "max\n",
        "c.slice/cpu.max": "1000 100000\n",
    }
    found = limits(tmp_path, "0::/a.slice/b.service\n", files)
    assert found == ContainerLimits(cpus=2.0, memory_bytes=4096, processes=None)


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/box/cpu.cfs_quota_us": "50000\n",
        "cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/box/memory.limit_in_bytes": "2048\n",
        "pids/pids.max": "99\n",
    }
    ours = "4:memory:/box\n3:cpu,cpuacct:/box\n2:pids:/\n1:name=systemd:/x\nnot a line\n"
    found = limits(tmp_path, ours, files)
    assert found == ContainerLimits(cpus=0.5, memory_bytes=2048, processes=99)


def test_a_path_of_the_host_is_read_at_the_root_of_our_mount(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": "4096\n", "unified/cpu.max": "300000 100000\n"}
    ours = "4:memory:/docker/8f2e\n0::/../../elsewhere\n"
    found = limits(tmp_path, ours, files)
    assert found == ContainerLimits(cpus=3.0, memory_bytes=4096, processes=None)
