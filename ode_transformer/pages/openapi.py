"""Description of the endpoints in the form of OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ode_transformer
from ode_transformer.pages.requests import Limits

REFUSALS = {
    "400": "The request is not what the description says, or a line is not UTF-8.",
    "403": "A page of another site sent the request.",
    "408": "The request did not arrive in time.",
    "413": "Too many bytes, too many lines, or a line with more tokens than the model takes.",
    "429": "Too many lines wait; Retry-After says when to try again.",
    "500": "The server failed.",
    "503": "No answer in time, too many connections, or the server stops.",
}


def openapi(limits: Limits, models: Sequence[str], beam: int) -> dict[str, Any]:
    """Return the description of a server.

    :param models: names of its models, the default first
    :param beam: by default
    """
    strings = {"type": "array", "items": {"type": "string"}}
    model_names = {"type": "array", "items": {"type": "string", "enum": list(models)}, "minItems": 1}
    request = _object(
        {
            "lines": {**strings, "maxItems": limits.lines},
            "models": {**model_names, "uniqueItems": True, "default": [models[0]]},
            "beam": {"type": "integer", "minimum": 1, "maximum": limits.beam, "default": beam},
            "n_best": {"type": "integer", "minimum": 1, "default": 1, "description": "at most the beam"},
        },
        required=["lines"],
    )
    hypothesis = _object({"text": {"type": "string"}, "score": {"type": "number"}})
    translated = _object(
        {
            "model": {"type": "string"},
            "translations": {**strings, "description": "one for each line, in the same order; an empty line stays so"},
            "n_best": {"type": "array", "items": {"type": "array", "items": hypothesis}},
            "warning": {"type": "string", "description": "empty, or why the model may not know the text"},
        }
    )
    attention = _object(
        {
            "title": {"type": "string"},
            "rows": strings,
            "columns": strings,
            "heads": {"type": "integer"},
            "weights": {"type": "string", "description": "base64 of bytes, heads × rows × columns; 255 is weight 1"},
        }
    )
    weights = _object(
        {
            "block": {"type": "string"},
            "tokens": strings,
            "weights": {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}},
        }
    )
    inspected = _object(
        {
            "model": {"type": "string"},
            "translation": {"type": "string"},
            "tokens": _object({"source": strings, "target": strings}),
            "attention": {"type": "array", "items": attention},
            "stage_weights": {"type": "array", "items": weights},
        }
    )
    health = _object(
        {
            "status": {"type": "string"},
            "waiting_lines": {"type": "integer"},
            "models": strings,
            "languages": _object({"source": {"type": "string"}, "target": {"type": "string"}}),
            "version": {"type": "string"},
        }
    )
    text = {"text/plain": {"schema": {"type": "string"}}}
    one_model = {"name": "model", "in": "query", "schema": {"type": "string", "enum": list(models)}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ode-transformer serve", "version": ode_transformer.__version__},
        "paths": {
            "/translate": {"post": _post("Translate lines.", _json(request), _json(_systems(translated)))},
            "/translate-file": {"post": {**_post("Translate a text.", text, text), "parameters": [one_model]}},
            "/inspect": {
                "post": _post("Attention and stage weights of one line.", _json(request), _json(_systems(inspected)))
            },
            "/health": {"get": _operation("State of the server.", _json(health), ["503"])},
        },
    }


def _object(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    names = list(properties) if required is None else list(required)
    return {"type": "object", "properties": dict(properties), "required": names, "additionalProperties": False}


def _systems(schema: Mapping[str, Any]) -> dict[str, Any]:
    return _object({"systems": {"type": "array", "items": dict(schema)}})


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": dict(schema)}}


def _post(summary: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    body = {"required": True, "content": dict(request)}
    return {**_operation(summary, answer, list(REFUSALS)), "requestBody": body}


def _operation(summary: str, answer: Mapping[str, Any], statuses: Sequence[str]) -> dict[str, Any]:
    error = _json(_object({"error": {"type": "string"}}))
    refusals = {status: {"description": REFUSALS[status], "content": error} for status in statuses}
    return {"summary": summary, "responses": {"200": {"description": summary, "content": dict(answer)}, **refusals}}
