"""Register a new scheme, and train a Transformer with it in fairseq.

    python examples/new_scheme.py

adds Heun's scheme of order 3 as ``heun3``, trains a tiny model for a few updates to reverse sequences of letters, and
prints fairseq's log, in which the training loss falls from 6.3 to 3.3, and the path of the checkpoint.

For fairseq's commands (fairseq-train, fairseq-generate, ...), put the two imports of ode_transformer and the
registration into the ``__init__.py`` of a package of your own and pass its folder as --user-dir.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import preprocess, train

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.numerics import ButcherTableau, register_tableau

register_tableau(
    ButcherTableau(
        name="heun3",
        order=3,
        a=((), (1 / 3,), (0, 2 / 3)),
        b=(1 / 4, 0, 3 / 4),
        c=(0, 1 / 3, 2 / 3),
        source="Heun 1900",
    )
)


def write_data(folder: Path) -> Path:
    """Write sequences of letters and their reversals, and return the folder of the binarised data."""
    for split, sentences in (("train", 400), ("valid", 40)):
        letters = [random.choices("abcdefgh", k=random.randint(3, 6)) for _ in range(sentences)]
        (folder / f"{split}.forward").write_text("".join(" ".join(line) + "\n" for line in letters))
        (folder / f"{split}.backward").write_text("".join(" ".join(line[::-1]) + "\n" for line in letters))
    pairs = ["--source-lang", "forward", "--target-lang", "backward", "--joined-dictionary"]
    files = [f"--{split}pref={folder / split}" for split in ("train", "valid")]
    parser = options.get_preprocessing_parser()
    preprocess.main(parser.parse_args([*pairs, *files, "--destdir", str(folder / "data")]))
    return folder / "data"


def main(epochs: int = 3) -> None:
    random.seed(0)
    folder = Path(tempfile.mkdtemp(prefix="new_scheme_"))
    flags = f"""--arch ode_transformer_euler_tiny --encoder-ode-scheme heun3 --share-all-embeddings --optimizer adam
        --lr 0.002 --max-tokens 400 --max-epoch {epochs} --cpu --seed 1 --no-epoch-checkpoints"""
    words = [str(write_data(folder)), *flags.split(), "--save-dir", str(folder / "checkpoints")]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    train.main(convert_namespace_to_omegaconf(args))
    print(f"checkpoint: {folder / 'checkpoints' / 'checkpoint_last.pt'}")


if __name__ == "__main__":
    main()
