"""A series of trainings: a failure does not stop the others, and processes share the work."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import LockedError, UserError
from ode_transformer.support.files import is_locked

POLL_SECONDS = 30  # until a training of another process is looked at again


class Training(NamedTuple):
    """A training of a series.

    :param name: for the screen
    :param folder: locked by the process that trains
    :param run: trains, or finds the training complete
    """

    name: str
    folder: Path
    run: Callable[[], object]


def run_all(trainings: Iterable[Training]) -> list[str]:
    """Run trainings; those that another process is running come later.

    :return: a line for each failure
    """
    failures = []
    remaining, waiting = list(trainings), set[str]()
    while remaining:
        locked = []
        for training in remaining:
            if training.name in waiting and is_locked(training.folder):
                locked.append(training)
                continue
            print(f"\n=== {training.name}", flush=True)
            try:
                training.run()
            except LockedError as error:
                print(f"{error}: later", flush=True)
                waiting.add(training.name)
                locked.append(training)
            except (UserError, OSError) as error:  # also a full disk
                failures.append(f"{training.name}: {error}")
                print_progress(failures[-1])
        if len(locked) == len(remaining):
            time.sleep(POLL_SECONDS)
        remaining = locked
    return failures
