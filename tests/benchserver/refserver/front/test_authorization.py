"""Who brings the token, and who does not."""

from __future__ import annotations

import pytest

from benchserver.refserver.front.authorization import is_authorized

TOKEN = "s3cret-tökén"


@pytest.mark.parametrize(
    "header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER   {TOKEN}", f"Bearer {TOKEN} "]
)
def test_who_brings_the_token_may_come_in(header: str) -> None:
    assert is_authorized(header, TOKEN)


@pytest.mark.parametrize(
    "header",
    [
        "",
        TOKEN,
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer x {TOKEN}",
        f"Bearer\t{TOKEN}",
        f"Bearer {TOKEN.upper()}",
        "Bearer \udcff",
    ],
)
def test_nobody_else_may(header: str) -> None:
    assert not is_authorized(header, TOKEN)
