"""Write the generated pages of this folder: ``python docs/generate.py``."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PAGES = {
    "flags.md": "generator.flags",
    "combinations.md": "generator.combinations",
    "schemes.md": "generator.schemes",
    "experiments.md": "generator.experiments",
}


def main() -> None:
    """Run the module of each page and write what it prints."""
    for name, module in PAGES.items():
        page = subprocess.run([sys.executable, "-m", module], check=True, stdout=subprocess.PIPE, cwd=DOCS).stdout
        (DOCS / name).write_bytes(page)


if __name__ == "__main__":
    main()
