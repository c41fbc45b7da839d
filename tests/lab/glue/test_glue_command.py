"""``reproduce glue``: pre-training and fine-tuning are commands that fit together."""

import argparse
import shlex
from pathlib import Path

from ode_transformer.cli import arguments, main
from ode_transformer.models import fairseq_parser


def test_reproduce_composes_the_commands(tmp_path: Path, capsys) -> None:
    words = ["--arch", "ode_bert_base", "--dry-run", "--gpus", "4", "--output", str(tmp_path / "out")]
    assert main(["reproduce", "glue", *words]) == 0
    shown = [shlex.split(line.removeprefix("+ ")) for line in capsys.readouterr().out.splitlines() if line[:2] == "+ "]
    assert not (tmp_path / "out").exists()
    train = shown[1][shown[1].index("fairseq-train") : shown[1].index(">")]
    args = fairseq_parser.parse_training(train[1:])
    assert (args.arch, args.task) == ("ode_bert_base", "masked_lm")
    assert args.max_tokens * args.update_freq[0] * 4 == 128_000
    trained, last = Path(args.save_dir).parent, shown[-1]
    assert last[:3] == ["ode-transformer", "analyse", "glue"]
    parser = argparse.ArgumentParser()
    arguments.glue(parser)
    glue = parser.parse_args(last[3:])
    assert (glue.path, glue.data) == (trained / "model" / "model.pt", trained / "model")
