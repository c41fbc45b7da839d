"""Attention weights of one sentence, for pages and as plots, and stage weights at each of its tokens."""

import base64
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ode_transformer.decoding.attention_maps import attention_maps
from ode_transformer.decoding.teacher_forcing import forward_pass
from ode_transformer.lab.analysis.depth.coefficients import recorded_weights
from ode_transformer.lab.analysis.plots import plain_label, saved_panel
from ode_transformer.nn import GridDecoder, LayerId, SubLayer, SubLayerKind
from ode_transformer.nn.layer_hooks import depth_stacks, removed_afterwards
from ode_transformer.support.files import file_name, write_text

VARYING = 0.005  # standard deviation over the tokens from which on weights are shown by token
LONGEST_MAP = 80  # tokens; the map of a longer sentence could not be read
_KINDS = (SubLayerKind.SELF_ATTENTION, SubLayerKind.CROSS_ATTENTION)


@dataclass(frozen=True)
class AttentionMatrix:
    """Attention weights of a sentence.

    :param rows: tokens that attend
    :param columns: tokens that are attended to
    :param heads: weights of each head, [H, rows, columns]
    :param axes: names of both sides
    """

    title: str
    rows: list[str]
    columns: list[str]
    heads: Tensor
    axes: tuple[str, str]


@torch.no_grad()
def attention_by_head(model: Any, sample: dict[str, Any]) -> dict[tuple[LayerId, SubLayerKind], Tensor]:
    """Return the weights of each attention in its last evaluation, that of a step's last stage, [H, T, S] each.

    :param model: in evaluation mode
    :param sample: fairseq's batch of a single sentence pair, so that nothing is padding
    """
    weights: dict[tuple[LayerId, SubLayerKind], list[Tensor]] = {}
    handles = []
    for name, stack in depth_stacks(model).items():
        for sublayer in (module for layer in stack.layers for module in layer.modules()):
            if isinstance(sublayer, SubLayer) and sublayer.kind in _KINDS:
                rows = weights.setdefault((LayerId(name, sublayer.layer + 1), sublayer.kind), [])

                def ask(_: Any, inputs: Any, options: Any, rows: list[Tensor] = rows) -> tuple[Any, Any]:
                    return inputs, options | {"weights": rows}

                handles.append(sublayer.function.register_forward_pre_hook(ask, with_kwargs=True))
    with removed_afterwards(handles):
        forward_pass(model, sample["net_input"])
    return {attention: rows[-1][0].float().cpu() for attention, rows in weights.items()}


def readable_tokens(tokens: Sequence[str]) -> list[str]:
    """Return tokens without the sign that begins a word of sentencepiece; a dot marks the pieces within a word."""
    if not any(token.startswith("▁") for token in tokens):
        return list(tokens)
    return [
        token.removeprefix("▁") or "▁" if token.startswith(("▁", "<")) or not token[:1].isalnum() else f"·{token}"
        for token in tokens
    ]


def word_weights(model: Any, sample: Mapping[str, Any], only_varying: bool = True) -> dict[str, Tensor]:
    """Return the stage weights of each block at each token of a sentence, [stages, tokens].

    A block of several steps (``--ode-steps``) has their mean; a block of a grid has no weights of a token.

    :param only_varying: leave out the blocks whose weights are nearly the same at all tokens
    """
    texts = sample["net_input"]
    source = texts["src_tokens"]
    tokens = {"encoder": source.numel(), "decoder": texts.get("prev_output_tokens", source).numel()}
    weights = {}
    for block, rows in recorded_weights(model, [sample]).items():
        steps, length = depth_stacks(model)[block.stack].choice.steps, tokens[block.stack]
        if rows.size(1) == steps * length:
            rows = rows.unflatten(1, (steps, length)).mean(dim=1)
            if not only_varying or float(rows.std(dim=1).max()) > VARYING:
                weights[str(block)] = rows
    return weights


