"""Whole trainings are commands that fairseq-train knows, and their speed is that of the log after the first epoch."""

from argparse import Namespace
from pathlib import Path

import pytest
import train_speed

from ode_transformer.models import fairseq_parser


@pytest.mark.parametrize("name", train_speed.SYSTEMS)
def test_fairseq_train_knows_the_command(name: str) -> None:
    args = Namespace(size="tiny", user_dir=None, cpu=True, max_tokens=4096, updates=9)
    parsed = fairseq_parser.parse_training(train_speed.command(Path("data"), name, args, "folder")[1:])
    assert getattr(parsed, "cuda_graphs", False) == name.endswith("recorded")
    assert parsed.encoder_layers == int(name.split("-")[1])


def test_the_first_epoch_does_not_count() -> None:
    log = "".join(
        f'2026-11-27 | INFO | train_inner | {{"epoch": {epoch}, "wps": "{speed}"}}\n'
        for epoch, speed in ((1, 5), (2, 70), (2, 80))
    )
    assert train_speed.speeds(log) == [70.0, 80.0]
