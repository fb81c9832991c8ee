"""Several clients that read what hits and store the rest, against the embedded server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchserver.check.verdict import Verdict
from benchserver.options.engine import TransferChoice
from tests.benchserver.stage.runs import MakeConfig
from tests.mitm.forkedserver import forked_server
from tests.mitm.running import Urls
from tests.partialhits import HITS, SPEC, SPEC_MLA, play_partial_hits

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.fixture(scope="module")
def server() -> Iterator[Urls]:
    with forked_server() as running:
        yield running.urls


@pytest.mark.parametrize("transfer", [TransferChoice.LMCACHE_DRIVEN, TransferChoice.ENGINE_DRIVEN])
@pytest.mark.parametrize(("spec", "tp_size"), [(SPEC, 2), (SPEC_MLA, 2)])
@pytest.mark.asyncio
async def test_what_hits_is_read_and_the_rest_is_stored_by_all_at_once(
    server: Urls, make_config: MakeConfig, transfer: TransferChoice, spec: str, tp_size: int
) -> None:
    config = make_config(
        rpc_url=server.rpc_url,
        http_url=server.http_url,
        spec=spec,
        tp_size=tp_size,
        num_tokens=1024,
        transfer=transfer,
        cache_salt=f"{transfer.value}-{spec == SPEC}",
    )
    result = await play_partial_hits(config, clients=2, in_flight=3)
    assert [text for tally in result.ledger.tallies.values() for text in tally.texts] == []
    assert result.verdict is Verdict.VALID
    assert result.ledger.tallies[HITS].passed == 7
