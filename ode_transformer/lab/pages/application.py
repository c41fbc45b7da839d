"""The models that are served, and the server's answers.

GET / is the page, GET /health and GET /openapi.json say what is there, POST /translate, /translate-file and /inspect
compute. Nothing else is served, so that no file of the machine can be read.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import torch
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp
from torch import Tensor

import ode_transformer
from ode_transformer.decoding.attention_maps import axis_tokens
from ode_transformer.decoding.teacher_forcing import on_device
from ode_transformer.decoding.translate import encode, normalize_spaces, search_all
from ode_transformer.lab.analysis.one_sentence import attention, matrix_data, readable_tokens, word_weights
from ode_transformer.lab.pages import requests
from ode_transformer.lab.pages.batches import BatchQueue, QueueFullError
from ode_transformer.lab.pages.page import render_page
from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.files import file_name
from ode_transformer.support.lines import decode_lines

RETRY = {"Retry-After": "5"}
REFUSALS = (
    "A refusal. 400: the request is not what this description says, or a line is not UTF-8; 403: a page of another "
    "site sent it; 408: it did not arrive in time; 413: too many bytes, lines or tokens of a line; 415: it is not "
    "JSON; 429: too many lines wait, Retry-After says when to try again; 500: the server failed; 503: no answer in "
    "time, or too many connections."
)
TEXT_BODY = {"requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}}}


class ServedModel:
    """A translation model with its name.

    :param search: options of fairseq's search beside the beam
    """

    def __init__(self, name: str, hub: Any, max_tokens: int | None = None, **search: Any) -> None:
        self.name, self.hub, self.max_tokens, self.search_options = name, hub, max_tokens, search
        self.source_lang, self.target_lang = hub.languages

    def encode(self, lines: Sequence[str]) -> tuple[dict[int, Tensor], str]:
        """Return the tokens of the lines that have any, by index, and a warning or "".

        :raises UserError: a line is longer than the model or ``--max-tokens`` allows
        """
        sources, warnings = encode(self.hub, lines, "your text", self.max_tokens)
        return sources, "".join(warnings)

    def search(self, sources: Sequence[Tensor], beam: int) -> Iterator[list[dict[str, Any]]]:
        """Yield fairseq's hypotheses for each source, the best one first."""
        return search_all(self.hub, sources, "lines translated", **{**self.search_options, "beam": beam})

    def text(self, hypothesis: Mapping[str, Any]) -> str:
        """Return a hypothesis as a line."""
        return normalize_spaces(self.hub.decode(hypothesis["tokens"]))

    def translate(self, sources: Sequence[Tensor], beam: int) -> list[list[requests.Translation]]:
        """Return the translations of each source, the best one first."""
        return [
            [requests.Translation(text=self.text(h), score=round(float(h["score"]), 4)) for h in hypotheses]
            for hypotheses in self.search(sources, beam)
        ]

    def inspect(self, sources: Sequence[Tensor], beam: int) -> list[requests.InspectedLine]:
        """Return the best translation of each source, with the attention and the stage weights that go with it."""
        searched = zip(sources, self.search(sources, beam), strict=True)
        return [self._look_inside(source, hypotheses[0]) for source, hypotheses in searched]

    @torch.no_grad()
    def _look_inside(self, source: Tensor, best: Mapping[str, Any]) -> requests.InspectedLine:
        model, dictionaries = self.hub.models[0], {"source": self.hub.src_dict, "target": self.hub.tgt_dict}
        target, end = best["tokens"].cpu().long(), self.hub.tgt_dict.eos()
        previous = torch.cat([target.new_tensor([end]), target[:-1]])
        if self.hub.continues:  # its source is what it has read
            source = previous
        tokens = axis_tokens({"source": source, "target": target}, dictionaries)
        inputs = {"src_tokens": source[None], "src_lengths": torch.tensor([len(source)])}
        if not self.hub.continues:
            inputs["prev_output_tokens"] = previous[None]
        sample = on_device({"net_input": inputs}, self.hub.device)
        readable = {side: readable_tokens(row) for side, row in tokens.items()}
        blocks = word_weights(model, sample, only_varying=False)
        return requests.InspectedLine(
            model=self.name,
            translation=self.text(best),
            tokens={side: readable[side] for side in ("source", "target")},
            attention=[requests.AttentionMap(**matrix_data(matrix)) for matrix in attention(model, sample, tokens)],
            stage_weights=[
                requests.StageWeightsByWord(
                    block=block,
                    tokens=readable["source" if block.startswith("encoder") else "prefix"],
                    # JSON has no nan
                    weights=[[round(w, 4) if math.isfinite(w) else None for w in row] for row in rows.tolist()],
                )
                for block, rows in blocks.items()
            ],
        )


