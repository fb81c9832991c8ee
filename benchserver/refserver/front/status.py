"""The documents of GET /status and GET /config, in the real server's shape (0.5.6).

Threads: what evicts, stores and looks up here is the event loop, which answers this too, and whose
end is the server's.  So each of these parts says that it lives; an L2 tier says it of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchserver.refserver.config import ENGINE_NAME, ServerConfig
from benchserver.refserver.core import Core
from benchserver.refserver.pages.layout import Format, GroupLayout, KvLayout
from benchserver.refserver.registry import EngineInstance
from benchserver.refserver.store.hashing import HASH_NAME
from benchserver.refserver.tiers.tier import Reported

_LIVES = {"is_healthy": True, "thread_alive": True}
_ONLY_L1 = "_default"


def status_document(core: Core) -> dict[str, Any]:
    """Return what the server holds right now."""
    registry = core.registry
    storage = _storage_document(core)
    document: dict[str, Any] = {
        "is_healthy": storage["is_healthy"],
        "engine_type": ENGINE_NAME,
        "chunk_size": core.config.chunk_size,
        "hash_algorithm": HASH_NAME,
        "active_sessions": core.sessions.count,
        "storage_manager": storage,
        "active_prefetch_jobs": core.sessions.result_count + core.lookups.under_way,
        "worker_liveness": {
            "enabled": core.config.worker_reap_timeout_s > 0,
            "reap_timeout_seconds": core.config.worker_reap_timeout_s,
            "registration_grace_seconds": core.config.worker_registration_grace_s,
            "tracked_instances": len(registry.mapped) + len(registry.engine),
        },
        "registered_gpu_ids": sorted(registry.mapped),
        "cache_context_meta": {
            str(instance_id): {
                "model_name": instance.model_name,
                "world_size": instance.world_size,
                "kv_cache_layout": _layout_document(instance.layout),
            }
            for instance_id, instance in registry.mapped.items()
        },
    }
    if core.config.serves_engine_driven:
        document["registered_non_cuda_instance_ids"] = sorted(registry.engine)
        document["non_cuda_context_meta"] = {
            str(instance_id): _engine_document(instance)
            for instance_id, instance in registry.engine.items()
        }
    return document


def _engine_document(instance: EngineInstance) -> dict[str, Any]:
    return {
        "model_name": instance.model_name,
        "world_size": instance.world_size,
        "block_size": instance.block_size,
        "use_mla": instance.use_mla,
    }


def _storage_document(core: Core) -> dict[str, Any]:
    tiers = _l2_documents(core)
    l1 = _l1_document(core)
    store = {**_LIVES, "num_l2_adapters": len(tiers)}
    eviction = {**_LIVES, **_eviction_document(core.config)}
    return {
        "is_healthy": all(tier["is_healthy"] for tier in tiers),
        "l1_managers": {_ONLY_L1: l1},
        "store_controllers": {_ONLY_L1: store},
        "l1_eviction_controllers": {_ONLY_L1: eviction},
        "prefetch_controller": {
            **_LIVES,
            "in_flight_request_count": core.lookups.under_way,
            "completed_results_count": core.sessions.result_count,
            "num_l2_adapters": len(tiers),
        },
        "l2_eviction_controller": {**_LIVES, "adapters": []},
        "l2_adapters": tiers,
        "num_l2_adapters": len(tiers),
        "l1_usage": [l1["memory_used_bytes"], l1["memory_total_bytes"]],
        "l1_manager": l1,
        "store_controller": store,
        "l1_eviction_controller": eviction,
    }


def _eviction_document(config: ServerConfig) -> dict[str, Any]:
    return {
        "eviction_policy": "LRU",
        "trigger_watermark": config.eviction_trigger_watermark,
        "eviction_ratio": config.eviction_ratio,
    }


def _l1_document(core: Core) -> dict[str, Any]:
    counts = core.cache.counts(core.clock.now_ns())
    return {
        "is_healthy": True,
        "total_object_count": counts.objects,
        "write_locked_count": counts.write_locked,
        "read_locked_count": counts.read_locked,
        "staging_object_count": counts.reserved,
        "memory_used_bytes": counts.used_bytes,
        "memory_total_bytes": counts.capacity_bytes,
        "memory_usage_ratio": counts.used_bytes / counts.capacity_bytes,
        "memory_configured_bytes": core.config.l1_bytes,
        "write_ttl_seconds": core.config.l1_write_ttl_s,
        "read_ttl_seconds": core.config.l1_read_ttl_s,
    }


def _l2_documents(core: Core) -> list[dict[str, Any]]:
    tiers: Sequence[Reported] = () if core.backing is None else core.backing.tiers
    return [
        {
            "name": tier.name,
            "is_healthy": tier.is_healthy,
            "verifiable": tier.verifiable,
            **asdict(tier.stats),
        }
        for tier in tiers
    ]


def _layout_document(layout: KvLayout) -> dict[str, Any]:
    return {
        "num_layers": len(layout.formats),
        "num_blocks": min(group.num_blocks for group in layout.groups),
        "kernel_groups": [_group_document(i, group) for i, group in enumerate(layout.groups)],
    }


def _group_document(index: int, group: GroupLayout) -> dict[str, Any]:
    geometry = group.geometry
    return {
        "kernel_group_idx": index,
        "engine_group_idx": group.engine_group,
        "object_group_idx": index,
        "num_layers": len(group.layers),
        "layer_indices": list(group.layers),
        "tokens_per_block": group.tokens_per_block,
        "slots_per_block": geometry.slots_per_block,
        "dtype": f"torch.{geometry.dtype}",
        "is_mla": geometry.form is Format.MLA,
        "engine_kv_format": geometry.form.value,
    }


def config_document(config: ServerConfig) -> dict[str, Any]:
    """Return what the server was started with."""
    return {
        "mp": {
            "host": config.host,
            "port": config.port,
            "chunk_size": config.chunk_size,
            "supported_transfer_mode": config.transfer_mode,
            "null_block_id": config.dialect.null_block_id,
            "shm_name": config.shm_name or None,
            "hash_algorithm": HASH_NAME,
            "worker_reap_timeout_seconds": config.worker_reap_timeout_s,
            "worker_registration_grace_seconds": config.worker_registration_grace_s,
            "session_ttl_seconds": config.session_ttl_s,
        },
        "storage_manager": {
            "l1_bytes": config.l1_bytes,
            "l2_write": config.l2_write if config.l2 else None,
            "l1_manager_config": {
                "write_ttl_seconds": config.l1_write_ttl_s,
                "read_ttl_seconds": config.l1_read_ttl_s,
            },
            "eviction_config": _eviction_document(config),
        },
        "http": {
            "http_host": config.http_host,
            "http_port": config.http_port,
            "asks_for_token": bool(config.http_token),
        },
    }
