"""Write the generated pages of this folder: ``python docs/generate.py``."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PAGES = {
    "flags.md": "ode_transformer.cli.flags",
    "combinations.md": "ode_transformer.analysis.depth.combinations",
    "schemes.md": "ode_transformer.studies.scheme_table",
    "experiments.md": "experiments",
}


def main() -> None:
    """Run the module of each page and write what it prints."""
    for name, module in PAGES.items():
        page = subprocess.run([sys.executable, "-m", module], check=True, stdout=subprocess.PIPE, cwd=DOCS).stdout
        (DOCS / name).write_bytes(page)


if __name__ == "__main__":
    main()
