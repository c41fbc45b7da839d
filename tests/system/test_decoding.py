"""Searches of trained models: with and without caches, by fairseq-interactive and from Python."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands_for_tests import PAIRS, USER_DIR, Text, lines_of, succeed
from fairseq.checkpoint_utils import load_model_ensemble_and_task

from ode_transformer.models import ODETransformerModel

pytestmark = pytest.mark.slow


def test_beam_search_of_two_models_finds_what_a_search_without_caches_finds(
    text: Text, learned: Callable[[str], Path]
) -> None:
    paths = [str(learned(name)) for name in ("rk2", "reformer_fast")]
    models, args, task = load_model_ensemble_and_task(paths, {"data": str(text.data)})
    task.load_dataset("test")
    dataset = task.dataset("test")
    sample = dataset.collater([dataset[number] for number in range(len(dataset))])
    args.generation.beam, args.generation.max_len_b = 5, 20
    found = []
    for cached in (True, False):
        generator = task.build_generator(models, args.generation)
        generator.model.has_incremental = cached
        found.append(task.inference_step(generator, models, sample))
    for ours, others in zip(*found, strict=True):
        assert [h["tokens"].tolist() for h in ours] == [h["tokens"].tolist() for h in others]
        torch.testing.assert_close([h["score"] for h in ours], [h["score"] for h in others], atol=1e-4, rtol=0)


TYPED = (PAIRS[0][0], "", "The dog reads a book in Zürich ☃.", PAIRS[3][0])


def test_what_is_typed_is_translated_line_by_line_here_and_from_python(
    text: Text, learned: Callable[[str], Path]
) -> None:
    common = ("--user-dir", USER_DIR, "--cpu", "--path", learned("rk2"))
    common += ("--beam", 5, "--max-len-a", 0, "--max-len-b", 20)
    pieces = ("--bpe", "sentencepiece", "--sentencepiece-model", text.pieces)
    lines = "".join(f"{line}\n" for line in TYPED)
    output = succeed("interactive", text.data, *common, *pieces, stdin=lines)
    translations = [fields[1] for _, fields in sorted(lines_of(output, "D").items())]
    assert len(lines_of(output, "H")) == len(translations) == len(TYPED)
    options = {"data_name_or_path": str(text.data), "bpe": "sentencepiece", "sentencepiece_model": str(text.pieces)}
    model = ODETransformerModel.from_pretrained(str(learned("rk2").parent), "checkpoint_last.pt", **options)
    assert model.translate(list(TYPED), max_len_b=20) == translations
    assert model.translate(TYPED[0], max_len_b=20) == translations[0]
