"""Commands that a study runs on its finished runs."""

import shlex
from pathlib import Path

import pytest
import yaml

from ode_transformer.cli import main

STUDY = {
    "title": "A question",
    "source": "a paper",
    "settings": {"here": {"recipe": "multi30k_en_de", "size": "tiny"}},
    "seeds": [1, 2],
    "systems": [
        {"name": "plain", "arch": "ode_transformer_euler_{size}"},
        {"name": "RK2, 1 and 1", "arch": "ode_transformer_rk2_{size}", "flags": {"ode-coefficients": "ones"}},
    ],
}


def dry_run(folder: Path, analyses: dict[str, str]) -> int:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**STUDY, "analyses": analyses}, sort_keys=False))
    return main(["study", str(path), "--dry-run", "--gpus", "0", "--output", "out"])


def test_files_of_the_runs_are_filled_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All runs for curves, the first run of each system for the others, and one command for each model."""
    texts = {
        "curves": "curves {runs} --csv {output}.csv",
        "sides": "examples {logs} --most-different 2 --output {output}.md",
        "linear": "linear-probe {model} --data {data} --output {output} {search} {metric}",
        "compare": "outputs {models} --data {data} --output {output} {flavour}",
        "references": "outputs {models} --data {data} --output {output} {references}",
        "types": "error-types {logs} --gold {corpus}/test.m2",
    }
    assert dry_run(tmp_path, texts) == 0
    lines = [line[2:] for line in capsys.readouterr().out.splitlines() if line.startswith("+ ode-transformer")]
    commands = [
        line.replace("out/multi30k_en_de/", "D/").replace("out/studies/small-here/", "S/")
        for line in lines
        if shlex.split(line)[1] not in ("checkpoint", "score")
    ]
    plain, rk2 = "D/ode_transformer_euler_tiny-seed-{}", "D/ode_transformer_rk2_tiny-seed-{}-ode-coefficients-ones"
    runs = " ".join(word.format(seed) for seed in (1, 2) for word in (f"plain={plain}", f"'RK2, 1 and 1={rk2}'"))
    systems = "plain={}/{file} RK2-1-and-1={}/{file}"
    logs = systems.format(plain.format(1), rk2.format(1), file="generate.test.log")
    models = systems.format(plain.format(1), rk2.format(1), file="model/model.pt")
    search = "--remove-bpe subword_nmt --beam 5 --cpu"
    assert commands == [
        f"ode-transformer analyse curves {runs} --csv S/curves.csv",
        f"ode-transformer analyse examples {logs} --most-different 2 --output S/sides.md",
        *(
            f"ode-transformer analyse linear-probe {run.format(1)}/model/model.pt --data D/data-bin "
            f"--output S/linear-{name} {search} --metric bleu --tokenize none"
            for name, run in (("plain", plain), ("RK2-1-and-1", rk2))
        ),
        f"ode-transformer analyse outputs {models} --data D/data-bin --output S/compare --tokenize none",
        f"ode-transformer analyse outputs {models} --data D/data-bin --output S/references",
        f"ode-transformer analyse error-types {logs} --gold D/corpus/test.m2",
    ]
