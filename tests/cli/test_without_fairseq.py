"""Trained models are used on any system, without any module of fairseq: each way of use runs in a process of its own.

The processes lack what only Linux and macOS have.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plain_models import PAIRS, make_plain_model
from reported_runs import SENTENCES, make_data, make_run

ROOT = Path(__file__).parents[2]
# As on another system; libraries that choose other modules there have been imported before.
ELSEWHERE = """
import asyncio, filelock, os, portalocker, psutil, sys
sys.modules |= dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios"))
for name in ("fork", "forkpty", "sched_getaffinity"):
    delattr(os, name)
"""
COUNT = """
import json, sys
print()
print(json.dumps([name for name in sys.modules if name.partition(".")[0].startswith("fairseq")]))
"""
MAIN = """
import sys
from ode_transformer.cli.command import main
assert main(sys.argv[1:]) == 0
"""
AUTO = """
import sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
words = model.generate(**tokenizer(["The child sleeps."], return_tensors="pt"), max_new_tokens=5)
assert words.shape[0] == 1
"""
LOAD = """
import sys
from ode_transformer.decoding.loading import load
assert isinstance(load(sys.argv[1]).translate("The child sleeps."), str)
"""
HUB = """
import sys
import torch
model = torch.hub.load(sys.argv[2], "translation_model", sys.argv[1], source="local")
assert isinstance(model.translate("The child sleeps."), str)
"""
SERVE = """
import argparse, sys
from ode_transformer.lab.pages.arguments import serve
from ode_transformer.lab.pages.serve_command import build_server, load_models
parser = argparse.ArgumentParser()
serve(parser)
args = parser.parse_args([sys.argv[1], "--cpu", "--beam", "2", "--max-len-b", "8"])
from starlette.testclient import TestClient
with TestClient(build_server(args, load_models(args)).config.app, base_url="http://127.0.0.1:8000") as client:
    answer = client.post("/translate", json={"lines": ["The child sleeps."]})
assert answer.status_code == 200, answer.text
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_plain_model(tmp_path_factory.mktemp("plain")).parent


def loaded_modules(program: str, *words: object, stdin: str = "") -> list[str]:
    """Run a program as on another system and return the modules of fairseq that it has loaded."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", ELSEWHERE + program + COUNT, *map(str, words)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


def test_translate(folder: Path) -> None:
    """Nor by PyTorch's compiler, which takes longer to import than the rest; with batches for several processes."""
    program = f"{MAIN}assert 'torch._dynamo' not in sys.modules\n"
    words = ("translate", "--path", folder / "model.pt", "--batch-size", 1)
    assert loaded_modules(program, *words, stdin="The child sleeps.\n" * 8) == []


def test_verify(folder: Path) -> None:
    assert loaded_modules(MAIN, "checkpoint", "verify", folder / "model.pt") == []


def test_export_and_the_exported_folder(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    exported = tmp_path / "exported"
    words = ("export", "--to", "huggingface", "--path", folder / "model.pt", "--output", exported)
    assert loaded_modules(MAIN, *words) == []
    assert loaded_modules(AUTO, exported) == []


def test_a_loaded_folder(folder: Path) -> None:
    assert loaded_modules(LOAD, folder) == []


def test_pytorch_hub(folder: Path) -> None:
    assert loaded_modules(HUB, folder, ROOT) == []


def test_analyse(tmp_path: Path) -> None:
    model = make_data(tmp_path)
    words = ("analyse", "coefficients", model, "--data", model.parent, "--split", "test")
    assert loaded_modules(MAIN, *words) == []


def test_report(tmp_path: Path) -> None:
    references = [target for _, target in PAIRS[:SENTENCES]]
    run = make_run(tmp_path / "run", make_data(tmp_path), 1, 0.0, references, 30.0)
    assert loaded_modules(MAIN, "report", run, "--output", tmp_path / "report.html") == []


def test_serve(folder: Path) -> None:
    assert loaded_modules(SERVE, folder / "model.pt") == []
