"""Language models continue each line of a text, by a search or by drawing, in the command and in the server."""

import io
import sys
from pathlib import Path

import pytest
import torch
from plain_models import make_plain_language_model
from served_models import ask, serving, translations

from ode_transformer.cli.command import main
from ode_transformer.decoding.trained_model import load_trained_model

TEXT = ["The dog", "", "The cat sleeps on the", "We"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_plain_language_model(tmp_path_factory.mktemp("language-model"))


def continued(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, *words: object) -> list[str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(TEXT).encode())))
    assert main(["translate", "--path", str(model), "--cpu", "--max-len-b", "5", *map(str, words)]) == 0
    return capsys.readouterr().out.split("\n")[:-1]


def greedy(model: Path, line: str, count: int) -> str:
    trained = load_trained_model(model, model.parent, language_model=True)
    words = trained.source_dictionary
    tokens = torch.tensor([words.eos(), *map(words.index, line.split())])
    for _ in range(count):
        logits = trained.model(tokens[None])[0, -1]
        logits[words.pad()] = -torch.inf
        if (best := int(logits.argmax())) == words.eos():
            break
        tokens = torch.cat([tokens, torch.tensor([best])])
    return words.string(tokens[1:])


def test_a_line_is_continued_by_the_most_probable_words(model: Path, monkeypatch, capsys) -> None:
    expected = [greedy(model, line, 5) if line else "" for line in TEXT]
    assert expected[0] != TEXT[0]
    assert continued(model, monkeypatch, capsys, "--beam", 1) == expected


def test_drawn_words_depend_on_the_seed(model: Path, monkeypatch, capsys) -> None:
    drawing = ("--sampling", "--temperature", 3)
    first, again, other = (continued(model, monkeypatch, capsys, *drawing, "--seed", seed) for seed in (1, 1, 2))
    assert first == again != other
    assert all(line.startswith(text) for line, text in zip(first, TEXT, strict=True))
    likely = continued(model, monkeypatch, capsys, *drawing, "--sampling-topk", 1)
    assert likely == continued(model, monkeypatch, capsys, "--beam", 1)


def test_the_server_continues_and_looks_inside(model: Path) -> None:
    with serving(model) as port:
        assert b"<h1>Continue a text</h1>" in ask(port, "/")[2]
        (line, empty) = translations(port, ["The dog", ""], beam=1)
        assert (line, empty) == (greedy(model, "The dog", 8), "")
        _, _, answer = ask(port, "/inspect", {"lines": ["The dog"]})
        (system,) = answer["systems"]
        assert system["tokens"]["source"][:3] == ["</s>", "The", "dog"]
        assert len(system["attention"]) == len(system["stage_weights"]) > 0
        assert len(system["stage_weights"][0]["weights"][0]) == len(system["tokens"]["source"])
