"""Kinds of corpus that a recipe can name; each is a subclass of ``corpus.CorpusKind``."""

from typing import Annotated

from pydantic import Field

from ode_transformer.lab.corpora.catalogue_corpus import CatalogueCorpus
from ode_transformer.lab.corpora.gec_corpus import GecCorpus, M2Corpus
from ode_transformer.lab.corpora.parallel_corpus import ParallelCorpus
from ode_transformer.lab.corpora.summarisation_corpus import SummarisationCorpus
from ode_transformer.lab.corpora.text_corpora import DocumentCorpus, PennTreebankCorpus, PlainTextCorpus
from ode_transformer.lab.corpora.wheel_corpus import PronunciationCorpus

Corpus = Annotated[
    ParallelCorpus
    | PlainTextCorpus
    | M2Corpus
    | SummarisationCorpus
    | GecCorpus
    | PennTreebankCorpus
    | CatalogueCorpus
    | PronunciationCorpus
    | DocumentCorpus,
    Field(discriminator="kind"),
]
