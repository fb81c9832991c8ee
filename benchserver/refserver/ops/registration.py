"""REGISTER_KV_CACHE and its end: a client's KV tensors, mapped where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchserver.refserver.core import Core, Handler
from benchserver.refserver.gpu.instance import CudaInstance, open_instance
from benchserver.refserver.gpu.memory import CudaDescriptor
from benchserver.refserver.host.instance import MappedInstance
from benchserver.refserver.host.tensors import MappedTensors
from benchserver.refserver.instance import Instance
from benchserver.refserver.pages.layout import Format, KvLayout, layout_of
from benchserver.refserver.refusal import RefusalError, refused_registration
from benchserver.refserver.registry import MAX_LAYERS, MAX_WORLD_SIZE
from protocol.handles import CpuShmHandle, CudaHandle, CudaRawHandle, KvHandle
from protocol.messages import VOID
from protocol.ops import Op


def on_gpu(handles: Sequence[KvHandle]) -> list[CudaDescriptor]:
    """Return the tensors if they lie on a GPU; RefusalError if only some of them do."""
    found = [handle for handle in handles if isinstance(handle, CudaHandle | CudaRawHandle)]
    if 0 < len(found) < len(handles):
        raise RefusalError(f"{len(found)} of {len(handles)} KV tensors lie on a GPU, expected all")
    return found


class RegistrationOps:
    """Handlers of REGISTER_KV_CACHE and UNREGISTER_KV_CACHE."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def table(self) -> Mapping[Op, Handler]:
        """Return the handlers by operation."""
        return {
            Op.REGISTER_KV_CACHE: self._register,
            Op.UNREGISTER_KV_CACHE: self._unregister,
        }

    async def _register(self, args: Sequence[Any]) -> Any:
        with refused_registration(Op.REGISTER_KV_CACHE.name, args[0]):
            return await self._admit(args)

    async def _admit(self, args: Sequence[Any]) -> Any:
        instance_id, handles, model_name, world_size, engine_type, hints, infos = args
        registry, now_ns = self._core.registry, self._core.clock.now_ns()
        if instance_id in registry.mapped:
            # The old tensors stay, as in the real server.
            registry.touch(instance_id, now_ns)
            return VOID
        if not 1 <= world_size <= MAX_WORLD_SIZE or len(handles) > MAX_LAYERS:
            raise RefusalError(
                f"world_size {world_size} with {len(handles)} tensors, "
                f"expected 1 to {MAX_WORLD_SIZE} with at most {MAX_LAYERS}"
            )
        if not registry.has_room():
            raise RefusalError("too many registered instances")
        layout = self._layout_of(handles, hints, infos, engine_type)
        instance = await self._map(handles, layout, model_name=model_name, world_size=world_size)
        # Others may have been quicker while GPU memory was being mapped.
        if instance_id in registry.mapped:
            instance.uses.close()
        elif not registry.has_room():
            instance.uses.close()
            raise RefusalError("too many registered instances")
        else:
            registry.mapped[instance_id] = instance
        return VOID

    def _layout_of(
        self,
        handles: Sequence[KvHandle],
        hints: Mapping[str, Any],
        infos: Sequence[Mapping[str, Any]],
        engine_type: str,
    ) -> KvLayout:
        size, dialect = self._core.config.chunk_size, self._core.config.dialect
        if dialect.cpu_reads_hnd:
            hints = {**hints, "kv_layout": "HND"}
        layout = layout_of(handles, hints, infos, engine_type=engine_type, chunk_size=size)
        if not dialect.mixed_groups and len({f is Format.MLA for f in layout.formats}) > 1:
            raise RefusalError("this release does not map MLA tensors beside others")
        return layout

    async def _map(
        self, handles: Sequence[KvHandle], layout: KvLayout, *, model_name: str, world_size: int
    ) -> Instance:
        if described := on_gpu(handles):
            return await self._map_on_gpu(
                described, layout, model_name=model_name, world_size=world_size
            )
        on_host = [handle for handle in handles if isinstance(handle, CpuShmHandle)]
        return MappedInstance(
            MappedTensors(layout, on_host),
            model_name=model_name,
            world_size=world_size,
            layout=layout,
            copier=self._core.copier,
            now_ns=self._core.clock.now_ns(),
        )

    async def _map_on_gpu(
        self,
        handles: Sequence[CudaDescriptor],
        layout: KvLayout,
        *,
        model_name: str,
        world_size: int,
    ) -> CudaInstance:
        """Map a client's tensors; RefusalError without torch, its device or its memory."""
        core, cuda = self._core, self._core.cuda
        now_ns = core.clock.now_ns()
        thread = cuda.client_thread()
        line = await cuda.loader.run(cuda.load, core.arena)
        if line:
            core.journal.line(line)
        try:
            instance = await thread.run(
                open_instance,
                cuda,
                handles,
                layout,
                model_name=model_name,
                world_size=world_size,
                thread=thread,
                now_ns=now_ns,
            )
        except BaseException:
            thread.close(0)
            raise
        try:
            await instance.until_idle()
        except BaseException:
            instance.uses.close()
            raise
        return instance

    async def _unregister(self, args: Sequence[Any]) -> Any:
        instance = self._core.registry.mapped.pop(args[0], None)
        if instance is not None and (line := await instance.leave(self._core.clock)):
            self._core.journal.line(line)
        if not self._core.config.dialect.unregister_answered:
            raise RefusalError("UNREGISTER_KV_CACHE: done, but this release never answers it")
        return VOID
