"""`bench-server` and its commands; every option also from BENCH_SERVER_* and --config."""

from __future__ import annotations

from typing import Any

import click

from benchserver.cli.configfile import load_config
from benchserver.cli.eager import print_faults, print_version
from benchserver.cli.environment import PREFIX, PortOption
from benchserver.cli.group import OneLineGroup
from benchserver.cli.types import StrictFloat, StrictInt, Text
from benchserver.defaults import (
    DEFAULT_CUDA_IPC,
    DEFAULT_INTERVAL_S,
    DEFAULT_MODEL_NAME,
    DEFAULT_PARTIAL_EVERY,
    DEFAULT_TIMEOUT_S,
    DEFAULT_VISIBLE_WITHIN_S,
)
from benchserver.ending import Ending
from benchserver.limits import (
    allow_descriptors_of_clients,
    require,
    selftest_need,
    server_need,
)

_COUNT = StrictInt(1, 2**31 - 1)
_SEQUENCE = StrictInt(0, 1 << 40)
_SECONDS = StrictFloat(0, 86_400.0 * 366)
_DEFAULT_RPC_URL = "tcp://localhost:5555"
_GIB = 1 << 30
_DEFAULT_HTTP_URL = "http://localhost:8080"


@click.group(
    cls=OneLineGroup,
    invoke_without_command=True,
    context_settings={
        "auto_envvar_prefix": PREFIX,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.option(
    "--config",
    type=str,
    is_eager=True,
    callback=load_config,
    metavar="FILE",
    help="TOML file with defaults for all options.",
)
@click.option(
    "--rpc-url",
    default=_DEFAULT_RPC_URL,
    show_default=True,
    metavar="URL",
    help="The server's ZMQ address: tcp://host:port or host:port.",
)
@click.option(
    "--url",
    default=_DEFAULT_HTTP_URL,
    show_default=True,
    metavar="URL",
    help="The server's HTTP API, for its release, the digests and the residue audit.",
)
@click.option(
    "--no-http",
    is_flag=True,
    help="Leave out the digest cross-check (and accept a server without HTTP).",
)
@click.option(
    "--http-token",
    default=None,
    envvar="BENCH_SERVER_HTTP_TOKEN",
    metavar="TOKEN",
    help="Send 'Authorization: Bearer TOKEN' with every HTTP request; better from the "
    "environment, BENCH_SERVER_HTTP_TOKEN, or a file.",
)
@click.option(
    "--http-token-file",
    default=None,
    metavar="PATH",
    help="Read that token from a file: its first and only line.",
)
@click.option(
    "--http-ca",
    default=None,
    metavar="FILE",
    help="Accept an https server whose certificate these authorities signed (PEM), in place of "
    "the system's.",
)
@click.option(
    "--server-release",
    default="",
    metavar="X.Y.Z",
    help="Speak as to this server release, instead of asking /version or, where that does not "
    "answer, the server itself.",
)
@click.option(
    "--mode",
    type=click.Choice(["gpu", "cpu"]),
    default="gpu",
    show_default=True,
    help="Where the KV pools lie.",
)
@click.option(
    "--cuda-ipc",
    type=click.Choice(["torch", "driver"]),
    default=DEFAULT_CUDA_IPC,
    show_default=True,
    help="How a server gets at GPU memory: as torch shares it, or by the driver's handle.",
)
@click.option(
    "--transfer-mode",
    type=click.Choice(["auto", "lmcache_driven", "engine_driven"]),
    default="auto",
    show_default=True,
    help="Who copies the KV pages.",
)
@click.option(
    "--require-transport",
    type=click.Choice(["shm", "inline", "handle"]),
    default=None,
    help="Fail unless the bytes take this way.",
)
@click.option(
    "--kvcache-shape-spec",
    default=None,
    metavar="SPEC",
    help="(kv_size,NB,BS,NH,HS):dtype:layers[;...]  [default: (2,1024,16,8,128):float16:32]",
)
@click.option(
    "--num-blocks",
    type=_COUNT,
    default=None,
    help="NB of the default shape spec; a given spec wins.  [default: 1024]",
)
@click.option(
    "--block-size",
    type=_COUNT,
    default=None,
    help="BS of the default shape spec; a given spec wins.  [default: 16]",
)
@click.option(
    "--num-tokens",
    type=StrictInt(1, 1 << 24),
    default=None,
    help="Tokens of a sequence; whole chunks are cached.  [default: 512, or one chunk if that is "
    "more]",
)
@click.option("--start", type=_SEQUENCE, default=0, show_default=True, help="First sequence.")
@click.option(
    "--end",
    type=_SEQUENCE,
    default=None,
    help="Stop before this sequence.  [default: run until Ctrl-C]",
)
@click.option(
    "--interval",
    type=_SECONDS,
    default=DEFAULT_INTERVAL_S,
    show_default=True,
    help="Seconds between one sequence's end and the next one's start.",
)
@click.option(
    "--tp-size",
    type=StrictInt(1, 256),
    default=1,
    show_default=True,
    help="Tensor-parallel ranks: workers with a pool and a connection each.",
)
@click.option(
    "--use-mla",
    is_flag=True,
    help="Insist on MLA: one KV shared by all ranks (every kv_size must be 1).",
)
@click.option(
    "--model-name",
    type=Text(),
    default=DEFAULT_MODEL_NAME,
    show_default=True,
    metavar="NAME",
    help="Model name in the cache keys.",
)
@click.option(
    "--cache-salt", type=Text(), default="", metavar="SALT", help="Tenant salt in the cache keys."
)
@click.option(
    "--seed",
    type=StrictInt(0, 2**63 - 1),
    default=None,
    help="Seed of tokens and content.  [default: drawn, and printed]",
)
@click.option(
    "--expect-warm",
    is_flag=True,
    help="The cache must hold what an earlier run with this --seed stored.",
)
@click.option(
    "--partial-retrieve-every",
    type=_SEQUENCE,
    default=DEFAULT_PARTIAL_EVERY,
    show_default=True,
    metavar="N",
    help="In every Nth sequence, RETRIEVE again and skip the first tokens; 0: never.",
)
@click.option(
    "--partial-skip",
    type=click.Choice(["blocks", "chunks"]),
    default=None,
    help="Skip any number of blocks, or whole chunks.  [default: blocks; chunks in gpu mode]",
)
@click.option(
    "--timeout",
    type=StrictFloat(0.001, 86_400.0),
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Deadline of every call, in seconds.",
)
@click.option(
    "--visible-within",
    type=_SECONDS,
    default=DEFAULT_VISIBLE_WITHIN_S,
    show_default=True,
    help="Seconds within which a store must be visible to LOOKUP.",
)
@click.option(
    "--wait-ready",
    type=_SECONDS,
    default=0.0,
    show_default=True,
    help="Seconds to wait for a server that is still starting.",
)
@click.option(
    "--json",
    "json_path",
    envvar="BENCH_SERVER_JSON",
    default=None,
    metavar="PATH",
    help="Write a JSON report; -: to standard output, and the lines to standard error.",
)
@click.option(
    "--junit",
    "junit_path",
    envvar="BENCH_SERVER_JUNIT",
    default=None,
    metavar="PATH",
    help="Write a JUnit XML report, one case a check.",
)
@click.option("--quiet", is_flag=True, help="Print failures and the result only.")
@click.option(
    "--embedded",
    is_flag=True,
    help="Start the embedded server on free ports, and run against it; cpu mode, unless --mode "
    "is given.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Print the version.",
)
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> int:
    """Prove that an LMCache MP cache server returns every byte, and measure it.

    Without a command: the baseline run.  Exit code 0: everything asked for was proven; 1: something
    failed or stayed unproven; 2: wrong usage.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    from benchserver.cli.baseline import run_baseline

    return run_baseline(ctx, options)


@cli.command(context_settings={"auto_envvar_prefix": f"{PREFIX}_SERVE"})
@click.option(
    "--as",
    "release",
    default="0.5.6",
    show_default=True,
    metavar="X.Y.Z",
    help="Speak as this server release, 0.4.6 or later.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the ZMQ port.")
@click.option(
    "--port",
    cls=PortOption,
    type=StrictInt(0, 65535),
    default=5555,
    show_default=True,
    help="ZMQ port; 0: any free one.",
)
@click.option("--http-host", default="127.0.0.1", show_default=True, help="Address of HTTP.")
@click.option(
    "--http-port",
    cls=PortOption,
    type=StrictInt(0, 65535),
    default=8080,
    show_default=True,
    help="HTTP port; 0: any free one.",
)
@click.option(
    "--chunk-size",
    type=StrictInt(1, 1 << 20),
    default=256,
    show_default=True,
    help="Tokens of a chunk.",
)
@click.option(
    "--l1-size-gb",
    type=StrictFloat(0.00001, 1 << 20),
    default=1.0,
    show_default=True,
    help="Size of the cache, in GiB.",
)
@click.option(
    "--supported-transfer-mode",
    type=click.Choice(["auto", "lmcache_driven", "engine_driven"]),
    default="auto",
    show_default=True,
    help="Transfer modes to serve.",
)
@click.option(
    "--shm-name",
    default="",
    metavar="NAME",
    help="Name of a shared-memory pool for engine_driven; without one bytes go inline.",
)
@click.option(
    "--l2",
    multiple=True,
    envvar="BENCH_SERVER_SERVE_L2",
    metavar="URL",
    help="An L2 tier behind L1: fs:///dir, mock://CAPACITY_GB/ or "
    "mooncake://HOST:PORT?metadata=URL; may be given several times.",
)
@click.option(
    "--l2-write",
    type=click.Choice(["through", "evict"]),
    default="through",
    show_default=True,
    help="Write chunks to L2 as they are stored, or as L1 evicts them and at the end.",
)
@click.option(
    "--gpu",
    is_flag=True,
    help="Be ready for clients whose KV lies on a GPU, with L1 pinned, before the first line; fail "
    "without torch or a device.  [default: when the first of them registers]",
)
@click.option(
    "--worker-reap-timeout-seconds",
    type=StrictFloat(0, 366 * 86_400),
    default=120.0,
    show_default=True,
    help="Silence after which a client that has PINGed is unregistered; 0: never.",
)
@click.option(
    "--worker-registration-grace-seconds",
    type=StrictFloat(0, 366 * 86_400),
    default=3600.0,
    show_default=True,
    help="The same for a client that never PINGed; not less.",
)
@click.option(
    "--session-ttl-seconds",
    type=StrictFloat(0.001, 366 * 86_400),
    default=600.0,
    show_default=True,
    help="Age at which an open session is dropped.",
)
@click.option(
    "--l1-write-ttl-seconds",
    type=StrictInt(1, 366 * 86_400),
    default=600,
    show_default=True,
    help="How long a store may take before its reservation is dropped.",
)
@click.option(
    "--l1-read-ttl-seconds",
    type=StrictInt(1, 366 * 86_400),
    default=300,
    show_default=True,
    help="How long the read locks of a lookup last.",
)
@click.option(
    "--eviction-trigger-watermark",
    type=StrictFloat(0, 1),
    default=0.8,
    show_default=True,
    help="Used share of L1 from which a store evicts first.",
)
@click.option(
    "--eviction-ratio",
    type=StrictFloat(0, 1),
    default=0.2,
    show_default=True,
    help="Share of the objects that one eviction drops, at least one.",
)
@click.option(
    "--http-token",
    default=None,
    envvar="BENCH_SERVER_HTTP_TOKEN",
    metavar="TOKEN",
    help="HTTP asks for 'Authorization: Bearer TOKEN', but for /healthcheck; better from the "
    "environment, BENCH_SERVER_HTTP_TOKEN, or a file.",
)
@click.option(
    "--http-token-file",
    default=None,
    metavar="PATH",
    help="Read that token from a file: its first and only line.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    envvar="BENCH_SERVER_SERVE_FAULT",
    metavar="NAME[:ARGS][@WHEN]",
    help="Switch a fault on, such as flip_byte:layer=1@3+; may be given several times.",
)
@click.option(
    "--help-faults",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_faults,
    help="List the faults, and leave.",
)
@click.option(
    "--stop-with-stdin",
    is_flag=True,
    hidden=True,
    help="Stop when standard input ends: the parent is gone.",
)
@click.pass_obj
def serve(ending: Ending, /, **options: Any) -> int:
    """Run the embedded MP server (for newcomers and self-tests)."""
    # Before that module: it loads what may not even load within the limits.
    require(server_need(l1_bytes=int(options["l1_size_gb"] * _GIB)))
    allow_descriptors_of_clients()
    from benchserver.cli.serve import run_server

    return run_server(options, ending)


@cli.command(context_settings={"auto_envvar_prefix": f"{PREFIX}_SELFTEST"})
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Only the runs of this fault; may be given several times.  [default: all]",
)
@click.option(
    "--jobs",
    type=StrictInt(1, 64),
    default=2,
    show_default=True,
    help="Runs at once, each of a server and a bench.",
)
@click.option(
    "--mode",
    type=click.Choice(["cpu", "gpu"]),
    default="cpu",
    show_default=True,
    help="Where the bench's KV pools lie.",
)
@click.option("--json", "json_path", default=None, metavar="PATH", help="Write a JSON report.")
@click.option("--list", "list_only", is_flag=True, help="List the runs, and leave.")
@click.pass_obj
def selftest(ending: Ending, /, **options: Any) -> int:
    """Prove that every check can fail: run the bench into every fault of the embedded server.

    Exit code 0: each fault was caught by the check that must catch it, and harmless ones passed.
    """
    if not options["list_only"]:
        require(selftest_need(jobs=options["jobs"]))
    from benchserver.cli.selftest import run_selftest

    return run_selftest(options, ending)
