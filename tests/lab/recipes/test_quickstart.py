"""The quickstart's options, and its whole way on a small dictionary and on small catalogues."""

import random
import re
from pathlib import Path

import pytest
import yaml
from programs_here import start_programs_here
from tiny_wheels import compile_mo, make_wheel

from ode_transformer.cli import main
from ode_transformer.lab.recipes import quickstart
from ode_transformer.lab.recipes.options import RunOptions, find_recipe

TINY = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 --save-interval-updates 10"


@pytest.mark.slow
def test_the_whole_way(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalogues of a made-up language, a small vocabulary, and the text that comes back without pieces."""
    start_programs_here(monkeypatch)
    english = "the a red green old new house garden river bridge stands runs".split()  # noqa: SIM905
    generator = random.Random(1)
    sources = {" ".join(generator.choices(english, k=generator.randint(3, 7))) for _ in range(600)}
    messages = {source: " ".join(word[::-1] for word in source.split()) for source in sources}
    wheels, configs = tmp_path / "wheels", tmp_path / "configs"
    wheels.mkdir()
    configs.mkdir()
    make_wheel(wheels, "shop", {"shop/locale/de/LC_MESSAGES/shop.mo": compile_mo(messages)})
    recipe = yaml.safe_load(find_recipe("quickstart_text").read_text())
    recipe["vocabulary"]["size"] = 36
    (configs / "quickstart_text.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(quickstart, "find_recipe", lambda name: configs / f"{name}.yaml")
    words = ["quickstart", "--wheels", str(wheels), "--output", str(tmp_path / "out"), "--minutes", "0.05"]
    words += ["--", *TINY.split()]
    assert main(words) == 0
    printed = capfd.readouterr().out
    for expected in (
        *("+ fairseq-preprocess", "+ fairseq-train", "+ fairseq-generate", "BLEU ", "chrF2 ", "minutes left"),
        *("(copying the source instead: BLEU", " updates in ", "echo 'Show all", "--scheme rk4"),
    ):
        assert expected in printed
    assert max(len(line) for line in printed.splitlines() if line.startswith("+")) < 300
    (log,) = (tmp_path / "out").rglob("commands.log")
    assert "--remove-bpe" in log.read_text()
    assert "--remove-bpe" not in printed
    (run,) = (path.parent for path in (tmp_path / "out").rglob("report.html"))
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    page = run / "report.html"
    assert f"report, for a browser: {page}" in printed
    assert {"depth", "attention", "sentences"} <= set(re.findall(r'<section id="(\w+)"', page.read_text()))
    assert "\u2581" in (run.parent / "pieces" / "test.de").read_text()

    assert main(words) == 0
    again = capfd.readouterr().out
    assert again.count("already done") >= 4  # corpus, pieces, binarise, train
    assert "+ fairseq-train" not in again

    from ode_transformer.models import ODETransformerModel

    model = ODETransformerModel.from_pretrained(str(run / "model"), checkpoint_file="model.pt", bpe="sentencepiece")
    translations = model.translate(["the old house", "a river runs near"])
    assert len(translations) == 2
    assert not any("\u2581" in translation for translation in translations)


@pytest.mark.parametrize("given", [["--max-update", "100"], ["--max-update=100"]])
def test_what_trains_longer_names_one_number_of_updates(given: list[str], tmp_path: Path) -> None:
    options = RunOptions(output=tmp_path, train_flags=("--lr", "0.1", *given))
    first = quickstart.Quickstart(options)
    assert "-- --lr 0.1 --max-update 300\n" in first.next_commands(first.experiment())
