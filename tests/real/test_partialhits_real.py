"""Several clients that read what hits and store the rest, against a real server."""

from __future__ import annotations

import pytest

from benchserver.check.verdict import Verdict
from benchserver.options.engine import TransferChoice
from tests.benchserver.conftest import _make_config
from tests.mitm.running import Urls
from tests.partialhits import HITS, SPEC, SPEC_MLA, play_partial_hits
from tests.real.conftest import Environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.mark.parametrize("transfer", [TransferChoice.LMCACHE_DRIVEN, TransferChoice.ENGINE_DRIVEN])
@pytest.mark.parametrize("spec", [SPEC, SPEC_MLA])
@pytest.mark.asyncio
async def test_what_hits_is_read_and_the_rest_is_stored_by_all_at_once(
    real: Urls,
    environment: Environment,
    transfer: TransferChoice,
    spec: str,
) -> None:
    if not environment.release.has_pool:
        pytest.skip("a release before 0.5.0: it serves no two modes at once")
    config = _make_config(
        rpc_url=real.rpc_url,
        http_url=real.http_url,
        spec=spec,
        tp_size=2,
        num_tokens=1024,
        transfer=transfer,
    )
    result = await play_partial_hits(config, clients=3, in_flight=3)
    assert [text for tally in result.ledger.tallies.values() for text in tally.texts] == []
    assert result.verdict is Verdict.VALID
    assert result.ledger.tallies[HITS].passed == 10
