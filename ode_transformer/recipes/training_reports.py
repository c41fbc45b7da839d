"""Reports of a running training on the terminal."""

from __future__ import annotations

import math
import sys
import time
from typing import TextIO

from ode_transformer.analysis.training_log import TRAIN, UPDATES, parse_report


def loss_report(line: str) -> dict[str, float] | None:
    """Parse a line of fairseq-train's log; None if it reports neither a training loss nor that of the set ``valid``.

    :return: ``num_updates`` with either ``valid_loss`` or ``loss`` and fairseq's other numbers, such as ``wall``
    """
    split, numbers = parse_report(line) or ("", {})
    if split not in {TRAIN, "valid"}:
        return None
    try:
        # null: no update since the last report was followed by layer
        values = {name: float(value) for name, value in numbers.items() if value is not None}
    except (TypeError, ValueError):  # another process wrote into the same line
        return None
    if not {UPDATES, "loss"} <= values.keys():
        return None
    return values if split == TRAIN else {UPDATES: values[UPDATES], "valid_loss": values["loss"]}


class TrainingProgress:
    """The progress of a training: one line that changes on a terminal, else one in each minute or few in all.

    At the end of its ``with`` block it leaves the last numbers on a line of their own.

    :param minutes: limit of the training time; infinite if something else ends the training
    :param past_minutes: training time of the processes that were stopped before
    :param last_update: that ends the training at the latest
    """

    def __init__(
        self,
        minutes: float = math.inf,
        past_minutes: float = 0.0,
        last_update: int | None = None,
        output: TextIO | None = None,
    ) -> None:
        self.minutes, self.past_minutes, self.output = minutes, past_minutes, output or sys.stdout
        self.last_update = last_update
        self.values: dict[str, float] = {}
        self.interval = 60 * (max(1.0, minutes / 5) if math.isfinite(minutes) else 1)  # seconds, without a terminal
        self.last_line = -math.inf

    def __call__(self, line: str) -> None:
        """Show what a line of fairseq-train's log reports, if it reports a loss."""
        report = loss_report(line)
        if report is None:
            return
        self.values |= report
        if self.output.isatty():
            self.output.write(f"\r\033[K  {self}")
        elif "wall" in report and time.monotonic() - self.last_line >= self.interval:
            self.last_line = time.monotonic()
            self.output.write(f"  {self}\n")
        self.output.flush()

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.values:
            self.output.write("\n" if self.output.isatty() else f"  {self}\n")
            self.output.flush()

    @property
    def past(self) -> float:
        """Minutes of training so far."""
        return self.past_minutes + self.values.get("wall", 0.0) / 60

    @property
    def remaining(self) -> float:
        """Minutes until the limit of time, or until the last update at the present speed; infinite if unknown."""
        limits = [self.minutes - self.past]
        if self.last_update is not None and self.values.get("ups"):
            limits.append((self.last_update - self.values["num_updates"]) / self.values["ups"] / 60)
        return max(0.0, min(limits))

    def __str__(self) -> str:
        values, of_all = self.values, "" if self.last_update is None else f" of {self.last_update:,}"
        texts = [f"{self.remaining:.1f} minutes left" if math.isfinite(self.remaining) else ""]
        for name, text in (
            ("num_updates", "update {:,.0f}" + of_all),
            ("wps", "{:,.0f} tokens/s"),
            ("loss", "loss {:.2f}"),
            ("valid_loss", "validation loss {:.2f}"),
        ):
            texts.append(text.format(values[name]) if name in values else "")
        return "  ".join(filter(None, texts))
