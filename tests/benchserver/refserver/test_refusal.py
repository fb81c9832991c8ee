"""A refused registration says whose it is, and what its client will do."""

from __future__ import annotations

import pytest

from benchserver.refserver.refusal import RefusalError, refused_registration


def refuse(error: Exception) -> None:
    with refused_registration("REGISTER_KV_CACHE", 7):
        raise error


def test_a_refusal_names_its_registration_and_its_cause() -> None:
    cause = RefusalError("no room")
    with pytest.raises(RefusalError) as caught:
        refuse(cause)
    assert str(caught.value) == (
        "REGISTER_KV_CACHE of instance 7: no room; no answer is sent, so the client waits until "
        "its own timeout"
    )
    assert caught.value.__cause__ is cause


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(KeyError, match=r"^'a bug'$"):
        refuse(KeyError("a bug"))
