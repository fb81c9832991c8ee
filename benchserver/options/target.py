"""The server that is tested, and how it is reached: options of every scenario."""

from __future__ import annotations

from benchserver.options.kinds import Flag, Number, Text
from benchserver.options.option import NotReplayed, Option, Replayed, Table

MAX_SECONDS = 86_400.0 * 366

_SECRET = NotReplayed("secrets come from a file or the environment")

TARGET = Table(
    "Server",
    shared=True,
    options=(
        Option(
            name="--rpc-url",
            field="rpc_url",
            kind=Text("URL"),
            default="tcp://localhost:5555",
            help="The server's ZMQ address: tcp://host:port or host:port.",
            excluded_by="--embedded",
            replay=Replayed(place=90, always=True),
        ),
        Option(
            name="--url",
            field="http_url",
            kind=Text("URL"),
            default="http://localhost:8080",
            help="The server's HTTP API, http:// or https://: its release, its status, digests.",
            excluded_by="--embedded",
            replay=Replayed(place=90, always=True),
        ),
        Option(
            name="--no-http",
            field="needs_http",
            report_key="cross_check",
            kind=Flag(gives=False),
            help="Accept a server without HTTP, and compare no digests.",
            replay=Replayed(place=72),
        ),
        Option(
            name="--http-token",
            field="http_token",
            kind=Text("TOKEN"),
            default="",
            secret=True,
            help="Send 'Authorization: Bearer TOKEN' with every HTTP request; better from the "
            "environment, BENCH_SERVER_HTTP_TOKEN, or a file.",
            replay=_SECRET,
        ),
        Option(
            name="--http-token-file",
            kind=Text("PATH"),
            help="Read that token from a file: its first and only line.",
            replay=_SECRET,
        ),
        Option(
            name="--http-ca",
            field="http_ca",
            kind=Text("FILE"),
            default="",
            help="Accept an https server whose certificate these authorities signed (PEM), in "
            "place of the system's.",
            replay=Replayed(place=91),
        ),
        Option(
            name="--server-release",
            field="server_release",
            kind=Text("X.Y.Z"),
            default="",
            help="Speak as to this server release, instead of asking /version or, where that "
            "does not answer, the server itself.",
            replay=Replayed(place=70),
        ),
        Option(
            name="--timeout",
            field="timeout_s",
            kind=Number(0.001, 86_400.0),
            default=10.0,
            help="Deadline of every call, in seconds.",
            replay=Replayed(place=32),
        ),
        Option(
            name="--wait-ready",
            field="wait_ready_s",
            kind=Number(0.0, MAX_SECONDS),
            default=0.0,
            help="Seconds to wait for a server that is still starting, and for its name to "
            "resolve.",
            replay=Replayed(place=34),
        ),
        Option(
            name="--embedded",
            field="own_server",
            kind=Flag(),
            help="Start the embedded server on free ports, and run against it.",
            replay=Replayed(place=80),
        ),
    ),
)
