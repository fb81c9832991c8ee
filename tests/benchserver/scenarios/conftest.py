"""Stages over a script, for the tests of scenarios."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, cast

import pytest_asyncio

from benchserver.config.run import RunConfig
from benchserver.kv.pattern import content_seed
from benchserver.scenarios.baseline.config import BaselineConfig
from benchserver.scenarios.baseline.scenario import Baseline
from tests.benchserver.scenarios.honest import CHUNK_TOKENS, SPEC, Played, build, running_threads


class MakeStage(Protocol):
    """Makes a stage, with changes to its configuration."""

    def __call__(self, **changes: Any) -> Played: ...


@pytest_asyncio.fixture
async def make_stage(
    make_config: Callable[..., RunConfig], open_pool: Callable[..., Any]
) -> AsyncIterator[MakeStage]:
    """Return a maker of stages whose server is an honest script."""
    async with contextlib.AsyncExitStack() as opened:
        threads = opened.enter_context(running_threads())

        def make(**changes: Any) -> Played:
            defaults = {"spec": SPEC, "num_tokens": 2 * CHUNK_TOKENS, "needs_http": False}
            config = make_config(**{**defaults, "end": 4, **changes})
            engine = config.engine
            assert engine is not None
            pools = [
                opened.enter_context(
                    open_pool(
                        engine.spec.text,
                        content_rank=0 if engine.is_mla else rank,
                        ranks=engine.tp_size,
                        blocks_per_chunk=CHUNK_TOKENS // engine.spec.block_size,
                        root=content_seed(engine.seed, engine.cache_salt),
                    )
                )[0]
                for _ in range(config.own.clients)
                for rank in range(engine.tp_size)
            ]
            played = build(
                config, pools, threads, Baseline(cast(BaselineConfig, config.own)).traits
            )
            opened.push_async_callback(played.close)
            return played

        yield make
