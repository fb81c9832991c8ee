"""Our server names chunks as the real one does: by the same hashes."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from benchserver.refserver.store.hashing import ROOT, chain
from protocol.dialects import V056
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from protocol.keys import CacheKey
from protocol.messages import Reply
from protocol.ops import Op
from protocol.session import ClientSession
from tests.mitm.running import Urls
from tests.real.conftest import StartServer

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("in_depth"),
]

RECORDED = json.loads(
    (Path(__file__).parents[1] / "golden/chunk_hashes_v056.json").read_text(encoding="utf-8")
)
CHUNK: int = RECORDED["chunk_size"]
TOKENS: list[int] = RECORDED["token_ids"]
"""Two whole chunks and one token more, with ids up to the highest."""

MODEL = "hash-model"
WITHIN_S = 20.0


def call(server: Urls, op: Op, *args: Any) -> Any:
    session = ClientSession(V056)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(server.rpc_url)
        now_ns = time.monotonic_ns()
        out = session.request(op, args, now_ns=now_ns)
        socket.send_multipart(out.frames)
        assert socket.poll(int(WITHIN_S * 1000)), f"no reply to {op.value}"
        event = session.receive(socket.recv_multipart(), now_ns=time.monotonic_ns())
    assert isinstance(event, Reply), event
    return event.result


def store_two_chunks(server: Urls) -> None:
    registration = {
        "instance_id": 1,
        "model_name": MODEL,
        "world_size": 1,
        "block_size": 16,
        "num_layers": 1,
        "hidden_dim_size": 4,
        "dtype_str": "float16",
        "use_mla": True,
        "num_physical_slots": CHUNK,
    }
    key = CacheKey(
        model_name=MODEL,
        world_size=1,
        worker_id=0,
        token_ids=TOKENS,
        start=0,
        end=2 * CHUNK,
        request_id="hash-request",
    )
    chunk = InlineTensor("float16", (1, CHUNK, 4), bytes(2 * CHUNK * 4))
    call(server, Op.REGISTER_ENGINE_DRIVEN, registration)
    assert call(server, Op.PREPARE_STORE, key, 1).inline
    assert call(server, Op.COMMIT_STORE, key, 1, encode_tensor_list([chunk, chunk])) is True


def delete_from_l1(server: Urls, hashes: list[str]) -> Any:
    identity = {"model_name": MODEL, "kv_rank": 1 << 24 | 1 << 8, "object_group_id": 0}
    keys = [{"chunk_hash_hex": text, "cache_salt": "", **identity} for text in hashes]
    request = urllib.request.Request(
        f"{server.http_url}/cache/objects",
        data=json.dumps({"tier": "l1", "keys": keys, "force": True}).encode(),
        headers={"Content-Type": "application/json"},
        method="DELETE",
    )
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        return json.load(answer)


def eventually(wanted: Any, look: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"saw {seen}, expected {wanted}"
        time.sleep(0.05)


def test_the_real_server_knows_chunks_by_our_hashes(
    start_server: StartServer, tmp_path: Path
) -> None:
    ours = [h.hex() for h in chain(TOKENS, chunk_size=CHUNK, start=0, root=ROOT)]
    assert ours == RECORDED["chunk_hash_hex"]
    tier = tmp_path / "l2"
    adapter = json.dumps({"type": "fs", "base_path": str(tier)})
    with start_server("--l2-adapter", adapter) as running:
        store_two_chunks(running.urls)
        # Its file tier names each file by model, rank, group and hash.
        eventually(set(ours), lambda: {p.stem.split("@")[3] for p in tier.glob("*.data")})
        wrong = [ours[0][::-1]]
        assert delete_from_l1(running.urls, wrong)["deleted"] == 0
        assert delete_from_l1(running.urls, ours)["deleted"] == 2
