"""What a training prints on the way."""

import json


def progress(line: str) -> None:
    """Shows one report of fairseq-train as a short line."""
    for kind, key in (("train_inner", "loss"), ("valid", "valid_loss")):
        _, mark, report = line.partition(f"| {kind} | ")
        if mark:
            try:
                values = json.loads(report)
            except ValueError:  # a line that another process has written into
                return
            updates = values.get("num_updates") or values.get("valid_num_updates")
            minutes = f"{float(values['wall']) / 60:5.1f} min  " if "wall" in values else " " * 11
            print(f"  {minutes}update {updates:>6}  {key.replace('_', 'ation ')} {values[key]}", flush=True)