def sentence_maps(model: Any, sample: dict[str, Any], tokens: Mapping[str, list[str]]) -> list[AttentionMatrix]:
    """Return the maps of ``decoding.attention_maps``; those of three axes for the last token before the end."""
    matrices = []
    for title, (axes, weights) in attention_maps(model, sample).items():
        rows, columns = axes[0], axes[-1]
        if len(axes) == 3:
            query_tokens = tokens[axes[1]]
            query = max(0, len(query_tokens) - 2)
            title, weights = f"{title} of {query_tokens[query]}", weights[:, query]
        matrices.append(AttentionMatrix(title, tokens[rows], tokens[columns], weights[None], (rows, columns)))
    return matrices


def attention(model: Any, sample: dict[str, Any], tokens: dict[str, list[str]]) -> list[AttentionMatrix]:
    """Return all attention maps of a sentence; none if it is too long to be read."""
    if max(map(len, tokens.values())) > LONGEST_MAP:
        return []
    stacks = depth_stacks(model)
    if not stacks or isinstance(stacks["decoder"], GridDecoder):  # a model of fairseq's own, or a grid
        return sentence_maps(model, sample, tokens)
    matrices = []
    for (layer, kind), heads in attention_by_head(model, sample).items():
        rows = "source" if layer.stack == "encoder" else "prefix"
        columns = "source" if kind is SubLayerKind.CROSS_ATTENTION else rows
        sides = readable_tokens(tokens[rows]), readable_tokens(tokens[columns])
        matrices.append(AttentionMatrix(f"{layer}: {kind.value}", *sides, heads, (rows, columns)))
    return matrices


def matrix_data(matrix: AttentionMatrix) -> dict[str, Any]:
    """Return an attention map for a page's script; weights are bytes, 255 for the largest possible weight 1."""
    entries = (matrix.heads.clamp(0, 1) * 255).round().byte().flatten().tolist()
    weights = base64.b64encode(bytes(entries)).decode()
    sides = {"rows": matrix.rows, "columns": matrix.columns}
    return {"title": matrix.title, **sides, "heads": len(matrix.heads), "weights": weights}


def draw_map(matrix: AttentionMatrix, system: str, path: Path) -> None:
    """Draw the weights as shades, with a token at each row and column."""
    size = 1.8 + 0.32 * len(matrix.columns), 1.5 + 0.28 * len(matrix.rows)
    with warnings.catch_warnings(), saved_panel(path, *size) as axes:
        warnings.filterwarnings("ignore", message="Glyph")  # a script that the font lacks
        image = axes.imshow(matrix.heads.mean(dim=0).numpy(), cmap="Greys", vmin=0, aspect="auto")
        axes.set_xticks(range(len(matrix.columns)), [plain_label(token) for token in matrix.columns], rotation=90)
        axes.set_yticks(range(len(matrix.rows)), [plain_label(token) for token in matrix.rows])
        axes.set(ylabel=matrix.axes[0], xlabel=matrix.axes[1])
        axes.set_title(plain_label(f"{system}: {matrix.title}"), fontsize="medium")
        axes.figure.colorbar(image)


def write_maps(matrices: Iterable[AttentionMatrix], system: str, line: int, folder: Path) -> None:
    """Write a plot and a JSON file with the weights of each attention map of a sentence."""
    folder.mkdir(exist_ok=True)
    for matrix in matrices:
        name = f"{file_name(system)}-{line}-{re.sub(r'[^a-z0-9]+', '_', matrix.title.lower())}"
        draw_map(matrix, system, folder / f"{name}.png")
        values = {"line": line, "title": matrix.title, "axes": matrix.axes, "tokens": (matrix.rows, matrix.columns)}
        values["weights"] = matrix.heads.mean(dim=0).tolist()
        write_text(folder / f"{name}.json", json.dumps(values, ensure_ascii=False) + "\n")
