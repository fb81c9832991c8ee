"""A server's pool: mapped by name, and never beyond what it is."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.client.serverpool import ServerPool
from benchserver.errors import FatalError
from benchserver.shmnames import SHM_DIR
from protocol.errors import RemoteProtocolError
from protocol.messages import PoolInfo
from tests.benchserver.client.poolfile import NAME, OBJECT_BYTES, PoolFile, slot

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.parametrize("name", [NAME, "/" + NAME], ids=["plain", "posix"])
def test_a_pool_is_mapped_by_name(server_pool: PoolFile, name: str) -> None:
    pool = ServerPool(PoolInfo(shm_name=name, pool_bytes=512))
    pool.slot(slot(384), OBJECT_BYTES)[:] = 7
    pool.close()
    assert server_pool.read() == bytes(384) + b"\7" * 128 + bytes(512)
    with pytest.raises(RemoteProtocolError, match="the pool is closed"):
        pool.slot(slot(0), OBJECT_BYTES)


@pytest.mark.parametrize(
    "name",
    [
        ".",
        "..",
        "/",
        "/..",
        pytest.param("//" + NAME, id="two slashes"),
        pytest.param("../shm/" + NAME, id="a way round"),
        "../../etc/passwd",
        "/etc/passwd",
        "a/b",
        pytest.param(NAME + "/", id="a folder"),
        pytest.param(NAME + "\n", id="two lines"),
        pytest.param(NAME + "\0", id="a null"),
        "n" * 201,
        "pöol",
        "\x1b[31m",
    ],
)
def test_names_with_tricks_are_refused(server_pool: PoolFile, name: str) -> None:
    with pytest.raises(FatalError, match=r"^engine_driven: the server named its pool '") as caught:
        ServerPool(PoolInfo(shm_name=name, pool_bytes=512))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_pool_that_is_not_there() -> None:
    reason = f"cannot map the server's pool /dev/shm/{NAME}: No such file or directory; the server"
    with pytest.raises(FatalError, match=reason):
        ServerPool(PoolInfo(shm_name=NAME, pool_bytes=512))


def test_a_link_is_not_followed(tmp_path: Any) -> None:
    (tmp_path / "mine").write_bytes(bytes(512))
    (SHM_DIR / NAME).symlink_to(tmp_path / "mine")
    try:
        with pytest.raises(FatalError, match="cannot map the server's pool"):
            ServerPool(PoolInfo(shm_name=NAME, pool_bytes=512))
    finally:
        (SHM_DIR / NAME).unlink()


@pytest.mark.parametrize("said", [0, 1025, 1 << 62])
def test_a_pool_of_another_size_is_refused(server_pool: PoolFile, said: int) -> None:
    with pytest.raises(FatalError, match=f"has {said} bytes, the segment has 1024"):
        ServerPool(PoolInfo(shm_name=NAME, pool_bytes=said))


@pytest.mark.parametrize(
    ("offset", "length"), [(897, 128), (1024, 128), (1 << 60, 128), (0, 127), (0, 129), (0, 0)]
)
def test_slots_outside_the_pool_or_of_another_size(
    server_pool: PoolFile, offset: int, length: int
) -> None:
    pool = ServerPool(PoolInfo(shm_name=NAME, pool_bytes=1024))
    with pytest.raises(RemoteProtocolError, match=f"slot at {offset} has {length} bytes"):
        pool.slot(slot(offset, length=length), OBJECT_BYTES)
    assert pool.slot(slot(896), OBJECT_BYTES).size == 128
    pool.close()
