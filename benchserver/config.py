"""What a run is asked to do: one frozen value, validated before any IO."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, urlsplit

from benchserver.errors import FatalError, UsageError, one_line, os_reason
from benchserver.geometry import Geometry
from benchserver.kv.blocks import BlockPlan, needed_blocks, plan_blocks
from benchserver.kv.placement import CudaIpc
from benchserver.load.partial import SkipUnit
from benchserver.options.bench import BENCH
from benchserver.options.memory import Mode, TransferChoice
from benchserver.options.option import options_in
from protocol.errors import LocalProtocolError
from protocol.keys import model_name_problem, salt_problem
from shapespec import ShapeSpec

_HOST = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)
"""Names, IPv4 and IPv6 addresses; not ZMQ's `*`, which only a server can bind."""

_NO_PART_OF_A_LINE = ("Cc", "Zl", "Zp")
"""Unicode's control characters, and its separators of lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that decides a run.  Times in seconds as users give them; `end` None: for ever.

    Sequences that `partial_every` divides are also retrieved in part; 0: none.  `partial_skip` says
    what that skips.
    """

    rpc_url: str
    http_url: str
    transfer: TransferChoice
    spec: ShapeSpec
    num_tokens: int
    start: int
    end: int | None
    interval_s: float
    tp_size: int
    model_name: str
    seed: int
    cache_salt: str
    expect_warm: bool
    cross_check: bool
    partial_every: int
    partial_skip: SkipUnit
    require_transport: str
    server_release: str
    timeout_s: float
    visible_within_s: float
    wait_ready_s: float
    mode: Mode
    cuda_ipc: CudaIpc
    http_token: str = field(repr=False)
    """What HTTP requests bring; a secret, so no report shows it."""
    http_ca: str
    """A PEM file: whose certificates an https server may have; "": the system's authorities."""
    num_tokens_given: bool
    """False: nobody asked for this number, and a server with larger chunks changes it."""
    own_server: bool
    """The target is an embedded server that was started for this run."""

    @property
    def is_mla(self) -> bool:
        """Tell whether all ranks share one KV: every group is MLA (kv_size 1)."""
        return all(group.is_mla for group in self.spec.groups)

    @property
    def world_size(self) -> int:
        """Return the world size in keys: MLA ranks share the objects of one."""
        return 1 if self.is_mla else self.tp_size

    @property
    def writers(self) -> tuple[int, ...]:
        """Return the ranks that STORE."""
        return (0,) if self.is_mla else tuple(range(self.tp_size))

    def geometry(self, chunk_tokens: int) -> Geometry:
        """Return how a sequence divides on a server with chunks of that size."""
        return Geometry(spec=self.spec, chunk_tokens=chunk_tokens, num_tokens=self.num_tokens)

    def block_plan(self, geometry: Geometry, *, turn: int, rank: int) -> BlockPlan:
        """Return the blocks that a rank uses for one sequence of whole chunks."""
        return plan_blocks(
            num_blocks=self.spec.num_blocks,
            request_blocks=geometry.blocks,
            seed=self.seed,
            turn=turn,
            rank=rank,
        )

    @property
    def readers_per_object(self) -> int:
        """Return how many workers RETRIEVE each object (`num_kv_readers`)."""
        return self.tp_size if self.is_mla else 1


def check_config(config: RunConfig) -> None:
    """Raise UsageError for anything that cannot work, as far as it is known before traffic."""
    _check_numbers(config)
    if config.end is not None and config.end <= config.start:
        raise UsageError(
            f"--end {config.end} must be greater than --start {config.start}: "
            "sequences run from --start up to, not including, --end"
        )
    for option, problem in (
        ("--model-name", model_name_problem(config.model_name) or _control(config.model_name)),
        ("--cache-salt", salt_problem(config.cache_salt) or _control(config.cache_salt)),
    ):
        if problem:
            raise UsageError(f"{option}: {problem}")
    if config.transfer is TransferChoice.ENGINE_DRIVEN and len(config.spec.groups) > 1:
        raise UsageError(
            f"--transfer-mode engine_driven carries one KV layer group, the shape spec has "
            f"{len(config.spec.groups)}; use lmcache_driven"
        )
    _check_transport(config)
    if config.cuda_ipc == "driver" and config.transfer is TransferChoice.ENGINE_DRIVEN:
        raise UsageError(
            "--cuda-ipc driver never matters with --transfer-mode engine_driven, in which no "
            "server maps our memory"
        )
    if config.http_token:
        # Loaded here, as below: wrong usage is told without the protocol.
        from protocol.httpapi import token_problem

        if problem := token_problem(config.http_token):
            raise UsageError(problem)
    if config.http_ca:
        _check_ca(config.http_ca, config.http_url)
    if config.server_release:
        # Loaded here: wrong usage is told without the protocol.
        from protocol.dialects import dialect_of

        try:
            dialect_of(config.server_release)
        except LocalProtocolError as error:
            raise UsageError(f"--server-release: {error}") from error
    if config.num_tokens_given and config.num_tokens < config.spec.block_size:
        raise UsageError(
            f"--num-tokens {config.num_tokens} is less than one block of "
            f"{config.spec.block_size} tokens"
        )


