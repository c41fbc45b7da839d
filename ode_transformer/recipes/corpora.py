"""The kinds of corpora that a recipe can name.

A kind is a checked part of the recipe with

    kind            its name
    languages       suffixes of the two sides' files; (None) for plain text
    sources         names of the raw files, in ``configs/sources.yaml``
    build(files, output, workers) -> {split: lines}    makes the folder with the splits, whole or not at all
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ode_transformer.recipes.parallel_corpus import ParallelCorpus

Corpus = Annotated[ParallelCorpus, Field(discriminator="kind")]
