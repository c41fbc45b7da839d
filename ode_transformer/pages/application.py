"""The server's answers.

GET / is the page, GET /health and GET /openapi.json say what is there, POST /translate, /translate-file and /inspect
compute. Nothing else is served, so that no file of the machine can be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import ode_transformer
from ode_transformer.pages.batches import BatchWorker, Job, QueueFullError
from ode_transformer.pages.openapi import openapi
from ode_transformer.pages.page import render_page
from ode_transformer.pages.requests import (
    RETRY,
    BodyReader,
    Limits,
    RefusedError,
    check_line_count,
    check_model,
    parse_request,
)
from ode_transformer.pages.served_model import Hypothesis, ServedModel
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.lines import decode_lines

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Endpoint = Callable[[Request], Awaitable[Response]]


class TranslationServer:
    """Models, the worker that computes with them, and the bounds.

    :param models: of one pair of languages
    :param beam: by default
    :param hosts: names by which clients may address the server, None for any: a page of another site that has its own
        name point to this machine could otherwise read the answers
    """

    def __init__(
        self,
        models: Sequence[ServedModel],
        worker: BatchWorker,
        limits: Limits,
        beam: int,
        hosts: Collection[str] | None = None,
    ) -> None:
        self.models, self.hosts = {model.name: model for model in models}, hosts
        self.worker, self.limits, self.beam = worker, limits, beam
        self.bodies = BodyReader(limits)
        first = models[0]
        self.languages = {"source": first.source_lang, "target": first.target_lang}
        self.openapi = openapi(limits, list(self.models), beam)
        self.page = render_page(
            "serve.html",
            scripts=("attention_map.js", "serve.js"),
            connect="'self'",
            models=list(self.models),
            languages=self.languages,
            beam=beam,
            limits=limits,
            version=ode_transformer.__version__,
        )

    def application(self) -> Starlette:
        """Return the application."""
        routes = [
            Route("/", self._endpoint(self.show_page), methods=["GET"]),
            Route("/health", self._endpoint(self.show_health), methods=["GET"]),
            Route("/openapi.json", self._endpoint(self.show_description), methods=["GET"]),
            Route("/translate", self._endpoint(self.translate), methods=["POST"]),
            Route("/translate-file", self._endpoint(self.translate_file), methods=["POST"]),
            Route("/inspect", self._endpoint(self.inspect), methods=["POST"]),
        ]

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            self.worker.start()
            yield
            await run_in_threadpool(self.worker.stop, self.limits.seconds)

        return Starlette(
            routes=routes,
            lifespan=lifespan,
            exception_handlers={HTTPException: _refuse_address},
        )

    async def show_page(self, request: Request) -> Response:
        """Answer with the page."""
        return HTMLResponse(self.page)

    async def show_health(self, request: Request) -> Response:
        """Answer with the models and the lines that wait."""
        healthy = self.worker.is_alive
        state = {"status": "ok" if healthy else "stopping", "waiting_lines": self.worker.waiting}
        about = {"models": list(self.models), "languages": self.languages, "version": ode_transformer.__version__}
        return JSONResponse({**state, **about}, status_code=200 if healthy else 503)

    async def show_description(self, request: Request) -> Response:
        """Answer with the description of the endpoints."""
        return JSONResponse(self.openapi)

    async def translate(self, request: Request) -> Response:
        """Answer lines of JSON with as many translations by each model."""
        async with self.bodies.read(request) as body:
            text_request = parse_request(_json_body(request, body), list(self.models), self.beam, self.limits)
            systems = []
            for name in text_request.models:
                lines, warning = await self._translations(self.models[name], text_request.lines, text_request.beam)
                systems.append(
                    {
                        "model": name,
                        "translations": [hypotheses[0].text if hypotheses else "" for hypotheses in lines],
                        "n_best": [
                            [{"text": h.text, "score": round(h.score, 4)} for h in hypotheses[: text_request.n_best]]
                            for hypotheses in lines
                        ],
                        "warning": warning,
                    }
                )
        return JSONResponse({"systems": systems})

    async def translate_file(self, request: Request) -> Response:
        """Answer a text with a text of as many lines."""
        names = list(self.models)
        name = request.query_params.get("model", names[0])
        check_model(name, names)
        async with self.bodies.read(request) as body:
            lines = decode_lines(body, "the file")
            check_line_count(len(lines), self.limits)
            translations, _ = await self._translations(self.models[name], lines, self.beam)
        text = "".join(f"{hypotheses[0].text if hypotheses else ''}\n" for hypotheses in translations)
        return PlainTextResponse(text, headers={"Content-Disposition": 'attachment; filename="translation.txt"'})

    async def inspect(self, request: Request) -> Response:
        """Answer one line with each model's attention and stage weights."""
        async with self.bodies.read(request) as body:
            text_request = parse_request(_json_body(request, body), list(self.models), self.beam, self.limits)
            if len(text_request.lines) != 1:
                raise RefusedError(400, "lines: name one line to look into")
            systems = []
            for name in text_request.models:
                sources, _ = await self._encode(self.models[name], text_request.lines)
                if not sources:
                    raise RefusedError(400, "lines: the line has no text")
                compute = partial(_inspect_each, self.models[name], text_request.beam)
                (inspection,) = await self._compute(
                    ("inspect", name, text_request.beam), compute, list(sources.values())
                )
                systems.append({"model": name, **inspection})
        return JSONResponse({"systems": systems})

    async def _encode(self, model: ServedModel, lines: Sequence[str]) -> tuple[dict[int, Any], str]:
        try:
            async with self._until_late():
                return await run_in_threadpool(model.encode, lines)
        except UserError as error:  # a line has more tokens than the model takes
            raise RefusedError(413, str(error)) from error

    @asynccontextmanager
    async def _until_late(self) -> AsyncIterator[None]:
        """Give what is awaited in the block the time of a translation.

        :raises RefusedError: it took longer
        """
        try:
            async with asyncio.timeout(self.limits.seconds):
                yield
        except TimeoutError:
            raise RefusedError(503, f"no translation within {self.limits.seconds:g} seconds", RETRY) from None

    async def _translations(
        self, model: ServedModel, lines: Sequence[str], beam: int
    ) -> tuple[list[list[Hypothesis]], str]:
        """Return the hypotheses of each line, none for a line without text, and a warning or ""."""
        sources, warning = await self._encode(model, lines)
        compute = partial(model.translate, beam=beam)
        results = (
            await self._compute(("translate", model.name, beam), compute, list(sources.values())) if sources else []
        )
        by_line = dict(zip(sources, results, strict=True))
        return [by_line.get(number, []) for number in range(len(lines))], warning

    async def _compute(
        self, key: Hashable, compute: Callable[[list[Any]], Sequence[Any]], items: list[Any]
    ) -> list[Any]:
        """Let the worker compute a job.

        :raises RefusedError: too many items wait, or the result is late
        """
        if not self.worker.is_alive:
            raise RefusedError(503, "the server stops")
        try:
            future = self.worker.submit(Job(key, compute, items))
        except QueueFullError:
            raise RefusedError(429, f"{self.worker.waiting:,} lines wait already", RETRY) from None
        try:
            async with self._until_late():
                return await asyncio.wrap_future(future)
        except UserError as error:  # of the model, not of the request
            raise RefusedError(500, str(error)) from error
        except asyncio.CancelledError:
            if future.cancelled() and not self.worker.is_alive:
                raise RefusedError(503, "the server stops") from None
            raise
        finally:
            future.cancel()

    def _endpoint(self, answer: Endpoint) -> Endpoint:
        """Return an endpoint whose refusals and failures are JSON of one line."""

        async def endpoint(request: Request) -> Response:
            try:
                self._check_site(request)
                response = await answer(request)
                response.headers.update(HEADERS)
                return response
            except RefusedError as error:
                return _refusal(error.status, error.message, error.headers)
            except UserError as error:  # a line that is not UTF-8
                return _refusal(400, str(error))
            except Exception as error:
                print_progress(f"{request.url.path}: {type(error).__name__}: {one_line(error)}")
                return _refusal(500, "the server failed; its terminal says how")

        return endpoint

    def _check_site(self, request: Request) -> None:
        """Refuse what pages of other sites send.

        :raises RefusedError: the request is of another site, or names this machine by a name of another site
        """
        host = request.headers.get("host", "")
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        if self.hosts is not None and name not in self.hosts:
            raise RefusedError(403, f"this server is not {one_line(name, 80)}")
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise RefusedError(403, "a page of another site sent the request")


def _inspect_each(model: ServedModel, beam: int, sources: Sequence[Any]) -> list[dict[str, Any]]:
    return [model.inspect(source, beam) for source in sources]


def _json_body(request: Request, body: bytes) -> bytes:
    # A page of another site can send text without a question, but not JSON.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusedError(415, "the request's Content-Type is not application/json")
    return body


def _refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status_code=status, headers={**HEADERS, **(headers or {})})


async def _refuse_address(request: Request, error: Exception) -> Response:
    """Answer an unknown address or a wrong method."""
    assert isinstance(error, HTTPException)
    return _refusal(error.status_code, f"{request.method} is not served at this address", error.headers)
