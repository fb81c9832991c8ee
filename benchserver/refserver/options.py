"""The options of `bench-server serve`."""

from __future__ import annotations

from typing import Literal, get_args

from benchserver.options.kinds import Action, Choice, Flag, Number, Port, Text, Texts, Whole
from benchserver.options.option import NotReplayed, Option, Table
from benchserver.refserver.defaults import (
    DEFAULT_CHUNK_TOKENS,
    DEFAULT_EVICTION_RATIO,
    DEFAULT_EVICTION_TRIGGER_WATERMARK,
    DEFAULT_HOST,
    DEFAULT_L1_READ_TTL_S,
    DEFAULT_L1_WRITE_TTL_S,
    DEFAULT_RELEASE,
    DEFAULT_SESSION_TTL_S,
    DEFAULT_WORKER_REAP_TIMEOUT_S,
    DEFAULT_WORKER_REGISTRATION_GRACE_S,
)

TransferMode = Literal["auto", "lmcache_driven", "engine_driven"]
L2Write = Literal["through", "evict"]

MAX_SECONDS = 366 * 86_400
MAX_CHUNK_TOKENS = 1 << 20
"""A million tokens: no model is served with such chunks."""

_NO_RUN = NotReplayed("a server makes no run")

_NETWORK = Table(
    "Network",
    options=(
        Option(
            name="--as",
            field="release",
            variable_name="RELEASE",
            kind=Text("X.Y.Z"),
            default=DEFAULT_RELEASE,
            help="Speak as this server release, 0.4.6 or later.",
            replay=_NO_RUN,
        ),
        Option(
            name="--host",
            field="host",
            kind=Text("HOST"),
            default=DEFAULT_HOST,
            help="Address of the ZMQ port.",
            replay=_NO_RUN,
        ),
        Option(
            name="--port",
            field="port",
            kind=Port(),
            default=5555,
            help="ZMQ port; 0: any free one.",
            replay=_NO_RUN,
        ),
        Option(
            name="--http-host",
            field="http_host",
            kind=Text("HOST"),
            default=DEFAULT_HOST,
            help="Address of HTTP.",
            replay=_NO_RUN,
        ),
        Option(
            name="--http-port",
            field="http_port",
            kind=Port(),
            default=8080,
            help="HTTP port; 0: any free one.",
            replay=_NO_RUN,
        ),
        Option(
            name="--http-token",
            field="http_token",
            kind=Text("TOKEN"),
            default="",
            secret=True,
            shared=True,
            help="HTTP asks for 'Authorization: Bearer TOKEN', except /healthcheck; better from "
            "the environment, BENCH_SERVER_HTTP_TOKEN, or a file.",
            replay=_NO_RUN,
        ),
        Option(
            name="--http-token-file",
            kind=Text("PATH"),
            help="Read that token from a file: its first and only line.",
            replay=_NO_RUN,
        ),
    ),
)

