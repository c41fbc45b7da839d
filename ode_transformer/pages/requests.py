"""Requests of clients: read within bounds, and refused with a status and one line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request


@dataclass(frozen=True)
class Limits:
    """Bounds of the server.

    :param request_bytes: of the body of a request
    :param held_bytes: of the bodies of all requests together
    :param lines: of a request
    :param beam: largest beam that a request may name
    :param seconds: until a request is refused that has no answer
    """

    request_bytes: int
    held_bytes: int
    lines: int
    beam: int
    seconds: float


class RefusedError(Exception):
    """A request that is not answered as wished.

    :param status: of HTTP
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


class BodyReader:
    """Reads bodies of requests, and counts the bytes that it holds of all of them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Hold the body of a request within the block.

        :raises RefusedError: it is too large, too slow, or all bodies together are too large
        """
        too_large = RefusedError(413, f"the request is larger than {self.limits.request_bytes:,} bytes")
        stated = request.headers.get("content-length", "")
        if stated.isdecimal() and (len(stated) > 15 or int(stated) > self.limits.request_bytes):
            raise too_large
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(self.limits.seconds):
                    async for chunk in request.stream():
                        self._held += len(chunk)
                        body += chunk
                        if len(body) > self.limits.request_bytes:
                            raise too_large
                        if self._held > self.limits.held_bytes:
                            raise RefusedError(429, "too much text is being translated", RETRY)
            except TimeoutError as error:
                raise RefusedError(408, f"the request did not arrive within {self.limits.seconds:g} seconds") from error
            except ClientDisconnect as error:
                raise RefusedError(400, "the request ended before its end") from error
            yield bytes(body)
        finally:
            self._held -= len(body)


RETRY = {"Retry-After": "5"}


@dataclass(frozen=True)
class TextRequest:
    """Lines to translate, and how.

    :param models: names
    :param n_best: translations of each line
    """

    lines: list[str]
    models: list[str]
    beam: int
    n_best: int


def parse_request(body: bytes, models: Sequence[str], beam: int, limits: Limits) -> TextRequest:
    """Read the JSON of a request.

    :param models: names of the models that are served
    :param beam: beam by default
    :raises RefusedError: it is not JSON, or a value is not allowed
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "the request is not JSON in UTF-8") from error
    if not isinstance(values, dict):
        raise RefusedError(400, 'the request is not an object such as {"lines": ["A sentence."]}')
    if unknown := sorted(map(repr, values.keys() - {"lines", "models", "beam", "n_best"})):
        raise RefusedError(400, f"{unknown[0][:80]}: unknown; known are lines, models, beam, n_best")
    lines = _texts(values, "lines")
    check_line_count(len(lines), limits)
    names = _texts(values, "models") if "models" in values else [models[0]]
    for name in names:
        check_model(name, models)
    if not names or len(set(names)) != len(names):
        raise RefusedError(400, "models: name one or more, each once")
    beam = _whole_number(values, "beam", beam, limits.beam)
    return TextRequest(lines, names, beam, _whole_number(values, "n_best", 1, beam))


def check_line_count(count: int, limits: Limits) -> None:
    """Check the number of lines.

    :raises RefusedError: there are too many
    """
    if count > limits.lines:
        raise RefusedError(413, f"{count:,} lines, at most {limits.lines:,} are allowed in a request")


def check_model(name: str, models: Sequence[str]) -> None:
    """Check the name of a model.

    :raises RefusedError: no model of this name is served
    """
    if name not in models:
        raise RefusedError(400, f"models: {name[:80]!r} is not served; these are: {', '.join(models)}")


def _texts(values: Mapping[str, Any], key: str) -> list[str]:
    texts = values.get(key)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RefusedError(400, f"{key}: not a list of strings")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise RefusedError(400, f"{key}: half of a surrogate pair is no character") from error
    return texts


def _whole_number(values: Mapping[str, Any], key: str, default: int, most: int) -> int:
    number = values.get(key, default)
    if type(number) is not int or not 1 <= number <= most:
        raise RefusedError(400, f"{key}: not a whole number from 1 to {most}")
    return number