class TranslationServer:
    """Models, the queue of what they compute, and the bounds.

    :param models: of one pair of languages
    """

    def __init__(self, models: Sequence[ServedModel], queue: BatchQueue, limits: requests.Limits, beam: int) -> None:
        self.models = {model.name: model for model in models}
        self.queue, self.limits, self.beam = queue, limits, beam
        self.languages: dict[Any, str] = {"source": models[0].source_lang, "target": models[0].target_lang}
        self.page = render_page(
            "serve.html",
            scripts=("attention_map.js", "serve.js"),
            connect="'self'",
            models=list(self.models),
            languages=self.languages,
            continues=models[0].hub.continues,
            beam=beam,
            limits=limits,
            version=ode_transformer.__version__,
        )

    def application(self, hosts: Collection[str] | None) -> ASGIApp:
        """Return the application."""
        app = FastAPI(
            title="ode-transformer serve",
            version=ode_transformer.__version__,
            lifespan=self._lifespan,
            docs_url=None,  # its pages would load scripts from elsewhere
            redoc_url=None,
            responses={"default": {"model": requests.Refusal, "description": REFUSALS}},
        )
        for kind in (HTTPException, RequestValidationError, UserError, Exception):
            app.add_exception_handler(kind, _refuse)
        app.get("/", include_in_schema=False, response_class=HTMLResponse)(lambda: self.page)
        app.get("/health", summary="State of the server")(self.health)
        app.post("/translate", summary="Translate lines")(self.translate)
        app.post("/inspect", summary="Attention and stage weights of one line")(self.inspect)
        app.post(
            "/translate-file",
            summary="Translate a text to a text of as many lines",
            response_class=PlainTextResponse,
            openapi_extra=TEXT_BODY,
        )(self.translate_file)
        return requests.guarded(app, hosts, self.limits)

    async def health(self) -> requests.Health:
        """Return the models and the lines that wait."""
        return requests.Health(
            status="ok",
            waiting_lines=self.queue.waiting,
            models=list(self.models),
            languages=self.languages,
            version=ode_transformer.__version__,
        )

    async def translate(self, request: requests.TextRequest) -> requests.Translations:
        """Return as many translations as lines by each model."""
        models, beam = self._chosen(request)
        systems = []
        for model in models:
            lines, warning = await self._compute("translate", model, request.lines, beam)
            best = [translations[0].text if translations else "" for translations in lines]
            n_best = [(translations or [])[: request.n_best] for translations in lines]
            systems.append(requests.TranslatedText(model=model.name, translations=best, n_best=n_best, warning=warning))
        return requests.Translations(systems=systems)

    async def translate_file(self, request: Request, model: str = "") -> PlainTextResponse:
        """Answer a text with a text of as many lines."""
        (chosen,) = self._models([model] if model else [])
        lines = decode_lines(await request.body(), "the file")
        self._check_line_count(len(lines))
        by_line, _ = await self._compute("translate", chosen, lines, self.beam)
        text = "".join(f"{translations[0].text if translations else ''}\n" for translations in by_line)
        # Headers are Latin-1; a name in any letters has a form of its own (RFC 6266).
        name = quote(f"translation.{file_name(self.languages['target'])}")
        disposition = f"attachment; filename*=UTF-8''{name}" if "%" in name else f'attachment; filename="{name}"'
        return PlainTextResponse(text, headers={"Content-Disposition": disposition})

    async def inspect(self, request: requests.TextRequest) -> requests.Inspections:
        """Return each model's attention and stage weights for one line."""
        models, beam = self._chosen(request)
        if len(request.lines) != 1 or not request.lines[0].strip():
            raise HTTPException(400, "lines: name one line of text to look into")
        inspected = [(await self._compute("inspect", model, request.lines, beam))[0] for model in models]
        return requests.Inspections(systems=[line for (line,) in inspected if line is not None])

    def _chosen(self, request: requests.TextRequest) -> tuple[list[ServedModel], int]:
        """Return the models and the beam of a request, whose bounds are checked."""
        self._check_line_count(len(request.lines))
        beam = self.beam if request.beam is None else request.beam
        if beam > self.limits.beam or request.n_best > beam:
            raise HTTPException(400, f"beam: at most {self.limits.beam} is allowed; n_best: at most the beam, {beam}")
        return self._models(request.models), beam

    def _models(self, names: Sequence[str]) -> list[ServedModel]:
        """Return the models of these names, by default the first of all."""
        if unknown := [name for name in names if name not in self.models]:
            served = ", ".join(self.models)
            raise HTTPException(400, f"models: {one_line(unknown[0], 80)} is not served; these are: {served}")
        return [self.models[name] for name in dict.fromkeys(names or list(self.models)[:1])]

    def _check_line_count(self, count: int) -> None:
        if count > self.limits.lines:
            raise HTTPException(413, f"{count:,} lines, at most {self.limits.lines:,} are allowed in a request")

    async def _compute(self, method: str, model: ServedModel, lines: Sequence[str], beam: int) -> tuple[list[Any], str]:
        """Let the queue compute what a method of the model returns for each line; return it with a warning or "".

        A line without text has None.
        """
        try:
            sources, warning = await asyncio.to_thread(model.encode, lines)
        except UserError as error:  # a line has more tokens than the model takes
            raise HTTPException(413, str(error)) from error
        compute, key = partial(getattr(model, method), beam=beam), (method, model.name, beam)
        try:
            async with asyncio.timeout(self.limits.seconds):
                results = await self.queue.compute(key, compute, list(sources.values()))
        except TimeoutError:
            raise HTTPException(503, f"no translation within {self.limits.seconds:g} seconds", RETRY) from None
        except QueueFullError:
            raise HTTPException(429, f"{self.queue.waiting:,} lines wait already", RETRY) from None
        except UserError as error:  # of the model, not of the request
            raise HTTPException(500, str(error)) from error
        by_line = dict(zip(sources, results, strict=True))
        return [by_line.get(number) for number in range(len(lines))], warning

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        batches = asyncio.create_task(self.queue.run())
        yield
        batches.cancel()


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer a request that fails with one line."""
    status, message, headers = 500, "the server failed; its terminal says how", None
    if isinstance(error, HTTPException):
        status, message, headers = error.status_code, error.detail, error.headers
    elif isinstance(error, UserError):  # a line that is not UTF-8
        status, message = 400, str(error)
    elif isinstance(error, RequestValidationError):
        fault = error.errors()[0]
        field = ".".join(map(str, fault["loc"][1:]))
        status, message = 400, one_line(f"{field or 'the request'}: {fault['msg']}", 500)
        if "json" not in request.headers.get("content-type", ""):
            status, message = 415, "the request's Content-Type is not application/json"
    return JSONResponse({"error": message}, status, headers)
