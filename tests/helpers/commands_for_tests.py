"""Runs fairseq's own commands as a user does, on a text that is small enough for a test."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from forked_commands import run_forked

import ode_transformer
from ode_transformer.checkpoints.reading import load_checkpoint

USER_DIR = Path(ode_transformer.__file__).parent

COMMANDS = Path(sysconfig.get_path("scripts"))

# PYTHONPATH is empty, because --user-dir alone has to suffice. With one thread sums are always formed in one order.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": ""}

PAIRS = [
    ("The dog sleeps under the table.", "Der Hund schläft unter dem Tisch."),
    ("The cat sleeps on the chair.", "Die Katze schläft auf dem Stuhl."),
    ("The child reads a long book.", "Das Kind liest ein langes Buch."),
    ("We drink coffee in the morning.", "Am Morgen trinken wir Kaffee."),
    ("She drinks tea in the evening.", "Am Abend trinkt sie Tee."),
    ("My brother lives in a small town.", "Mein Bruder wohnt in einer kleinen Stadt."),
    ("My sister works in a large school.", "Meine Schwester arbeitet in einer großen Schule."),
    ("The train arrives at nine.", "Der Zug kommt um neun an."),
    ("The bus leaves at ten.", "Der Bus fährt um zehn ab."),
    ("It is raining today.", "Heute regnet es."),
    ("It was snowing yesterday.", "Gestern schneite es."),
    ("The sun shines on the lake.", "Die Sonne scheint auf den See."),
    ("He opens the green door.", "Er öffnet die grüne Tür."),
    ("She closes the old window.", "Sie schließt das alte Fenster."),
    ("We are buying bread and cheese.", "Wir kaufen Brot und Käse."),
    ("They sell apples and pears.", "Sie verkaufen Äpfel und Birnen."),
    ("I do not know the answer.", "Ich kenne die Antwort nicht."),
    ("Do you know the way?", "Kennst du den Weg?"),
    ("Where is the station?", "Wo ist der Bahnhof?"),
    ("Who wrote this letter?", "Wer hat diesen Brief geschrieben?"),
    ("The birds sing in the garden.", "Die Vögel singen im Garten."),
    ("The children play in the park.", "Die Kinder spielen im Park."),
    ("The mountain is high and cold.", "Der Berg ist hoch und kalt."),
    ("The river is deep and slow.", "Der Fluss ist tief und langsam."),
    ("I have lost my key.", "Ich habe meinen Schlüssel verloren."),
    ("He has found his watch.", "Er hat seine Uhr gefunden."),
    ("The soup is still too hot.", "Die Suppe ist noch zu heiß."),
    ("The milk was already cold.", "Die Milch war schon kalt."),
    ("Tomorrow we travel to the sea.", "Morgen reisen wir ans Meer."),
    ("Next year they are building a house.", "Nächstes Jahr bauen sie ein Haus."),
    ("Please speak a little louder.", "Sprich bitte etwas lauter."),
    ("Please wait at the bridge.", "Warte bitte an der Brücke."),
    ("The teacher asks a hard question.", "Der Lehrer stellt eine schwere Frage."),
    ("The doctor has no time today.", "Der Arzt hat heute keine Zeit."),
    ("A red bicycle stands by the wall.", "Ein rotes Fahrrad steht an der Mauer."),
    ("The night was dark and quiet.", "Die Nacht war dunkel und still."),
    ("Our neighbours have three horses.", "Unsere Nachbarn haben drei Pferde."),
    ("Her grandfather tells good stories.", "Ihr Großvater erzählt gute Geschichten."),
    ("The market opens on Friday.", "Der Markt öffnet am Freitag."),
    ("The museum is closed on Monday.", "Das Museum ist am Montag geschlossen."),
    ("I would like a glass of water.", "Ich möchte ein Glas Wasser."),
    ("The farmer brings fresh eggs.", "Der Bauer bringt frische Eier."),
    ("The street is wide and empty.", "Die Straße ist breit und leer."),
    ("Both students learn German.", "Beide Studenten lernen Deutsch."),
    ("The old man wears a black hat.", "Der alte Mann trägt einen schwarzen Hut."),
    ("The young woman paints a boat.", "Die junge Frau malt ein Boot."),
    ("In winter the lake is frozen.", "Im Winter ist der See gefroren."),
    ("In summer the days are long.", "Im Sommer sind die Tage lang."),
]

# Two layers of width 32: a command takes little longer than importing torch.
SMALL = (
    *("--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 48, "--encoder-layers", 2, "--encoder-attention-heads", 2),
    *("--decoder-embed-dim", 32, "--decoder-ffn-embed-dim", 48, "--decoder-layers", 2, "--decoder-attention-heads", 2),
)
NO_DROPOUT = ("--dropout", 0, "--attention-dropout", 0, "--activation-dropout", 0)
ANY_NAME = "a:b,c ${x} ü"  # of a folder
TIMEOUT = 600  # seconds
BATCHES = 8  # in an epoch of the 40 training pairs


@dataclass(frozen=True)
class Text:
    """The pairs, cut into pieces and binarised, in a folder of ``prepare``."""

    folder: Path

    @property
    def data(self) -> Path:
        """The folder that fairseq reads."""
        return self.folder / "data"

    @property
    def pieces(self) -> Path:
        """The sentencepiece model of both languages."""
        return self.folder / "pieces.model"


def train_pieces(prefix: Path) -> Any:
    """Write a subword model of both languages, ``prefix.model``; return its processor."""
    import sentencepiece

    sentences = iter([sentence for pair in PAIRS for sentence in pair])
    model = {"sentence_iterator": sentences, "model_prefix": str(prefix), "vocab_size": 200}
    sentencepiece.SentencePieceTrainer.train(**model, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")


def prepare(directory: Path) -> None:
    """Write 40 pairs to train on and 8 to validate and test on."""
    processor = train_pieces(directory / "pieces")
    for split, pairs in (("train", PAIRS[:-8]), ("valid", PAIRS[-8:])):
        for language, sentences in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            lines = [" ".join(processor.encode(sentence, out_type=str)) + "\n" for sentence in sentences]
            (directory / f"{split}.{language}").write_text("".join(lines), encoding="utf-8")
    succeed(
        "preprocess",
        *("--source-lang", "en", "--target-lang", "de", "--joined-dictionary", "--destdir", directory / "data"),
        *("--trainpref", directory / "train", "--validpref", directory / "valid", "--testpref", directory / "valid"),
    )


def training(text: Text, save_dir: Path, arch: str, updates: int, *options: object) -> tuple[object, ...]:
    """Arguments of fairseq-train; a later option overrides an earlier one."""
    return (
        *(text.data, "--user-dir", USER_DIR, "--arch", arch, *SMALL, "--share-all-embeddings", "--cpu"),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", 1.0, "--seed", 1),
        *("--lr-scheduler", "inverse_sqrt", "--lr", 0.005, "--warmup-updates", 10),
        # No thread that loads ahead: when training stops within an epoch, it can abort the process at its end.
        *("--num-workers", 0, "--data-buffer-size", 0),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1),
        *("--batch-size", 5, "--required-batch-size-multiple", 1, "--max-update", updates, "--disable-validation"),
        *("--save-dir", save_dir, "--log-format", "json", "--log-interval", 1, *options),
    )


def train(text: Text, save_dir: Path, arch: str, updates: int, *options: object) -> Path:
    """Trains and returns the last checkpoint."""
    succeed("train", *training(text, save_dir, arch, updates, *options))
    return save_dir / "checkpoint_last.pt"


def parameters(checkpoint: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(checkpoint)["model"]


def start(command: str, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    """Starts ``fairseq-<command>``; ``more`` are options of Popen."""
    return subprocess.Popen(
        [COMMANDS / f"fairseq-{command}", *map(str, arguments)],
        **{"env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | more,
    )


def finish(process: subprocess.Popen[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Waits for a process and returns its exit status and what it wrote."""
    try:
        out, err = process.communicate(stdin, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run(command: str, *arguments: object, stdin: str | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run ``fairseq-<command>``, whatever its exit status.

    In a fork of a process that has imported fairseq, which saves seconds; in a new process if ``more`` asks for a
    folder or an environment.
    """
    if {"cwd", "env"} & more.keys():
        return finish(start(command, *arguments, stdin=subprocess.PIPE, **more), stdin or "")
    words = [str(COMMANDS / f"fairseq-{command}"), *map(str, arguments)]
    return run_forked(words, stdin or "", more.get("stderr") == subprocess.STDOUT, TIMEOUT)


def succeed(command: str, *arguments: object, stdin: str | None = None, **more: Any) -> str:
    """Runs ``fairseq-<command>``, which has to succeed, and returns its standard output."""
    done = run(command, *arguments, stdin=stdin, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(output: str, kind: str) -> dict[int, list[str]]:
    """What generate and interactive print: the tab-separated fields of lines like ``H-<number>``, by number."""
    fields = [line.split("\t") for line in output.splitlines() if line.startswith(f"{kind}-")]
    return {int(first.removeprefix(f"{kind}-")): rest for first, *rest in fields}
