"""Draw the figures of the pages in docs/results from the CSV files of the studies.

Command: python docs/results/figures [--gates DATA=CSV …]
"""

import argparse

from gains import draw_gains
from gates import draw_gates, write_gates


def main() -> None:
    """Write all figures."""
    parser = argparse.ArgumentParser(description="Draws the figures of docs/results.")
    parser.add_argument(
        "--gates",
        nargs="+",
        metavar="DATA=CSV",
        help="write gates.csv anew first, from the files gates.csv of the studies gate and gate_lm",
    )
    args = parser.parse_args()
    if args.gates:
        write_gates(args.gates)
    draw_gains("does_it_help_answer.png")
    draw_gates("does_it_help_gates.png")


if __name__ == "__main__":
    main()
