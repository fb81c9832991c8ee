"""A server's command: its words, its variables, what it lacks."""

from __future__ import annotations

import sys

import pytest

from benchserver.errors import UsageError
from benchserver.sweep.template import filled, variables_in, words_of


def test_words_and_variables() -> None:
    words = words_of('lmcache server --port {rpc_port} --l2 \'{"type": "fs"}\' {tier} -c{size}')
    assert words == (
        *("lmcache", "server", "--port", "{rpc_port}", "--l2", '{"type": "fs"}', "{tier}"),
        "-c{size}",
    )
    assert variables_in(words) == ("rpc_port", "tier", "size")


def test_a_word_that_is_a_variable_becomes_its_words() -> None:
    words = ("x", "{tier}", "--n={tier}", "{rpc_port}")
    assert filled(words, {"tier": "--l2 'a b'"}) == (
        *("x", "--l2", "a b", "--n=--l2 'a b'", "{rpc_port}"),
    )
    assert filled(words, {"tier": ""}) == ("x", "--n=", "{rpc_port}")
    assert filled(words, {"rpc_port": "5"}) == ("x", "{tier}", "--n={tier}", "5")


def test_nothing_is_a_shell() -> None:
    assert words_of("a; b {rpc_port} $HOME") == ("a;", "b", "{rpc_port}", "$HOME")


def test_our_own_server_gets_its_ports() -> None:
    ours = (sys.executable, "-m", "benchserver", "serve")
    ports = ("--port", "{rpc_port}", "--http-port", "{http_port}")
    assert words_of("serve --gpu") == (*ours, "--gpu", *ports)
    assert words_of("serve --port {rpc_port}") == (*ours, "--port", "{rpc_port}")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("", "the server's command is empty"),
        ("  ", "the server's command is empty"),
        ("lmcache 'x", "no closing quotation"),
        ("lmcache server --port 5", "has no {rpc_port}"),
    ],
)
def test_what_is_no_command(template: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        words_of(template)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_with_half_a_quote() -> None:
    with pytest.raises(UsageError, match='tier = "it\'s": no closing quotation'):
        filled(("{tier}",), {"tier": "it's"})
