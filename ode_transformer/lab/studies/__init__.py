"""Studies: many experiments, their tables and plots; and the studies of ``configs/studies/`` by name."""

from pathlib import Path

from ode_transformer.support.yaml_file import CONFIGS, find_config

STUDIES = CONFIGS / "studies"


def study_names() -> list[str]:
    return sorted(path.stem for path in STUDIES.glob("*.yaml"))


def find_study(name: str) -> Path:
    """Return the file of a study, given its name in ``configs/studies/`` or the path of a .yaml file."""
    return find_config(name, STUDIES, study_names(), "study")
