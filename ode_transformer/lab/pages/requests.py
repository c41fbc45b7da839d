"""Requests and answers of the server: their fields, and whose requests are answered."""

import asyncio
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """Bounds of the server.

    :param beam: largest beam that a request may name
    :param seconds: until a request is refused that has no answer
    """

    request_bytes: int
    lines: int
    beam: int
    seconds: float


class TextRequest(BaseModel):
    """Lines to translate, and how."""

    # A length makes pydantic refuse half of a character, which JSON can write (\ud800) and no answer can.
    model_config = ConfigDict(extra="forbid", strict=True, str_min_length=0)

    lines: list[str]
    models: list[str] = Field([], description="names of models, see /health; by default the first of them")
    beam: int | None = Field(None, ge=1, description="by default as the server was started")
    n_best: int = Field(1, ge=1, description="translations of each line, at most the beam")


class Refusal(BaseModel):
    """The answer to a request that is not answered as wished."""

    error: str = Field(description="one line")


class Translation(BaseModel):
    """A translation of a line with the score of the search."""

    text: str
    score: float


class TranslatedText(BaseModel):
    """The translations of a request by one model."""

    model: str
    translations: list[str] = Field(description="one for each line, in the same order; an empty line stays so")
    n_best: list[list[Translation]]
    warning: str = Field(description="empty, or why the model may not know the text")


class Translations(BaseModel):
    """The translations of a request."""

    systems: list[TranslatedText]


class AttentionMap(BaseModel):
    """Attention of a layer."""

    title: str
    rows: list[str]
    columns: list[str]
    heads: int
    weights: str = Field(description="base64 of bytes, heads × rows × columns; 255 is weight 1")


class StageWeightsByWord(BaseModel):
    """Weights of a block's stages at each word."""

    block: str
    tokens: list[str]
    weights: list[list[float | None]]


class InspectedLine(BaseModel):
    """One model's translation of a line, its attention and its stage weights."""

    model: str
    translation: str
    tokens: dict[Literal["source", "target"], list[str]]
    attention: list[AttentionMap]
    stage_weights: list[StageWeightsByWord]


class Inspections(BaseModel):
    """A line in each model."""

    systems: list[InspectedLine]


class Health(BaseModel):
    """State of the server."""

    status: Literal["ok"]
    waiting_lines: int
    models: list[str]
    languages: dict[Literal["source", "target"], str]
    version: str


def guarded(app: ASGIApp, hosts: Collection[str] | None, limits: Limits) -> ASGIApp:
    """Return an ASGI application that lets requests of its own page and of programs through to another, within bounds.

    :param hosts: names by which clients may address the server, None for any: a page of another site that has its own
        name point to this machine could otherwise read the answers
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        size, deadline = 0, asyncio.get_running_loop().time() + limits.seconds

        async def receive_within_limits() -> Message:
            nonlocal size
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the request did not arrive within {limits.seconds:g} seconds") from None
            size += len(message.get("body", b""))
            if size > limits.request_bytes:
                raise HTTPException(413, f"the request is larger than {limits.request_bytes:,} bytes")
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        headers, answering = Headers(scope=scope), app
        host, origin = headers.get("host", ""), headers.get("origin")
        if hosts is not None and re.sub(r":\d*$", "", host).strip("[]") not in hosts:
            answering = JSONResponse({"error": "the request names this server by the name of another site"}, 403)
        elif origin is not None and origin.partition("://")[2] != host:
            answering = JSONResponse({"error": "a page of another site sent the request"}, 403)
        await answering(scope, receive_within_limits, send_with_headers)

    return answer
