"""The command that starts a server of a cell: words with variables, pure.

    lmcache server --port {rpc_port} --http-port {http_port} --chunk-size {chunk_size} {tier}

No shell reads it.  A word that is a variable alone becomes the words of its value, which may be
none.  `serve ...` is our own embedded server, which gets its ports by itself.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence

from benchserver.errors import UsageError, one_line

RPC_PORT, HTTP_PORT = "rpc_port", "http_port"
PORTS = (RPC_PORT, HTTP_PORT)
"""Variables that the sweep fills itself: free ports of the loopback address."""

_VARIABLE = re.compile(r"\{([a-z_][a-z0-9_]*)\}", re.ASCII)
_OWN = "serve"


def words_of(template: str) -> tuple[str, ...]:
    """Return the words of a command; UsageError if it has none, or no port for RPC."""
    shown = f"the server's command {one_line(template, 120)!r}"
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise UsageError(f"{shown}: {one_line(error).lower()}") from error
    if not words:
        raise UsageError("the server's command is empty")
    if words[0] == _OWN:
        words = [sys.executable, "-m", "benchserver", *words]
        if not set(PORTS) & set(variables_in(words)):
            words += ["--port", "{rpc_port}", "--http-port", "{http_port}"]
    if RPC_PORT not in variables_in(words):
        raise UsageError(f"{shown} has no {{rpc_port}}: the sweep must know where it listens")
    return tuple(words)


def variables_in(words: Sequence[str]) -> tuple[str, ...]:
    """Return the variables of a command, in order."""
    found = (name for word in words for name in _VARIABLE.findall(word))
    return tuple(dict.fromkeys(found))


def filled(words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with these variables filled in; others stay."""
    result: list[str] = []
    for word in words:
        alone = _VARIABLE.fullmatch(word)
        if alone and alone[1] in values and alone[1] not in PORTS:
            result += _split(alone[1], values[alone[1]])
        else:
            result.append(_VARIABLE.sub(lambda found: values.get(found[1], found[0]), word))
    return tuple(result)


def _split(name: str, value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as error:
        text = f"{name} = {one_line(value, 80)!r}: {one_line(error).lower()}"
        raise UsageError(text) from error
