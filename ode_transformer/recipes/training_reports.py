"""Reports of a running training on the terminal."""

import json


def print_report(line: str) -> None:
    """Print a line of fairseq-train's log in short if it is a report of a training or validation loss."""
    for kind, key in (("train_inner", "loss"), ("valid", "valid_loss")):
        _, mark, report = line.partition(f"| {kind} | ")
        if mark:
            try:
                values = json.loads(report)
            except ValueError:  # another process wrote into the same line
                return
            updates = values.get("num_updates") or values.get("valid_num_updates")
            minutes = f"{float(values['wall']) / 60:5.1f} min  " if "wall" in values else " " * 11
            print(f"  {minutes}update {updates:>6}  {key.replace('_', 'ation ')} {values[key]}", flush=True)
