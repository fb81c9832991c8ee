"""What one generation of the wire is: its operations, key fields, habits, as a frozen value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import LocalProtocolError
from protocol.fields import Field, InlineForm, Kind
from protocol.httpapi import HttpRoutes
from protocol.ops import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One operation in one generation.

    `result` None: the reply has no result frame.  `pending`: it may also have none while the
    server is still at work.
    """

    id: int
    payload: tuple[Field, ...]
    result: Kind | None
    pending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One wire generation.

    releases: the server releases that speak it, as `/version` names them.
    verified: a real server of each release has been spoken to; else the row is from its source.
    op_names: the server takes an operation's lower-case name in place of its number.
    null_block_id: a chunk whose block ids all equal it is never stored (default of the server),
        or None where there is no such rule.
    inline: how engine_driven chunks travel without a shared pool.
    http: the paths of its HTTP API.
    cpu_reads_hnd: a CPU server ignores the layout hint and reads tensors of rank 5 as HND.
    mixed_groups: layers of rank 3 (MLA) and rank 5 may be registered together.
    maps_cpu: a CPU server can map a client's KV tensors (lmcache_driven).
    maps_cuda: CUDA tensors can be described to a server (lmcache_driven): in the msgpack form of
        0.5.6 alone; older servers map them too, but from pickles that we do not write.
    engine_driven: the engine-driven operations exist.
    unregister_answered: a CPU server answers UNREGISTER_KV_CACHE.
    lookup_reads_end: a LOOKUP ends at its key's `end`; 0.5.5 and before look up all tokens that the
        key brings (measured).
    lookup_keeps_part: a LOOKUP that ends between the ranks of one chunk keeps the locks of those
        that it found.
    refuses_unregistered: STORE and RETRIEVE of an unknown instance are answered with False; else
        not at all.
    told_by: the operation that these releases answer at once, and whose number and frames do no
        harm to any other: see `protocol.probe.confirmation`.
    """

    name: str
    releases: tuple[str, ...]
    ops: Mapping[Op, OpRow]
    key_fields: tuple[str, ...]
    inline: InlineForm
    http: HttpRoutes
    null_block_id: int | None
    verified: bool = True
    op_names: bool = False
    cpu_reads_hnd: bool = False
    mixed_groups: bool = True
    maps_cpu: bool = True
    maps_cuda: bool = True
    engine_driven: bool = True
    unregister_answered: bool = True
    lookup_reads_end: bool = True
    lookup_keeps_part: bool = False
    refuses_unregistered: bool = True
    told_by: Op = Op.WAIT_PREFETCH_STATUS

    @property
    def keys_name_readers(self) -> bool:
        """Tell whether a LOOKUP's key says how many workers will read each object (0.5.5+)."""
        return "num_kv_readers" in self.key_fields

    @property
    def pings_name_instances(self) -> bool:
        """Tell whether a PING says who is alive, and keeps that registration (0.5.0+)."""
        row = self.ops.get(Op.PING)
        return row is not None and any(field.name == "instance_id" for field in row.payload)

    def named(self, op: Op, args: Sequence[Any]) -> dict[str, Any]:
        """Return a request's payload by field name."""
        return dict(zip((f.name for f in self.ops[op].payload), args, strict=True))

    def arguments(self, op: Op, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return those of the named values that this generation sends, in its order.

        Raises LocalProtocolError if it wants one that is not there.
        """
        row = self.ops.get(op)
        missing = [f.name for f in row.payload if f.name not in values] if row else [op.value]
        if row is None or missing:
            raise LocalProtocolError(f"{op.value} in {self.name} wants {', '.join(missing)}")
        return tuple(values[field.name] for field in row.payload)
