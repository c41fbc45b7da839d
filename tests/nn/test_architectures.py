"""Architectures by their names."""

import re

import pytest

from ode_transformer.nn import LanguageModel, Transformer


@pytest.mark.parametrize(
    ("model", "name", "similar"),
    [
        (Transformer, "ode_transformer_rk2_wmt_ende", "translation; similar names are ode_transformer_rk2_wmt_en_de, "),
        (LanguageModel, "ode_transformer_rk4", "language_modeling; similar names are ode_transformer_lm_rk4"),
    ],
)
def test_an_unknown_name_is_refused_with_similar_ones(model: type, name: str, similar: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name}: no architecture for {similar}")):
        model.named(name, vocabulary=100)
