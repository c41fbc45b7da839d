"""Folders of runs for reports, made without any training."""

import json
import shlex
import shutil
from pathlib import Path

import sentencepiece
from plain_models import PAIRS, binarise, make_plain_language_model, make_plain_model

HOSTILE = "<script>document.title='taken over'</script><img src=x onerror=alert(1)>&amp;"
SENTENCES = 6
TITLES = ["BLEU", "sacreBLEU", "chrF2"]  # as many scores as recipes of translation have


def log_lines(updates: int, offset: float) -> str:
    """Return a training log with reports at every 10th update, by layer, and two validations."""
    lines = ["2026-01-01 | INFO | fairseq_cli.train | training on 1 devices (GPUs/TPUs)\n"]
    for at in range(10, updates + 1, 10):
        loss = 8 - at / 40 + offset
        numbers = {"epoch": 1, "update": at / 100, "loss": loss, "nll_loss": loss, "num_updates": at, "wall": at * 3}
        numbers |= {"gnorm": 1 + offset, "wps": 900 + at, "wpb": 400, "lr": at / 1e4}
        numbers |= {f"depth/encoder/{layer}/weight_{stage}": 0.5 for layer in (1, 2) for stage in (1, 2)}
        numbers |= {f"depth/{stack}/1/gradient_norm": 0.1 * at for stack in ("encoder", "decoder")}
        lines.append(f"2026-01-01 | INFO | train_inner | {json.dumps(numbers)}\n")
        if at % 20 == 0:
            sample = {"source": "A dog sleeps.", "reference": "Ein Hund schläft.", "output": f"{HOSTILE} {at}"}
            logged = json.dumps({"updates": at, "samples": [sample]})
            lines.append(f"2026-01-01 | INFO | ode_transformer.models.sample_log | {logged}\n")
            numbers = {"epoch": 1, "valid_loss": loss, "valid_nll_loss": loss, "valid_num_updates": at}
            lines.append(f"2026-01-01 | INFO | valid | {json.dumps(numbers)}\n")
    return "".join(lines)


def make_data(folder: Path) -> Path:
    """Write a model and binarised pairs as the split ``test`` into ``data-bin``; return the model."""
    data = folder / "data-bin"
    data.mkdir(parents=True)
    model = make_plain_model(data)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(data / "sentencepiece.bpe.model"))
    pairs = [tuple(" ".join(pieces.encode(text, out_type=str)) for text in pair) for pair in PAIRS[:SENTENCES]]
    binarise(data, "test", pairs)
    return model


def make_run(folder: Path, model: Path, seed: int, offset: float, hypotheses: list[str], bleu: float) -> Path:
    """Write the folder of an evaluated run, whose data are beside it."""
    (folder / "model").mkdir(parents=True)
    shutil.copy(model, folder / "model" / "model.pt")
    (folder / "train.log").write_text(log_lines(60, offset))
    log = "".join(
        f"S-{n}\t{source}\nT-{n}\t{target}\nH-{n}\t-0.1\t{words}\nD-{n}\t-0.1\t{words}\n"
        for n, ((source, target), words) in enumerate(zip(PAIRS, hypotheses, strict=False))
    )
    (folder / "generate.test.log").write_text(log)
    entry = {"metric": "BLEU", "value": bleu, "signature": "tok:13a", "detail": "", "sentences": SENTENCES}
    (folder / "scores.json").write_text(json.dumps(dict.fromkeys(TITLES, entry)))
    origin = {"commit": "abc1234", "device": HOSTILE, "command": f"fairseq-train x --warmup-updates 30 --seed {seed}"}
    (folder / "trained.json").write_text(json.dumps(origin))
    command = shlex.split("ode-transformer score --metric bleu --generate-log elsewhere/generate.test.log --json")
    record = {
        **{"recipe": f"Pairs {HOSTILE}", "task": "translation", "arch": "ode_transformer_rk2_tiny", "variant": None},
        **{"train_flags": ["--seed", str(seed)], "commands": {"train": ["fairseq-train", "data", "--seed", str(seed)]}},
        "scores": [{"split": "test", "titles": TITLES, "command": command}],
        "published": [{"table": "Table 1", "system": "RK2", "scores": {"BLEU": 30.5}}],
    }
    (folder / "experiment.json").write_text(json.dumps(record))
    return folder


def make_runs(folder: Path) -> list[Path]:
    """Write two systems, the first with two seeds, the second fairseq's own; some of their outputs are hostile."""
    from checkpoint_for_tests import make_model  # by fairseq

    model = make_data(folder)
    (folder / "plain").mkdir()
    plain = make_model(folder / "plain", "--arch", "transformer_tiny")
    references = [target for _, target in PAIRS[:SENTENCES]]
    worse = [f"{HOSTILE} {line}" if n == 1 else line.replace("Die", "Der") for n, line in enumerate(references)]
    return [
        make_run(folder / "euler-seed-1", model, 1, 0.2, worse, 20.0),
        make_run(folder / "euler-seed-2", model, 2, 0.4, worse, 22.0),
        make_run(folder / "plain-seed-1", plain, 1, 0.0, references, 30.0),
    ]


def make_language_run(folder: Path) -> Path:
    """Write the run of a language model."""
    data, run = folder / "data-bin", folder / "lm"
    data.mkdir(parents=True)
    (run / "model").mkdir(parents=True)
    shutil.copy(make_plain_language_model(data), run / "model" / "model.pt")
    (run / "experiment.json").write_text(json.dumps({"arch": "ode_transformer_lm_rk2", "task": "language_modeling"}))
    return run
