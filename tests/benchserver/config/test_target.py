"""A target that cannot be reached as it is asked for is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchserver.config.run import RunConfig, check_config
from benchserver.errors import UsageError
from tests.tlsstage import OPENSSL, make_certificate

MakeConfig = Callable[..., RunConfig]


def test_an_unknown_release_is_refused_before_traffic(make_config: MakeConfig) -> None:
    with pytest.raises(UsageError, match=r"--server-release: .*'9.9.9' is not known"):
        check_config(make_config(server_release="9.9.9"))


@pytest.mark.parametrize("token", ["!", "~" * 4096, "a/b+c=="])
def test_tokens(make_config: MakeConfig, token: str) -> None:
    check_config(make_config(http_token=token))
    assert token not in repr(make_config(http_token=token)) or len(token) == 1


@pytest.mark.parametrize("token", ["hunter2 x", "hunter2\n", "hunter2é", "hunter2" * 1000])
def test_what_no_header_can_carry(make_config: MakeConfig, token: str) -> None:
    with pytest.raises(UsageError, match=r"^the HTTP token must be 1 to 4096 ") as caught:
        check_config(make_config(http_token=token))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it holds no certificate in PEM form"),
        (b"junk", "it holds no certificate in PEM form"),
        (b"\xff" * 5000, "it holds no certificate in PEM form"),
        (None, "No such file or directory"),
    ],
)
def test_authorities_that_are_none(
    make_config: MakeConfig, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        check_config(make_config(http_url="https://host", http_ca=str(path)))
    assert str(caught.value) == f"--http-ca {path}: {reason}"


@pytest.mark.parametrize("path", ["/", "a\0b", "x" * 5000])
def test_authorities_in_no_file(make_config: MakeConfig, path: str) -> None:
    with pytest.raises(UsageError, match=r"^--http-ca ") as caught:
        check_config(make_config(http_url="https://host", http_ca=path))
    assert str(caught.value).isprintable()


def test_authorities_without_https(make_config: MakeConfig) -> None:
    with pytest.raises(UsageError, match=r"^--http-ca is for an https --url, and that is http:"):
        check_config(make_config(http_ca="ca.pem"))


@pytest.mark.skipif(OPENSSL is None, reason="no openssl to make a certificate with")
def test_an_authority(make_config: MakeConfig, tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "DNS:host")
    check_config(make_config(http_url="HTTPS://host", http_ca=str(made.path)))