def _control(text: str) -> str:
    """Say that a text would not stay in its line of a report or a log, or ""."""
    bad = sorted({char for char in text if unicodedata.category(char) in _NO_PART_OF_A_LINE})
    shown = " ".join(map(ascii, bad[:4]))
    return f"a name must hold no control character, this one has {shown}" if bad else ""


def _check_ca(path: str, http_url: str) -> None:
    if urlsplit(http_url).scheme != "https":
        raise UsageError(f"--http-ca is for an https --url, and that is {one_line(http_url, 80)}")
    # Loaded here: only https needs it.
    import ssl

    shown = one_line(path, 120)
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise UsageError(f"--http-ca {shown}: it holds no certificate in PEM form") from error
    except (OSError, ValueError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else "no path"
        raise UsageError(f"--http-ca {shown}: {reason}") from error


def _check_transport(config: RunConfig) -> None:
    """Refuse a transport that the transfer mode never takes."""
    handle = config.require_transport == "handle"
    mode = config.transfer
    if mode is TransferChoice.AUTO or not config.require_transport:
        return
    if handle != (mode is TransferChoice.LMCACHE_DRIVEN):
        raise UsageError(
            f"--require-transport {config.require_transport} never comes with --transfer-mode "
            f"{mode.value}: handle goes with lmcache_driven, shm and inline with engine_driven"
        )


def _check_numbers(config: RunConfig) -> None:
    for option in options_in(BENCH):
        if option.field and (problem := option.problem(getattr(config, option.field))):
            raise UsageError(problem)


def with_whole_chunk(config: RunConfig, chunk_tokens: int) -> RunConfig:
    """Return a configuration of one chunk, if nobody asked for a number that holds none."""
    if config.num_tokens_given or chunk_tokens <= config.num_tokens:
        return config
    return replace(config, num_tokens=chunk_tokens, num_tokens_given=True)


def check_geometry(geometry: Geometry) -> None:
    """Raise UsageError if the server's chunk size does not fit the tokens or the pool."""
    spec, chunk_tokens = geometry.spec, geometry.chunk_tokens
    if not geometry.whole_blocks:
        raise UsageError(
            f"block size {spec.block_size} does not divide the server's chunk size "
            f"{chunk_tokens}; change BS in --kvcache-shape-spec, or the server's --chunk-size"
        )
    if geometry.chunks == 0:
        raise UsageError(
            f"--num-tokens {geometry.num_tokens} is less than one chunk of {chunk_tokens} tokens: "
            "only whole chunks are cached"
        )
    blocks, needed = geometry.blocks, needed_blocks(geometry.blocks)
    if spec.num_blocks < needed:
        raise UsageError(
            f"the pool has {spec.num_blocks} blocks (NB), but {geometry.chunks} chunks of "
            f"{chunk_tokens} tokens need {needed}: {blocks} source + {blocks} destination + "
            "2 canaries + the null block; raise NB or lower --num-tokens"
        )


def check_against_l1(geometry: Geometry, *, kv_ranks: int, l1_bytes: int) -> None:
    """Refuse a sequence that the server's L1 cannot hold at once, as a RETRIEVE needs it.

    `kv_ranks` ranks have KV of their own.  `l1_bytes` 0: not known.  Raises FatalError.
    """
    needed = geometry.nbytes * kv_ranks
    if 0 < l1_bytes < needed:
        raise FatalError(
            f"the server's L1 holds {l1_bytes} bytes, a sequence of {geometry.chunks} chunks on "
            f"{kv_ranks} KV ranks needs {needed}; start it with a larger "
            "--l1-size-gb, or lower --num-tokens"
        )


def normalize_rpc_url(text: str) -> str:
    """Return `tcp://host:port` for that form or a bare `host:port`; UsageError for any other."""
    url = text.strip()
    if "://" not in url:
        url = f"tcp://{url}"
    parts = _split(url, "--rpc-url")
    if parts.scheme != "tcp":
        raise UsageError(
            f"--rpc-url {one_line(text, 80)}: scheme {parts.scheme}, expected tcp://host:port; "
            "a server with --transport grpc is not spoken to"
        )
    user = parts.username is not None or parts.password is not None
    if parts.port is None or parts.path not in ("", "/") or parts.query or parts.fragment or user:
        raise UsageError(f"--rpc-url {one_line(text, 80)}: expected tcp://host:port")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"tcp://{host}:{parts.port}"


def normalize_http_url(text: str) -> str:
    """Return an http(s) base URL without a trailing slash; UsageError for anything else.

    A user or a password is refused: reports and errors show the URL.
    """
    url = text.strip()
    if "://" not in url:
        url = f"http://{url}"
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "--url must hold no user or password (it is not shown here); a server that asks for a "
            "token gets it with --http-token-file or BENCH_SERVER_HTTP_TOKEN"
        )
    parts = _split(url, "--url")
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise UsageError(
            f"--url {one_line(text, 80)}: expected http://host:port or https://host:port"
        )
    return url.rstrip("/")


def _split(url: str, option: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
        # As name resolution does, which refuses empty labels and those of over 63 characters.
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise UsageError(f"{option} {one_line(url, 80)}: {error}") from error
    if not parts.hostname or port == 0 or not _is_plain(url) or not _HOST.fullmatch(parts.hostname):
        raise UsageError(f"{option} {one_line(url, 80)}: expected a host and a port")
    return parts


def _is_plain(url: str) -> bool:
    return url.isascii() and not any(c.isspace() for c in url)
