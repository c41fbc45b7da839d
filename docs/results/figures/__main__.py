"""Draw the figures of does_it_help.md and of the pages behind it from the CSV files of the studies.

Command: python docs/results/figures [--gates DATA=CSV …]
"""

import argparse

from depths import draw_depths
from gains import GAINS, draw_gains
from gates import draw_gates, write_gates
from language_models import draw_cost, draw_errors, draw_stage_inputs, draw_steps, draw_table5


def main() -> None:
    """Write all figures."""
    parser = argparse.ArgumentParser(description="Draws the figures of does_it_help.md.")
    parser.add_argument(
        "--gates",
        nargs="+",
        metavar="DATA=CSV",
        help="write gates.csv anew first, from the files gates.csv of the studies gate and gate_lm",
    )
    args = parser.parse_args()
    if args.gates:
        write_gates(args.gates)
    for output, panels in GAINS.items():
        draw_gains(output, panels)
    draw_table5("does_it_help_table5.png")
    draw_steps("does_it_help_steps.png")
    draw_cost("does_it_help_cost.png")
    draw_stage_inputs("does_it_help_stages.png")
    draw_depths("does_it_help_depths.png")
    draw_gates("does_it_help_gates.png")
    draw_errors("does_it_help_errors.png")


if __name__ == "__main__":
    main()
