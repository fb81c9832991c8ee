"""What is masked in documents, texts and command lines, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.secrets import (
    MASK,
    MOST_DEPTH,
    is_secret,
    text_without_secrets,
    without_secrets,
    words_without_secrets,
)

SECRETS = (
    "key",
    "api_key",
    "apiKey",
    "apikey",
    "API_KEY",
    "secret_access_key",
    "secretKey",
    "hf-token",
    "token",
    "auth_token_file",
    "password",
    "redis_passwd",
    "Password",
    "client.secret",
    "Authorization",
)
HARMLESS = (
    "tokenizer",
    "monkey",
    "keyspace",
    "hash_algorithm",
    "compass",
    "author",
    "",
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_name_of_a_secret(name: str) -> None:
    assert is_secret(name)
    for value in ("hunter2", 42, ["hunter2"], {"a": "hunter2"}):
        assert without_secrets({"l2": [{name: value}]}) == {"l2": [{name: MASK}]}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_name_of_none(name: str) -> None:
    assert not is_secret(name)
    assert without_secrets({name: "value"}) == {name: "value"}


@pytest.mark.parametrize("name", ["api_keys", "tokens", "max_tokens", "credentials"])
def test_several_are_secrets_as_texts_and_not_as_a_number(name: str) -> None:
    assert without_secrets({name: 4096, "n": 1}) == {name: 4096, "n": 1}
    assert without_secrets({name: "hunter2"}) == {name: MASK}
    assert without_secrets({name: ["hunter2", "hunter3"]}) == {name: MASK}


@pytest.mark.parametrize("value", [None, "", False, True])
def test_that_there_is_none_is_no_secret(value: Any) -> None:
    assert without_secrets({"api_key": value}) == {"api_key": value}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://user:hunter2@host:6379/0", "redis://***@host:6379/0"),
        ("http://host/path?token=hunter2&n=1", "http://host/path?token=***&n=1"),
        ('{"type": "s3", "secret_key": "hunter2 x"}', '{"type": "s3", "secret_key": ***}'),
        ("{'secret_key': 'hunter2', 'n': 1}", "{'secret_key': ***, 'n': 1}"),
        ("api-key=hunter2 max_tokens=5", "api-key=*** max_tokens=5"),
        ("options: a=b:token=hunter2, n=1", "options: a=b:token=***, n=1"),
        ("token=", "token="),
        ("token: token: hunter2", "token: *** ***"),
        ("/tmp/a@b", "/tmp/a@b"),
        ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555"),
    ],
)
def test_secrets_inside_of_a_text(text: str, shown: str) -> None:
    assert text_without_secrets(text) == without_secrets({"url": text})["url"] == shown


def test_the_word_after_an_option_of_a_secret() -> None:
    words = ["serve", "--api-key", "hunter2", "--token=hunter2", "--key", "--num-tokens", "512"]
    shown = ["serve", "--api-key", MASK, f"--token={MASK}", "--key", "--num-tokens", "512"]
    assert words_without_secrets(words) == shown
    assert without_secrets({"argv": words}) == {"argv": shown}


def test_what_lies_deeper_than_any_configuration_is_masked() -> None:
    document: Any = "deep"
    for _ in range(MOST_DEPTH + 1):
        document = [document, 1]
    assert MASK in json.dumps(without_secrets(document))
    assert "deep" not in json.dumps(without_secrets(document))


def test_a_long_text_takes_no_longer_than_it_has_letters() -> None:
    """A million letters, by a pattern that looked at each pair, would take days."""
    for text in ("a" * 10**6, "token" * 10**5, "token " * 10**5, "=" * 10**6, '"' * 10**6):
        assert text_without_secrets(text) == text
    assert without_secrets({"x" * 10**6: "_key" * 10**5}) == {"x" * 10**6: "_key" * 10**5}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=8), inside),
    max_leaves=10,
)


@given(JSON)
def test_any_document_stays_a_document(document: Any) -> None:
    shown = without_secrets(document)
    json.dumps(shown)
    assert without_secrets(shown) == shown
