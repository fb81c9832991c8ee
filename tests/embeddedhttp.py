"""What the scripts ask the embedded server over HTTP: documents, and its counters."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

from protocol.httpapi import METRICS_PATH
from tests.mitm.servers import Server

_WITHIN_S = 30.0
_PREFIX = "bench_embedded_"


class NoAnswerError(Exception):
    """The server did not answer; one line."""


class WrongStatusError(Exception):
    """It answered with another status than 200; one line."""


def ask(server: Server, method: str, path: str, body: object = None) -> bytes:
    """Return the answer to a request; raises NoAnswerError or WrongStatusError."""
    address = urlsplit(server.urls.http_url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, _WITHIN_S)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(f"{method} {path}: no answer: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise WrongStatusError(f"{method} {path}: {answer.status}, expected 200: {text[:200]!r}")
    return text


def counters(server: Server) -> dict[str, int]:
    """Return the metrics that have no labels, without prefix and `_total`."""
    found: dict[str, int] = {}
    for line in ask(server, "GET", METRICS_PATH).decode().splitlines():
        name, _, value = line.partition(" ")
        if name.startswith(_PREFIX) and "{" not in name:
            found[name.removeprefix(_PREFIX).removesuffix("_total")] = int(float(value))
    return found
