"""Faults of the pinned fairseq, each shown in fairseq's own function and gone with the correction."""

import itertools
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fairseq
import numpy as np
import pytest
import torch
from commands_for_tests import USER_DIR, Text, lines_of, run, train, training
from fairseq import checkpoint_utils, options, search, utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import (
    Dictionary,
    LanguagePairDataset,
    TokenBlockDataset,
    bucket_pad_length_dataset,
    data_utils,
    iterators,
)
from fairseq.dataclass import utils as dataclass_utils
from fairseq.dataclass.configs import CheckpointConfig, EMAConfig, GenerationConfig
from fairseq.file_io import PathManager
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.models.ema.ema import EMA
from fairseq.nan_detector import NanDetector
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler
from fairseq.options import get_generation_parser, get_training_parser, parse_args_and_arch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer
from models_for_tests import EOS, PAD, batch, pair_sample, small_model
from omegaconf import OmegaConf

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.cli.command import main
from ode_transformer.models import fairseq_corrections
from ode_transformer.models.trained_model import load_trained_model
from ode_transformer.support.errors import OptionError, UserError

SENTENCES = batch([6, 3, 1, 5])


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], None]:
    """Put fairseq's own function back in the place of its correction."""
    return lambda owner, name: monkeypatch.setattr(owner, name, getattr(owner, name).__wrapped__)


def test_corrections_are_written_for_the_pinned_fairseq() -> None:
    assert fairseq_corrections.VERSION == fairseq.__version__ == version("ve-fairseq")
    assert not fairseq_corrections._MISSING


def test_another_fairseq_is_named_in_one_line() -> None:
    code = (
        "import fairseq; from fairseq.nan_detector import NanDetector; from fairseq.trainer import Trainer\n"
        "fairseq.__version__ = '0.13.0'; del Trainer.train_step, NanDetector.__exit__\n"
        "import ode_transformer.models"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(USER_DIR).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "0.13.0" in line]
    assert line.endswith(
        "fairseq 0.13.0: its faults are corrected as those of 0.12.3, the tested version; "
        "not found, so not corrected: Trainer.train_step, NanDetector.__exit__"
    )


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