_CACHE = Table(
    "Cache",
    options=(
        Option(
            name="--chunk-size",
            field="chunk_size",
            kind=Whole(1, MAX_CHUNK_TOKENS),
            default=DEFAULT_CHUNK_TOKENS,
            help="Tokens of a chunk.",
            replay=_NO_RUN,
        ),
        Option(
            name="--l1-size-gb",
            kind=Number(0.00001, 1 << 20, "GIB"),
            default=1.0,
            help="Size of the cache, in GiB.",
            replay=_NO_RUN,
        ),
        Option(
            name="--supported-transfer-mode",
            field="transfer_mode",
            kind=Choice(get_args(TransferMode)),
            default="auto",
            help="Transfer modes to serve.",
            replay=_NO_RUN,
        ),
        Option(
            name="--shm-name",
            field="shm_name",
            kind=Text("NAME"),
            default="",
            help="Name of a shared-memory pool for engine_driven; without one bytes go inline.",
            replay=_NO_RUN,
        ),
        Option(
            name="--l2",
            field="l2",
            kind=Texts("URL"),
            default=(),
            help="An L2 tier behind L1: fs:///dir, mock://CAPACITY_GB/ or "
            "mooncake://HOST:PORT?metadata=URL; may be given several times.",
            replay=_NO_RUN,
        ),
        Option(
            name="--l2-write",
            field="l2_write",
            kind=Choice(get_args(L2Write)),
            default="through",
            help="Write chunks to L2 as they are stored, or as L1 evicts them and at the end.",
            replay=_NO_RUN,
        ),
        Option(
            name="--gpu",
            field="gpu",
            kind=Flag(),
            default_text="when the first of them registers",
            help="Be ready for clients whose KV lies on a GPU, with L1 pinned, before the first "
            "line; fail without torch or a device.",
            replay=_NO_RUN,
        ),
        Option(
            name="--eviction-trigger-watermark",
            field="eviction_trigger_watermark",
            kind=Number(0.0, 1.0, "SHARE"),
            default=DEFAULT_EVICTION_TRIGGER_WATERMARK,
            help="Used share of L1 from which a store evicts first.",
            replay=_NO_RUN,
        ),
        Option(
            name="--eviction-ratio",
            field="eviction_ratio",
            kind=Number(0.0, 1.0, "SHARE"),
            default=DEFAULT_EVICTION_RATIO,
            help="Share of the objects that one eviction drops, at least one.",
            replay=_NO_RUN,
        ),
    ),
)

_TIMES = Table(
    "Times",
    options=(
        Option(
            name="--worker-reap-timeout-seconds",
            field="worker_reap_timeout_s",
            kind=Number(0.0, MAX_SECONDS),
            default=DEFAULT_WORKER_REAP_TIMEOUT_S,
            help="Silence after which a client that has PINGed is unregistered; 0: never.",
            replay=_NO_RUN,
        ),
        Option(
            name="--worker-registration-grace-seconds",
            field="worker_registration_grace_s",
            kind=Number(0.0, MAX_SECONDS),
            default=DEFAULT_WORKER_REGISTRATION_GRACE_S,
            help="The same for a client that never PINGed; not less.",
            replay=_NO_RUN,
        ),
        Option(
            name="--session-ttl-seconds",
            field="session_ttl_s",
            kind=Number(0.001, MAX_SECONDS),
            default=DEFAULT_SESSION_TTL_S,
            help="Age at which an open session is dropped.",
            replay=_NO_RUN,
        ),
        Option(
            name="--l1-write-ttl-seconds",
            field="l1_write_ttl_s",
            kind=Whole(1, MAX_SECONDS),
            default=DEFAULT_L1_WRITE_TTL_S,
            help="How long a store may take before its reservation is dropped.",
            replay=_NO_RUN,
        ),
        Option(
            name="--l1-read-ttl-seconds",
            field="l1_read_ttl_s",
            kind=Whole(1, MAX_SECONDS),
            default=DEFAULT_L1_READ_TTL_S,
            help="How long the read locks of a lookup last.",
            replay=_NO_RUN,
        ),
    ),
)

_FAULTS = Table(
    "Faults",
    options=(
        Option(
            name="--fault",
            field="faults",
            kind=Texts("NAME[:ARGS][@WHEN]"),
            default=(),
            help="Switch a fault on, such as flip_byte:layer=1@3+; may be given several times.",
            replay=_NO_RUN,
        ),
        Option(
            name="--help-faults",
            kind=Action(),
            help="List the faults and exit.",
            replay=_NO_RUN,
        ),
        Option(
            name="--stop-with-stdin",
            kind=Flag(),
            hidden=True,
            help="Stop when standard input ends: the parent is gone.",
            replay=_NO_RUN,
        ),
    ),
)

SERVE = (_NETWORK, _CACHE, _TIMES, _FAULTS)
