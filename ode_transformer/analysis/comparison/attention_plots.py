"""Plots and files of attention maps."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ode_transformer.analysis.plots import new_figure, plain_label, save_figure
from ode_transformer.decoding.attention_maps import AttentionMap
from ode_transformer.support.files import file_name, write_text


@dataclass(frozen=True)
class DrawnMap:
    """An attention map of one sentence as it is drawn.

    :param line: number of the sentence in its split, from 1 on
    :param title: title of the map
    :param axes: names of the axes of rows and columns
    :param tokens: tokens of rows and columns
    :param weights: [rows, columns]
    :param query: the token whose attention it is, where that is not a row
    """

    line: int
    title: str
    axes: tuple[str, str]
    tokens: tuple[list[str], list[str]]
    weights: Tensor
    query: str | None = None


def drawn_map(line: int, title: str, attention: AttentionMap, tokens: Mapping[str, Sequence[str]]) -> DrawnMap:
    """Return a map of two axes; of three axes it is the attention of the last token before the end.

    :param tokens: tokens of each axis
    """
    query_index, query = 0, None
    if len(attention.axes) == 3:
        query_tokens = tokens[attention.axes[1]]
        query_index = max(0, len(query_tokens) - 2)
        query = query_tokens[query_index]
    (rows, columns), weights = attention.matrix(query_index)
    return DrawnMap(line, title, (rows, columns), (list(tokens[rows]), list(tokens[columns])), weights, query)


def draw_map(drawn: DrawnMap, system: str, path: Path) -> None:
    """Draw the weights as shades, with a token at each row and column."""
    rows, columns = drawn.tokens
    figure = new_figure(1.8 + 0.32 * len(columns), 1.5 + 0.28 * len(rows))
    axes = figure.subplots()
    image = axes.imshow(drawn.weights.numpy(), cmap="Greys", vmin=0, aspect="auto")
    axes.set_xticks(range(len(columns)), [plain_label(token) for token in columns], rotation=90)
    axes.set_yticks(range(len(rows)), [plain_label(token) for token in rows])
    axes.set_xlabel(drawn.axes[1])
    axes.set_ylabel(drawn.axes[0])
    query = "" if drawn.query is None else f" of {drawn.query}"
    axes.set_title(plain_label(f"{system}: {drawn.title}{query}"), fontsize="medium")
    figure.colorbar(image)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a script that the font lacks
        save_figure(figure, path)


def write_maps(maps: Sequence[DrawnMap], system: str, folder: Path) -> None:
    """Write a plot and a JSON file with the weights of each map."""
    folder.mkdir(exist_ok=True)
    for drawn in maps:
        name = f"{file_name(system)}-{drawn.line}-{re.sub(r'[^a-z0-9]+', '_', drawn.title.lower())}"
        draw_map(drawn, system, folder / f"{name}.png")
        values = {**vars(drawn), "weights": drawn.weights.tolist()}
        write_text(folder / f"{name}.json", json.dumps(values, ensure_ascii=False) + "\n")
