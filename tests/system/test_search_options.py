"""Each search option of fairseq that a recipe or a page uses does what it says, with our models."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import EOS, batch
from commands_for_tests import USER_DIR, lines_of, succeed
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from models_for_tests import small_model
from plain_models import binarise

SOURCES, WORDS = batch([6, 3, 2, 5]), 8
model_of = cache(lambda arch: small_model(arch=arch))
OURS, LANGUAGE_MODEL = "ode_transformer_euler", "ode_transformer_lm_rk2"


def hypotheses(**options: Any) -> list[list[dict[str, torch.Tensor]]]:
    """Return what fairseq-generate finds for the sources with its options."""
    model, language_model = model_of(OURS), model_of(LANGUAGE_MODEL)
    task = TranslationTask(TranslationConfig(), model.encoder.dictionary, model.decoder.dictionary)
    settings = GenerationConfig(**{"max_len_b": WORDS, "beam": 3} | options)
    extra = {"lm_model": language_model, "lm_weight": settings.lm_weight} if "lm_weight" in options else {}
    torch.manual_seed(1)
    generator = task.build_generator([model], settings, extra_gen_cls_kwargs=extra)
    net_input = {"src_tokens": SOURCES, "src_lengths": SOURCES.ne(1).sum(1)}
    return task.inference_step(generator, [model], {"net_input": net_input})


@torch.no_grad()
def log_probabilities(source: torch.Tensor, tokens: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return what the words of a hypothesis are scored by, from a whole pass."""
    model, source, before = model_of(OURS), source[None, source.ne(1)], tokens.roll(1)[None]
    logits = model(source, torch.tensor([source.size(1)]), before)[0] / options.get("temperature", 1)
    scores = logits.log_softmax(-1)
    scores[..., Dictionary().unk()] -= options.get("unkpen", 0)
    if weight := options.get("lm_weight"):
        scores += weight * model_of(LANGUAGE_MODEL)(before)[0].log_softmax(-1)
    return scores[0].gather(1, tokens[:, None])[:, 0].float()


@pytest.mark.parametrize(
    "options",
    [
        {"lenpen": 0.6, "beam": 5},
        {"lenpen": 2.0},
        {"unnormalized": True},
        {"temperature": 0.5},
        {"unkpen": -2.0},
        {"lm_weight": 0.7},
        {"sampling": True, "sampling_topk": 4, "temperature": 0.8},
        {"min_len": 5},
        {"max_len_a": 0.5, "max_len_b": 2},
    ],
    ids=str,
)
def test_scores_and_lengths(options: dict[str, Any]) -> None:
    for source, found in zip(SOURCES, hypotheses(**options), strict=True):
        assert len(found) == options.get("beam", 3)
        for hypothesis in found:
            tokens, scores = hypothesis["tokens"], hypothesis["positional_scores"]
            torch.testing.assert_close(scores, log_probabilities(source, tokens, **options), atol=1e-4, rtol=1e-4)
            length = 1 if options.get("unnormalized") else len(tokens) ** options.get("lenpen", 1)
            torch.testing.assert_close(hypothesis["score"], scores.sum() / length)
            longest = int(options.get("max_len_a", 0) * SOURCES.size(1)) + options.get("max_len_b", WORDS)
            assert options.get("min_len", 1) <= len(tokens) - 1 <= longest
            assert tokens.eq(EOS).nonzero().tolist() == [[len(tokens) - 1]]


def test_unknown_words_are_penalised_and_one_word_is_sampled_from_one() -> None:
    tokens = [[h["tokens"].tolist() for h in found] for found in hypotheses(beam=1)]
    sampled = hypotheses(beam=1, sampling=True, sampling_topk=1)
    assert [[h["tokens"].tolist() for h in found] for found in sampled] == tokens
    unknown = Dictionary().unk()
    assert all(unknown in h["tokens"] for found in hypotheses(unkpen=-100.0) for h in found[:1])
    assert not any(unknown in h["tokens"] for found in hypotheses(unkpen=100.0) for h in found)


def test_the_best_hypotheses_begin_with_a_prefix(untrained: Path, tmp_path: Path) -> None:
    for file in untrained.parent.glob("*"):
        (tmp_path / file.name).symlink_to(file)
    first, second, third = (tmp_path / "dict.de.txt").read_text(encoding="utf-8").split()[:6:2]
    binarise(tmp_path, "test", [("▁The ▁child", f"{first} {second} {third}"), ("▁It", f"{third} {first}")])
    options = ("--prefix-size", 2, "--nbest", 2, "--beam", 3, "--max-len-b", 9, "--path", untrained, "--cpu")
    log = succeed("generate", tmp_path, "--user-dir", USER_DIR, *options)
    references = {number: words for number, (words,) in lines_of(log, "T").items()}
    found = [line.split("\t") for line in log.splitlines() if line.startswith("H-")]
    assert sorted(number for number, *_ in found) == ["H-0", "H-0", "H-1", "H-1"]
    for number, _, words in found:
        assert words.split()[:2] == references[int(number[2:])].split()[:2]
    assert all(float(best[1]) >= float(second[1]) for best, second in (found[:2], found[2:]))
