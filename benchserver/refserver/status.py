"""The documents of GET /status and GET /config, in the real server's shape (0.5.6)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchserver.clock import NS_PER_S
from benchserver.refserver.cache import (
    EVICTION_RATIO,
    EVICTION_WATERMARK,
    READ_LOCK_TTL_NS,
    WRITE_TTL_NS,
)
from benchserver.refserver.config import ENGINE_NAME, ServerConfig
from benchserver.refserver.core import Core
from benchserver.refserver.hashing import HASH_NAME
from benchserver.refserver.layout import Format, GroupLayout, KvLayout
from benchserver.refserver.registry import REAP_PINGED_NS, REAP_SILENT_NS, EngineInstance
from protocol.dialects import V056


def status_document(core: Core) -> dict[str, Any]:
    """Return what the server holds right now."""
    registry = core.registry
    document: dict[str, Any] = {
        "is_healthy": True,
        "engine_type": ENGINE_NAME,
        "chunk_size": core.config.chunk_size,
        "hash_algorithm": HASH_NAME,
        "active_sessions": core.sessions.count,
        "storage_manager": {
            "is_healthy": True,
            "l1_manager": _l1_document(core),
            "l2_adapters": _l2_documents(core),
        },
        "active_prefetch_jobs": core.sessions.result_count,
        "worker_liveness": {
            "enabled": True,
            "reap_timeout_seconds": REAP_PINGED_NS // NS_PER_S,
            "registration_grace_seconds": REAP_SILENT_NS // NS_PER_S,
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
        "memory_configured_bytes": core.config.l1_bytes,
        "write_ttl_seconds": WRITE_TTL_NS // NS_PER_S,
        "read_ttl_seconds": READ_LOCK_TTL_NS // NS_PER_S,
    }


def _l2_documents(core: Core) -> list[dict[str, Any]]:
    tiers = () if core.backing is None else core.backing.tiers
    return [
        {"name": tier.name, "verifiable": tier.verifiable, **asdict(tier.stats)} for tier in tiers
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
        "object_group_idx": 0,
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
            "null_block_id": V056.null_block_id,
            "shm_name": config.shm_name or None,
            "hash_algorithm": HASH_NAME,
        },
        "storage_manager": {
            "l1_bytes": config.l1_bytes,
            "eviction_policy": "LRU",
            "trigger_watermark": EVICTION_WATERMARK,
            "eviction_ratio": EVICTION_RATIO,
        },
    }
