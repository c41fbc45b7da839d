"""Reformer by fairseq's own commands: train, resume, generate, and pairs of too many cells."""

import json
import math
from pathlib import Path

import pytest
import torch
from commands_for_tests import BATCHES, NO_DROPOUT, USER_DIR, Text, lines_of, parameters, run, succeed, train, training
from fairseq.checkpoint_utils import load_model_ensemble_and_task

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.cli.command import main

pytestmark = pytest.mark.slow

FAST, BASE = "reformer_fast_tiny", "reformer_base_tiny"
LEARNING = (*NO_DROPOUT, "--label-smoothing", 0, "--batch-size", 20, "--lr", 0.01, "--no-epoch-checkpoints")


@pytest.fixture(scope="module")
def learned(text: Text, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Fast, by parts of batches, until the sentences are known; base with RK2 and relative positions for some time."""
    options = {
        FAST: (200, "--max-joint-cells", 900, "--joint-input", "released"),
        BASE: (40, "--encoder-layers", 0, "--decoder-ode-scheme", "rk2", "--ode-coefficients", "gate",
               "--max-relative-positions", 4, "--joint-input", "released"),
    }  # fmt: skip
    made = {}
    for arch, (updates, *more) in options.items():
        directory = tmp_path_factory.mktemp(arch)
        log = ("--log-file", directory / "train.log")
        made[arch] = train(text, directory, arch, updates, *LEARNING, *log, *more)
    return made


def generate(text: Text, path: object, *options: object) -> str:
    common = (
        "--user-dir",
        USER_DIR,
        "--cpu",
        "--batch-size",
        3,
        "--required-batch-size-multiple",
        1,
        "--max-len-b",
        20,
    )
    return succeed("generate", text.data, *common, "--path", path, "--max-len-a", 0, *options)


def losses(log: Path) -> list[float]:
    entries = [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"')]
    return [float(entry["loss"]) for entry in entries if "loss" in entry]


def test_it_learns_the_sentences_by_heart(text: Text, learned: dict[str, Path]) -> None:
    found = losses(learned[FAST].parent / "train.log")
    assert found[0] > 7  # log2 of the 196 pieces is 7.6
    assert found[-1] < 0.5
    output = generate(text, learned[FAST], "--gen-subset", "train", "--beam", 1, "--max-len-b", 200)
    references, translations = lines_of(output, "T"), lines_of(output, "H")
    assert len(references) == 40
    assert sum(translations[number][1] == reference for number, (reference,) in references.items()) >= 38


@pytest.mark.parametrize("arch", [FAST, BASE])
def test_beam_search_reports_the_scores_of_whole_passes(text: Text, learned: dict[str, Path], arch: str) -> None:
    output = generate(text, learned[arch], "--beam", 5, "--print-alignment", "hard")
    (model,), _, task = load_model_ensemble_and_task([str(learned[arch])])
    sources, found, scores = (lines_of(output, kind) for kind in "SHP")
    assert len(found) == 8
    assert len({fields[1] for fields in found.values()}) > 1
    for number, (_, translation) in found.items():
        source, target = (
            task.target_dictionary.encode_line(line, add_if_not_exist=False).long()
            for line in (sources[number][0], translation)
        )
        with torch.no_grad():
            logits = model.eval()(source[None], None, target.roll(1)[None])[0][0]
        expected = logits.log_softmax(-1).gather(1, target[:, None])[:, 0] / math.log(2)
        printed = torch.tensor([float(word) for word in scores[number][0].split()])
        torch.testing.assert_close(printed, expected, atol=1e-4, rtol=0)
    assert len(lines_of(output, "A")) == 8


def test_a_search_without_caches_and_an_ensemble(text: Text, learned: dict[str, Path]) -> None:
    paths = [str(learned[arch]) for arch in (FAST, BASE)]
    models, args, task = load_model_ensemble_and_task(paths)
    task.load_dataset("test")
    dataset = task.dataset("test")
    sample = dataset.collater([dataset[number] for number in range(len(dataset))])
    args.generation.beam, args.generation.max_len_b = 5, 20
    for ensemble in ([models[0]], models):
        found = []
        for cached in (True, False):
            generator = task.build_generator(ensemble, args.generation)
            generator.model.has_incremental = cached
            found.append(task.inference_step(generator, ensemble, sample))
        for ours, others in zip(*found, strict=True):
            assert [h["tokens"].tolist() for h in ours] == [h["tokens"].tolist() for h in others]


def test_a_resumed_training_equals_an_uninterrupted_one_to_the_last_bit(text: Text, tmp_path: Path) -> None:
    options = ("--dropout", 0.2, "--attention-dropout", 0.1, "--activation-dropout", 0.1)
    options = (*options, "--max-joint-cells", 1000, "--checkpoint-activations", "--update-epoch-batch-itr", "True")
    for updates in (BATCHES - 3, BATCHES + 2):
        resumed = train(text, tmp_path / "stopped", FAST, updates, *options)
    straight = train(text, tmp_path / "straight", FAST, BATCHES + 2, *options)
    ours, other = parameters(resumed), parameters(straight)
    assert ours.keys() == other.keys()
    assert all(torch.equal(ours[name], other[name]) for name in ours)


def test_recomputing_changes_no_number(text: Text, tmp_path: Path) -> None:
    kept = train(text, tmp_path / "kept", FAST, 2)
    recomputed = train(text, tmp_path / "recomputed", FAST, 2, "--checkpoint-activations")
    ours, other = parameters(kept), parameters(recomputed)
    assert all(torch.equal(ours[name], other[name]) for name in ours)


def test_pairs_of_too_many_cells(text: Text, tmp_path: Path) -> None:
    """The plain task stops when one comes, ours before the first update, or it trains on the others."""
    limit = ("--max-joint-cells", 150)
    for task, said in (
        ("translation", "a sentence pair has"),
        ("joint_translation", "40 sentence pairs have more cells"),
    ):
        done = run("train", *training(text, tmp_path / task, FAST, BATCHES, *limit, "--task", task))
        assert done.returncode != 0
        last = done.stderr.rstrip().splitlines()[-1]
        assert said in last, done.stderr
        assert "--max-joint-cells" in last
        assert "--joint-cells-overflow skip" in last
        assert not list((tmp_path / task).glob("checkpoint*.pt"))
    flags = (*limit, "--task", "joint_translation", "--joint-cells-overflow", "skip")
    out = succeed("train", *training(text, tmp_path / "skip", FAST, 6, *flags), stderr=-2)
    assert "left out" in out
    # Its checkpoint decodes, pairs of all sizes among them, under its own task and by our command.
    checkpoint = tmp_path / "skip" / "checkpoint_last.pt"
    assert len(lines_of(generate(text, checkpoint, "--task", "joint_translation"), "H")) == 8
    (tmp_path / "lines.en").write_text("▁The ▁dog s .\n\n▁It ▁is\n")
    words = ("translate", text.data, "--path", checkpoint, "--input", tmp_path / "lines.en", "--bpe", "none")
    assert main([*map(str, words), "--output", str(tmp_path / "lines.de"), "--max-len-b", "5"]) == 0
    assert len((tmp_path / "lines.de").read_text().split("\n")) == 4


def test_the_coefficients_of_a_trained_model(
    text: Text, learned: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for arch, expected in ((BASE, "decoder layer 2:  0."), (FAST, "every layer has one stage")):
        assert main(["coefficients", str(text.data), "--path", str(learned[arch])]) == 0
        assert expected in capsys.readouterr().out
