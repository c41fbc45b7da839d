"""Faults of the pinned fairseq's searches, each shown in its own function and gone with the correction."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import EOS, PAD, batch, pair_sample
from commands_for_tests import USER_DIR, lines_of, run
from fairseq import search, utils
from fairseq.data import (
    Dictionary,
)
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import BaseFairseqModel
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from models_for_tests import small_model
from omegaconf import OmegaConf

from ode_transformer.models.fairseq_corrections import searches
from ode_transformer.support.errors import OptionError

SENTENCES = batch([6, 3, 1, 5])


def hypotheses(sample: dict[str, Any], **options: Any) -> list[list[list[int]]]:
    """Return the words of the hypotheses of a model that repeats itself."""
    model = small_model()
    found = SequenceGenerator([model], model.decoder.dictionary, beam_size=2, **options).generate([model], sample)
    return [[h["tokens"].tolist() for h in of_sentence] for of_sentence in found]


def repeats_a_bigram(words: list[int]) -> bool:
    bigrams = list(zip(words, words[1:], strict=False))
    return len(set(bigrams)) < len(bigrams)


def test_a_repeated_ngram_is_blocked(pinned: Callable[[Any, str], None]) -> None:
    tokens, scores = torch.tensor([[EOS, 7, 8, 7, PAD, PAD]]), torch.zeros(1, 10)
    assert NGramRepeatBlock(2)(tokens, scores, 1, 1, 3).isneginf().nonzero().tolist() == [[0, 8]]
    forced = torch.full((1, 10), -torch.inf)
    forced[0, 8] = 0  # a prefix goes on with it
    assert torch.equal(NGramRepeatBlock(2)(tokens, forced, 1, 1, 3), forced)

    sample = {"net_input": {"src_tokens": SENTENCES}}
    options = {"no_repeat_ngram_size": 2, "max_len_b": 12, "min_len": 12}
    assert not any(repeats_a_bigram(words) for found in hypotheses(sample, **options) for words in found)
    pinned(NGramRepeatBlock, "forward")
    assert not NGramRepeatBlock(2)(tokens, scores, 1, 1, 3).isneginf().any()
    assert all(repeats_a_bigram(found[0]) for found in hypotheses(sample, **options))


def test_diverse_beams_do_not_depend_on_numbers_in_the_data_set(pinned: Callable[[Any, str], None]) -> None:
    def diverse(ids: list[int]) -> list[list[list[int]]]:
        sample = {"id": torch.tensor(ids), "net_input": {"src_tokens": SENTENCES}}
        strategy = search.DiverseBeamSearch(small_model().decoder.dictionary, 2, 5.0)
        return hypotheses(sample, search_strategy=strategy, max_len_b=8)

    found = diverse([3, 9, 5, 40])
    assert found == diverse([0, 1, 2, 3])
    assert all(one[0] != other[0] for one, other in found)  # the groups begin differently
    pinned(search.DiverseBeamSearch, "step")
    with pytest.raises(IndexError):
        diverse([3, 9, 5, 40])


def test_constraints_come_from_lines(pinned: Callable[[Any, str], None], untrained: Any) -> None:
    words = (untrained.parent, "--user-dir", USER_DIR, "--cpu", "--path", untrained, "--beam", 4, "--max-len-b", 9)
    options = ("--source-lang", "en", "--target-lang", "de", "--constraints", "--buffer-size", 3, "--batch-size", 3)
    # Another order within the batch, where the longest sentence is the first.
    lines = "▁The\tde\n▁The ▁child ▁read\tnd\ts\n▁The ▁child\n"
    done = run("interactive", *words, *options, stdin=lines)
    found = {number: fields[1].split() for number, fields in lines_of(done.stdout, "H").items()}
    assert len(found) == 3, done.stderr
    assert "de" in found[0]
    assert {"nd", "s"} <= set(found[1])

    strategy = search.LexicallyConstrainedBeamSearch(small_model().decoder.dictionary, "ordered")
    with pytest.raises(OptionError, match="--constraints: binarised data have none"):
        strategy.init_constraints(None, 2)
    pinned(search.LexicallyConstrainedBeamSearch, "init_constraints")
    with pytest.raises(TypeError):
        strategy.init_constraints(None, 2)


def test_unknown_words_are_replaced_by_aligned_ones(pinned: Callable[[Any, str], None], untrained: Any) -> None:
    words = (untrained.parent, "--user-dir", USER_DIR, "--cpu", "--path", untrained, "--beam", 2, "--max-len-b", 5)
    options = ("--source-lang", "en", "--target-lang", "de", "--unkpen", -100, "--replace-unk")
    done = run("interactive", *words, *options, stdin="▁The ▁child\n")
    assert set(lines_of(done.stdout, "H")[0][1].split()) <= {"▁The", "▁child"}, done.stderr
    refused = run("interactive", *words, *options, "--remove-bpe", stdin="▁The ▁child\n")
    assert refused.stderr.splitlines()[-1].startswith("error: --replace-unk replaces whole words")

    assert utils.replace_unk("a <unk>", "x y", [(0, 0), (1, 1)], {"y": "z"}, "<unk>") == "a z"
    pinned(utils, "replace_unk")
    with pytest.raises(TypeError):
        utils.replace_unk("a <unk>", "x y", [(0, 0), (1, 1)], {"y": "z"}, "<unk>")
    pinned(utils, "load_align_dict")
    with pytest.raises(FileNotFoundError):
        utils.load_align_dict("@@ ")


def test_a_word_can_be_replaced_where_no_alignment_was_asked_for(pinned: Callable[[Any, str], None]) -> None:
    generation = {"replace_unk": "", "print_alignment": None}
    cfg = OmegaConf.create({"generation": generation, "common_eval": {"post_process": None}})
    small_model().prepare_for_inference_(cfg)
    assert cfg.generation.print_alignment == "hard"
    pinned(BaseFairseqModel, "prepare_for_inference_")
    cfg.generation.print_alignment = None
    small_model().prepare_for_inference_(cfg)
    assert cfg.generation.print_alignment is None


def test_a_blank_line_stays_blank(pinned: Callable[[Any, str], None]) -> None:
    model = small_model()
    task = TranslationTask(TranslationConfig(), model.encoder.dictionary, model.decoder.dictionary)
    sample = {"net_input": {"src_tokens": SENTENCES}}  # the third is its end alone

    def found(prefix: list[int] | None = None, constraints: list[int] | None = None) -> list[list[int]]:
        settings, given = GenerationConfig(beam=2, max_len_b=20, constraints=constraints and "ordered"), {}
        if prefix is not None:
            given["prefix_tokens"] = torch.tensor([[7, 8], [7, 8], prefix, [7, 8]])
        if constraints is not None:
            given["constraints"] = torch.tensor([[1, 7, 0], [1, 7, 0], constraints, [1, 7, 0]])
        best = task.inference_step(task.build_generator([model], settings), [model], sample, **given)
        return [hypotheses[0]["tokens"].tolist() for hypotheses in best]

    assert [tokens == [EOS] for tokens in found()] == [False, False, True, False]
    assert found(constraints=[0, 0, 0])[2] == [EOS]
    with_prefix, constrained = found(prefix=[7, 9])[2], found(constraints=[1, 7, 0])[2]
    pinned(FairseqTask, "inference_step")
    assert len(found()[2]) > 1
    assert found(prefix=[7, 9])[2] == with_prefix
    assert with_prefix[:2] == [7, 9]
    assert found(constraints=[1, 7, 0])[2] == constrained
    assert 7 in constrained


def test_a_blank_line_stays_blank_where_a_task_searches_itself() -> None:
    class OwnTask(TranslationTask):
        def inference_step(self, generator: Any, models: Any, sample: dict[str, Any], **options: Any) -> Any:
            return generator.generate(models, sample)

    model = small_model()
    task = OwnTask(TranslationConfig(), model.encoder.dictionary, model.decoder.dictionary)
    generator = task.build_generator([model], GenerationConfig(beam=2, max_len_b=20))

    def blank_output() -> list[int]:
        found = task.inference_step(generator, [model], {"net_input": {"src_tokens": SENTENCES}})
        return found[2][0]["tokens"].tolist()

    assert len(blank_output()) > 1
    assert searches._leave_blank_lines_of_other_tasks_empty(lambda cfg: task, None) is task
    assert blank_output() == [EOS]


def test_the_reference_of_a_blank_line_is_scored() -> None:
    model, sample = small_model(), pair_sample([6, 3, 1, 5], [4, 2, 3, 1])
    task = TranslationTask(TranslationConfig(), model.encoder.dictionary, model.decoder.dictionary)
    generator = task.build_generator([model], GenerationConfig(score_reference=True))
    scored = task.inference_step(generator, [model], sample)[2][0]
    target = sample["target"][2]
    with torch.no_grad():
        scores = model(**sample["net_input"])[0][2].log_softmax(-1).gather(1, target[:, None])[:3, 0]
    assert torch.equal(scored["tokens"], target[:3])
    torch.testing.assert_close(scored["positional_scores"], scores, check_dtype=False)
    torch.testing.assert_close(scored["score"], scores.mean(), check_dtype=False)


def test_lines_of_fairseq_interactive_are_truncated(untrained: Path, pinned: Callable[[Any, str], None]) -> None:
    words = (untrained.parent, "--user-dir", USER_DIR, "--cpu", "--path", untrained, "--beam", 2, "--max-len-b", 5)
    options = ("--source-lang", "en", "--target-lang", "de", "--truncate-source", "--max-source-positions", 4)
    done = run("interactive", *words, *options, stdin="▁The ▁child ▁read ▁The ▁child\n▁The ▁child ▁read\n")
    long, short = lines_of(done.stdout, "D").values()
    assert long == short, done.stderr
    pinned(TranslationTask, "get_interactive_tokens_and_lengths")
    task = TranslationTask(TranslationConfig(truncate_source=True, max_source_positions=4), Dictionary(), Dictionary())
    assert task.get_interactive_tokens_and_lengths(["a b c d e"], str)[1] == [6]
