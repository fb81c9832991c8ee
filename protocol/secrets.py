"""Documents and command lines without what nobody may see in a report: keys, tokens, passwords.

What looks like a secret by its name is masked, whatever it is: one too many does no harm.  Numbers
of keys and tokens, which servers have many of, are no secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"
MOST_DEPTH = 32
"""Deeper than any configuration; what lies below is masked."""

_ONE = ("key", "token", "password", "passwd", "passphrase", "pwd", "secret", "credential", "auth")
_NOUNS = {*_ONE, "pass", "authorization", "bearer", "apikey", "accesskey", "secretkey", "authtoken"}
_PLURALS = {f"{noun}s" for noun in _ONE} | {"apikeys"}
"""As text or a list of texts; a number of them is harmless."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[^a-z]+")
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_NAMED = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s{0,9}[:=]\s{0,9}""")
_VALUE = re.compile(r""""[^"]*"|'[^']*'|[^\s,;&}\])]+""")


def without_secrets(document: Any) -> Any:
    """Return a JSON document with every secret masked."""
    return _masked(document, MOST_DEPTH)


def text_without_secrets(text: str) -> str:
    """Return a text without users and passwords in URLs, and without `name=secret`."""
    text = _USER.sub(f"{MASK}@", text)
    parts, begin = list[str](), 0
    for named in _NAMED.finditer(text):
        value = _VALUE.match(text, named.end())
        if value is None or named.end() < begin or not is_secret(named[1]):
            continue
        parts += [text[begin : named.end()], MASK]
        begin = value.end()
    return "".join([*parts, text[begin:]])


def words_without_secrets(words: Sequence[str]) -> list[str]:
    """Return a command's words; the one that follows an option with such a name is masked."""
    shown = list[str]()
    for number, word in enumerate(words):
        before = words[number - 1] if number else ""
        named = before.startswith("-") and "=" not in before and is_secret(before.lstrip("-"))
        shown.append(MASK if named and not word.startswith("-") else text_without_secrets(word))
    return shown


def is_secret(name: str) -> bool:
    """Tell whether a name is one of a secret: api_key, apiKey, hf-token; not max_tokens."""
    return not _NOUNS.isdisjoint(_words_of(name))


def _words_of(name: str) -> list[str]:
    return _BETWEEN.split(_CAMEL.sub("_", name).lower())


def _masked(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return text_without_secrets(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if not depth:
        return MASK
    if isinstance(value, Mapping):
        return {
            str(name): MASK if _hides(str(name), one) else _masked(one, depth - 1)
            for name, one in value.items()
        }
    if all(isinstance(one, str) for one in value):
        return words_without_secrets(value)
    return [_masked(one, depth - 1) for one in value]


def _hides(name: str, value: Any) -> bool:
    """Tell whether a value is to be masked for its name; that there is none is no secret."""
    if is_secret(name):
        return value not in (None, "", False, True)
    texts = value if isinstance(value, list | tuple) else [value]
    some = any(isinstance(one, str) and one for one in texts)
    return some and not _PLURALS.isdisjoint(_words_of(name))