def test_a_dictionary_with_two_lines_swapped_is_refused(text: Text, tmp_path: Path) -> None:
    checkpoint = train(text, tmp_path, "ode_transformer_rk2_tiny", 1)
    data = Path(shutil.copytree(text.data, tmp_path / "data"))
    lines = (data / "dict.de.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (data / "dict.de.txt").write_text("".join([lines[1], lines[0], *lines[2:]]), encoding="utf-8")
    message = f"the model was trained with another target dictionary than that of {data}"
    words = ("--user-dir", USER_DIR, "--cpu", "--path", checkpoint, "--gen-subset", "valid")
    assert run("generate", data, *words).stderr.splitlines()[-1] == f"error: {message}"
    with pytest.raises(UserError, match=f"checkpoint_last.pt: {message}"):
        load_trained_model(checkpoint, data)
    load_trained_model(checkpoint, text.data)
    assert load_checkpoint(checkpoint)["task_state"]["languages"] == {"source_lang": "en", "target_lang": "de"}
    shutil.copy(checkpoint, data.parent / "model.pt")
    for language in ("en", "de"):
        shutil.copy(text.data / f"dict.{language}.txt", data.parent)
    load_trained_model(data.parent / "model.pt", data.parent)  # where no other file's name tells the languages


def test_a_task_remembers_its_dictionaries(pinned: Callable[[Any, str], None]) -> None:
    def task(*words: str) -> TranslationTask:
        source = Dictionary()
        for word in words:
            source.add_symbol(word)
        return TranslationTask(TranslationConfig(data="data"), source, Dictionary())

    state = task("a", "b").state_dict()
    task("a", "b").load_state_dict(state)
    with pytest.raises(OptionError, match="trained with another source dictionary than that of data"):
        task("b", "a").load_state_dict(state)
    pinned(FairseqTask, "load_state_dict")
    task("b", "a").load_state_dict(state)
    pinned(FairseqTask, "state_dict")
    assert not {"dictionaries", "languages"} & task("a", "b").state_dict().keys()


@pytest.mark.parametrize("command", ["generate", "interactive", "validate", "translate"])
def test_languages_in_the_other_direction_are_refused(command: str, untrained: Path, capsys) -> None:
    """With a joint dictionary, whose words are those of both directions."""
    folder, languages = untrained.parent, ("--source-lang", "de", "--target-lang", "en")
    if command == "translate":
        assert main(["translate", "--path", str(untrained), "--input", __file__, *languages]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
    else:
        words = (
            "--user-dir",
            USER_DIR,
            "--cpu",
            "--path",
            untrained,
            "--task",
            "translation",
            "--batch-size",
            1,
            *languages,
        )
        done = run(command, folder, *words, stdin="a\n")
        assert done.returncode != 0
        line = done.stderr.splitlines()[-1]
    message = "error: --source-lang de --target-lang en: the model translates en to de"
    assert line.replace(f"{untrained}: ", "").endswith(message)


def pairs(number: int = 30, **options: Any) -> LanguagePairDataset:
    """Sentence pairs of several lengths."""
    dictionary = Dictionary()
    sentences = [torch.tensor([4] * (1 + index % 4) + [EOS]) for index in range(number)]
    sizes = np.array([len(sentence) for sentence in sentences])
    return LanguagePairDataset(sentences, sizes, dictionary, sentences, sizes, dictionary, **options)


def batches_of_epochs(*stops: int) -> list[list[list[int]]]:
    """Return the batches of four epochs of a training that is stopped after some of its batches and resumed."""
    state, seen = {"epoch": 1}, [[] for _ in range(4)]
    for stop in (*stops, 4 * 10):
        task = TranslationTask(TranslationConfig(), Dictionary(), Dictionary())
        iterator = task.get_batch_iterator(dataset=pairs(), max_sentences=3, epoch=state["epoch"])
        iterator.load_state_dict(state)
        while iterator.next_epoch_idx <= 4 and sum(map(len, seen)) < stop:
            for sample in iterator.next_epoch_itr():
                seen[iterator.epoch - 1].append(sample["id"].tolist())
                if sum(map(len, seen)) == stop:
                    break
        state = iterator.state_dict()
    return seen


def test_a_resumed_training_goes_on_with_the_batches_of_its_start(pinned: Callable[[Any, str], None]) -> None:
    whole = batches_of_epochs()
    assert batches_of_epochs(5, 20, 27) == whole
    assert all(sorted(sum(epoch, [])) == list(range(30)) for epoch in whole)
    pinned(FairseqTask, "get_batch_iterator")
    assert batches_of_epochs() == whole
    resumed = batches_of_epochs(27)
    assert resumed[2] != whole[2]
    assert sorted(sum(resumed[2], [])) != list(range(30))  # some sentences twice, others never


def epoch_of(state: dict[str, Any] | None, stop: int | None, size: int, shard: int = 0, shards: int = 1) -> Any:
    """Return the sentences of an epoch's next batches, a list for each, and where the epoch was left."""
    task = TranslationTask(TranslationConfig(), Dictionary(), Dictionary())
    dataset = pairs()
    iterator = task.get_batch_iterator(dataset=dataset, max_sentences=size, shard_id=shard, num_shards=shards)
    if state is not None:
        iterator.load_state_dict(state)
    batches = itertools.islice(iterator.next_epoch_itr(), stop)
    return [sample["id"].tolist() for sample in batches if sample], iterator.state_dict()


def test_an_epoch_goes_on_after_the_same_share_of_other_batches(pinned: Callable[[Any, str], None]) -> None:
    read, state = epoch_of(None, 6, 3)
    assert state["iterations_in_epoch"] == 6
    for size, remaining in ((3, 4), (6, 2), (4, 4), (1, 12)):
        assert len(epoch_of(state, None, size)[0]) == remaining
    old = {name: value for name, value in state.items() if name not in ("batches", "processes")}
    assert len(epoch_of(old, None, 3)[0]) == 4
    assert len(epoch_of(old, None, 6)[0]) == 1

    # Another number of processes reads what the others have not.
    halves = [epoch_of(state, None, 3, shard, 2)[0] for shard in (0, 1)]
    assert sorted(sum(sum(halves, read), [])) == list(range(30))
    pinned(iterators.EpochBatchIterator, "load_state_dict")
    with pytest.raises(RuntimeError, match="report this"):
        epoch_of(state, None, 6)
    assert len(epoch_of(state, None, 4)[0]) == 2
    pinned(iterators.EpochBatchIterator, "state_dict")
    assert not {"batches", "processes"} & epoch_of(None, 6, 3)[1].keys()


def test_all_that_is_left_of_an_epoch_is_grouped(pinned: Callable[[Any, str], None]) -> None:
    def groups(read: int, size: int, skip: bool = False) -> list[list[int]]:
        batches = iterators.CountingIterator(range(10)).skip(read)
        found = list(iterators.GroupedIterator(batches, size, skip))
        assert not batches.has_next()  # the epoch has ended
        return found

    assert groups(0, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert groups(4, 4) == [[4, 5, 6, 7], [8, 9]]
    assert groups(3, 4) == [[3, 4, 5, 6], [7, 8, 9]]
    assert groups(9, 4) == [[9]]
    assert groups(1, 3) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert groups(0, 4, skip=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups(1, 4, skip=True) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert groups(7, 4, skip=True) == [[7, 8, 9]]
    pinned(iterators.GroupedIterator, "__init__")
    assert groups(1, 3) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    with pytest.raises(AssertionError):
        groups(9, 4)  # none


def test_a_folder_may_have_a_colon(pinned: Callable[[Any, str], None], tmp_path: Path) -> None:
    folder, several = tmp_path / "10:30", f"{tmp_path}/one:{tmp_path}/two"
    folder.mkdir()
    task = TranslationTask(TranslationConfig(data=str(folder)), Dictionary(), Dictionary())
    assert utils.split_paths(str(folder)) == [str(folder)]
    assert not task.has_sharded_data("train")
    assert len(utils.split_paths(several)) == 2
    pinned(FairseqTask, "has_sharded_data")
    assert task.has_sharded_data("train")
    pinned(utils, "split_paths")
    assert len(utils.split_paths(str(folder))) == 2


@pytest.mark.parametrize(
    ("get_parser", "words"),
    [
        (get_training_parser, "a'b --arch ode_transformer_rk2 --lr 1,1e-9 --optimizer fused_adam --bpe sentencepiece"),
        (get_training_parser, "a --task language_modeling --arch ode_transformer_lm_rk2 --criterion adaptive_loss"),
        (get_training_parser, "a --task masked_lm --arch ode_bert_base --criterion masked_lm --ddp-backend no_c10d"),
        (get_generation_parser, "a --path a:b --task translation -s en -t de --tokenizer moses --lenpen 2"),
    ],
)
def test_groups_of_options_are_those_that_hydra_composes(
    pinned: Callable[[Any, str], None], get_parser: Callable[[], Any], words: str
) -> None:
    args = parse_args_and_arch(get_parser(), words.split())
    groups = str(dataclass_utils.convert_namespace_to_omegaconf(args))
    for name in ("override_module_args", "initialize", "compose"):
        pinned(dataclass_utils, name)
    composed = str(dataclass_utils.convert_namespace_to_omegaconf(args))
    if get_parser is get_generation_parser:  # without --sentence-avg: the text of a reference is true
        composed = composed.replace("'sentence_avg': True", "'sentence_avg': False")
    assert groups == composed


def test_the_last_batch_is_kept(pinned: Callable[[Any, str], None]) -> None:
    options = {"max_sentences": 8, "required_batch_size_multiple": 8}
    assert np.concatenate(pairs().batch_by_size(np.arange(30), **options)).tolist() == list(range(30))
    pinned(data_utils, "batch_by_size")
    assert sum(map(len, pairs().batch_by_size(np.arange(30), **options))) == 24


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
    assert fairseq_corrections._leave_blank_lines_of_other_tasks_empty(lambda cfg: task, None) is task
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


def test_another_dictionary_is_named() -> None:
    def load(trainer: Any, path: str) -> None:
        """Fail as fairseq's own function does."""
        try:
            torch.nn.ModuleDict({"embed_tokens": torch.nn.Embedding(3, 2)}).load_state_dict(
                {"embed_tokens.weight": torch.zeros(5, 2)}
            )
        except RuntimeError:
            raise Exception("ensure that the architectures match")  # noqa: B904

    trainer = Namespace(cfg=Namespace(checkpoint=Namespace()))
    with pytest.raises(OptionError, match="model.pt: its dictionary has 5 words, that of the data 3: binarise"):
        fairseq_corrections._read_checkpoint_in_each_process(load, trainer, "model.pt")
    assert trainer.cfg.checkpoint.load_checkpoint_on_all_dp_ranks


def test_a_checkpoint_of_another_architecture_is_refused_in_one_line(learned: Path, text: Text, tmp_path: Path) -> None:
    shutil.copy(learned, tmp_path / "checkpoint_last.pt")
    for arch, message in (
        ("macaron_tiny", "a model of --arch ode_transformer_rk2_tiny, not macaron_tiny"),
        ("ode_transformer_rk2_tiny", "a model of other options"),
    ):
        done = run("train", *training(text, tmp_path, arch, 50, "--encoder-layers", 3))
        assert done.returncode != 0
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert line.startswith(f"error: {tmp_path}/checkpoint_last.pt: {message} ("), done.stderr
        assert "Traceback" not in done.stderr


def test_validation_takes_the_task_of_the_checkpoint(learned: Path, text: Text) -> None:
    words = (text.data, "--user-dir", USER_DIR, "--path", learned, "--batch-size", 8, "--cpu", "--num-workers", 0)
    done = run("validate", *words, "--log-format", "json", stderr=subprocess.STDOUT)
    assert '"valid_loss"' in done.stdout, done.stdout


def test_validation_needs_no_task(pinned: Callable[[Any, str], None]) -> None:
    words = ["data", "--path", "model.pt"]
    assert options.parse_args_and_arch(options.get_validation_parser(), words).task == "translation"
    pinned(options, "parse_args_and_arch")
    with pytest.raises(KeyError):
        options.parse_args_and_arch(options.get_validation_parser(), words)


def test_bfloat16_needs_no_tpu(pinned: Callable[[Any, str], None]) -> None:
    words = ["data", "--arch", "transformer", "--memory-efficient-bf16"]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    assert (args.bf16, args.tpu) == (True, False)
    pinned(options, "parse_args_and_arch")
    assert options.parse_args_and_arch(options.get_training_parser(), words).tpu


def test_an_update_at_the_end_of_an_epoch_is_saved(pinned: Callable[[Any, str], None], tmp_path: Path) -> None:
    iterator = Namespace(epoch=1, end_of_epoch=lambda: True, state_dict=dict)
    trainer = Mock(data_parallel_rank=0, checkpoint_suffix="", task=Namespace())
    trainer.get_num_updates.return_value = 4
    trainer.save_checkpoint = lambda path, state: Path(path).write_text("")

    def saved(folder: str) -> list[str]:
        cfg = CheckpointConfig(save_dir=str(tmp_path / folder), save_interval_updates=2)
        checkpoint_utils.save_checkpoint(OmegaConf.structured(cfg), trainer, iterator, None)
        return sorted(path.name for path in (tmp_path / folder).iterdir())

    assert saved("ours") == ["checkpoint1.pt", "checkpoint_1_4.pt", "checkpoint_last.pt"]
    pinned(checkpoint_utils, "save_checkpoint")
    assert saved("fairseq") == ["checkpoint1.pt", "checkpoint_last.pt"]


def test_lines_of_fairseq_interactive_are_truncated(untrained: Path, pinned: Callable[[Any, str], None]) -> None:
    words = (untrained.parent, "--user-dir", USER_DIR, "--cpu", "--path", untrained, "--beam", 2, "--max-len-b", 5)
    options = ("--source-lang", "en", "--target-lang", "de", "--truncate-source", "--max-source-positions", 4)
    done = run("interactive", *words, *options, stdin="▁The ▁child ▁read ▁The ▁child\n▁The ▁child ▁read\n")
    long, short = lines_of(done.stdout, "D").values()
    assert long == short, done.stderr
    pinned(TranslationTask, "get_interactive_tokens_and_lengths")
    task = TranslationTask(TranslationConfig(truncate_source=True, max_source_positions=4), Dictionary(), Dictionary())
    assert task.get_interactive_tokens_and_lengths(["a b c d e"], str)[1] == [6]


def test_names_of_symbols_in_a_text_are_unknown_words(pinned: Callable[[Any, str], None]) -> None:
    words = Dictionary()
    word, unknown = words.add_symbol("a"), words.unk()
    line = "<pad> a </s> <unk> a<pad> <s>"
    expected = [unknown, word, unknown, unknown, unknown, unknown, EOS]
    assert words.encode_line(line, add_if_not_exist=False).tolist() == expected
    with_symbols = [words.bos(), word, EOS]  # as RoBERTa's interface writes them
    assert words.encode_line("<s> a </s>", append_eos=False).tolist() == with_symbols
    pinned(Dictionary, "encode_line")
    assert words.encode_line(line, add_if_not_exist=False).tolist()[:3] == [PAD, word, EOS]


def test_losses_that_are_no_numbers_end_in_one_line(pinned: Callable[[Any, str], None], tmp_path: Path) -> None:
    cfg = Namespace(checkpoint=Namespace(save_dir=str(tmp_path)))
    failing = Mock(side_effect=FloatingPointError("gradients are Nan/Inf"))
    trainer = Namespace(cfg=cfg, get_num_updates=lambda: 4, _set_seed=failing)
    with pytest.raises(OptionError, match="update 5: gradients are Nan/Inf; .*crash_batch.txt.*--lr"):
        Trainer.train_step(trainer, [{"id": torch.tensor([7, 3])}, {}])  # no batch is left for the second update
    assert (tmp_path / "crash_batch.txt").read_text() == "7\n3\n"
    for _ in range(2):  # the late reading of norms is around it
        pinned(Trainer, "train_step")
    with pytest.raises(FloatingPointError):
        Trainer.train_step(trainer, [{"id": torch.tensor([7, 3])}])


def test_the_loss_scale_grows_as_if_training_had_not_stopped() -> None:
    def scales(*stops: int, is_counted: bool = True) -> list[float]:
        saved, found = None, [1.0]
        for stop in (*stops, 9):
            scaler = DynamicLossScaler(found[-1], scale_window=3)  # fairseq saves the scale itself
            trainer = Namespace(optimizer=Namespace(scaler=scaler), lr_scheduler=None)
            fairseq_corrections._resume_counters(Mock(return_value=saved), trainer, "checkpoint_last.pt")
            while len(found) < stop:
                scaler.update()
                found.append(scaler.loss_scale)
            state = fairseq_corrections._save_counters(lambda _: {"extra_state": {"train_iterator": {}}}, trainer)
            saved = state["extra_state"] if is_counted else {"train_iterator": {}}  # as fairseq's own
        return found

    assert scales(5, 8) == scales() == [1, 1, 1, 2, 2, 2, 4, 4, 4]
    assert scales(5, 8, is_counted=False) != scales()


def test_a_batch_is_looked_at_for_numbers(pinned: Callable[[Any, str], None], caplog: pytest.LogCaptureFixture) -> None:
    """Backward, PyTorch looks for a tensor in what each module returns, such as a dictionary of lists."""
    caplog.set_level("INFO")
    model = small_model().train()
    torch.nn.init.constant_(model.encoder.layers[0].self_attn.layer_norm.bias, torch.nan)

    def look() -> None:
        with NanDetector(model):
            model(SENTENCES, None, SENTENCES)[0].sum().backward()

    look()
    assert "NaN detected in output of encoder.layers.0" in caplog.text
    assert "gradients: {" not in caplog.text
    pinned(NanDetector, "__exit__")
    look()
    assert "gradients: {" in caplog.text
    pinned(NanDetector, "__init__")
    with pytest.raises((StopIteration, TypeError)):
        look()


def test_a_killed_copy_leaves_the_checkpoint_before(
    pinned: Callable[[Any, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_half(source: str, target: str) -> None:
        Path(target).write_text(Path(source).read_text()[:1])
        raise KeyboardInterrupt

    epoch, last = str(tmp_path / "checkpoint2.pt"), str(tmp_path / "checkpoint_last.pt")
    Path(epoch).write_text("new")
    assert PathManager.copy(epoch, last, overwrite=True)
    assert Path(last).read_text() == "new"
    Path(last).write_text("old")
    monkeypatch.setattr(shutil, "copyfile", copy_half)
    with pytest.raises(KeyboardInterrupt):
        PathManager.copy(epoch, last, overwrite=True)
    assert Path(last).read_text() == "old"
    pinned(PathManager, "copy")
    with pytest.raises(KeyboardInterrupt):
        PathManager.copy(epoch, last, overwrite=True)
    assert Path(last).read_text() == "n"


def test_length_buckets_with_numpy_2(pinned: Callable[[Any, str], None]) -> None:
    buckets = pairs(num_buckets=2)
    assert sorted({len(buckets[number]["source"]) for number in range(30)}) == [3, 5]
    assert len(TokenBlockDataset([torch.tensor([4, EOS])] * 3, [2] * 3, None, PAD, EOS, break_mode="eos")) == 3
    pinned(bucket_pad_length_dataset, "get_buckets")
    with pytest.raises(TypeError, match="interpolation"):
        pairs(num_buckets=2)


def test_without_the_name_that_numpy_2_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "compat")
    with pytest.raises(AttributeError, match="compat"):
        pairs(num_buckets=2)


def test_a_matrix_of_two_names_is_averaged_once(pinned: Callable[[Any, str], None]) -> None:
    def average() -> float:
        layers = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False)] * 2)
        torch.nn.init.zeros_(layers[0].weight)
        ema = EMA(layers, EMAConfig(store_ema=True, ema_decay=0.9))
        torch.nn.init.ones_(layers[0].weight)
        ema.step(layers)
        return float(ema.model[1].weight.detach())

    def averages(fp32: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).half()
        ema = EMA(layers, EMAConfig(store_ema=True, ema_decay=0.9, ema_fp32=fp32))
        for _ in range(3):
            torch.nn.init.normal_(layers[0].weight)
            ema.step(layers)
        return [*ema.model.parameters(), *ema.fp32_params.values()]

    ours = average(), averages(False), averages(True)
    pinned(EMA, "_step_internal")
    assert ours[0] == pytest.approx(0.1)
    assert average() == pytest.approx(0.19)
    for own, fp32 in zip(ours[1:], (False, True), strict=True):
        torch.testing.assert_close(own, averages(fp32), rtol=0, atol=1e-3)


def test_batches_are_not_loaded_while_python_ends(pinned: Callable[[Any, str], None]) -> None:
    def outlives() -> bool:
        batches = iterators.BufferedIterator(2, range(100))
        next(batches)
        fairseq_corrections._stop_loaders()
        return batches._consumer.is_alive()

    assert not outlives()
    pinned(iterators.BufferedIterator, "_create_consumer")
    assert outlives()


def test_numbers_of_metrics_are_written_as_plain_ones(tmp_path: Path) -> None:
    """Best by Pearson's correlation, and the n-grams of --eval-bleu."""
    state = {"model": {}, "extra_state": {"best": np.float64(63.5), "metrics": [("_bleu_counts", np.array([3, 1]))]}}
    save = checkpoint_utils.torch_persistent_save
    for function, name in ((save, "ours.pt"), (save.__wrapped__, "fairseq.pt")):
        function(state, str(tmp_path / name))
        read = load_checkpoint(tmp_path / name)["extra_state"]
        assert read == {"best": 63.5, "metrics": [("_bleu_counts", [3, 1])]}
        assert type(read["best"]) is float
    torch.load(tmp_path / "ours.pt", weights_only=True)
    assert b"numpy" not in (tmp_path / "ours.pt").read_bytes()
    assert b"numpy" in (tmp_path / "fairseq.pt").read_bytes()
    save.__wrapped__({"model": {}, "extra_state": np.array([None])}, str(tmp_path / "objects.pt"))
    with pytest.raises(UserError, match="refused: it holds O8 of NumPy"):
        load_checkpoint(tmp_path / "objects.pt")


def test_bleu_is_logged_where_no_output_has_a_word(pinned: Callable[[Any, str], None]) -> None:
    task = TranslationTask(TranslationConfig(eval_bleu=True), Dictionary(), Dictionary())

    def log(words: int) -> dict[str, int]:
        counts = {f"_bleu_{name}_{order}": words for name in ("counts", "totals") for order in range(4)}
        sizes = {"loss": 1, "ntokens": 4, "sample_size": 1, "nsentences": 1}
        return sizes | counts | {"_bleu_sys_len": words, "_bleu_ref_len": 4}

    def bleu(*validations: int) -> float | None:
        with metrics.aggregate(new_root=True) as logged:
            for words in validations:
                task.reduce_metrics([log(words)], CrossEntropyCriterion(task, False))
        return logged.get_smoothed_values().get("bleu")

    assert bleu(0) == 0
    assert bleu(0, 4) == bleu(4, 0) == 36.79  # as short as its half: exp(1 - 2)
    pinned(TranslationTask, "reduce_metrics")
    assert bleu(0) is None
    assert bleu(0, 4) == 100
