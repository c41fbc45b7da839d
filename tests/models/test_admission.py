"""No text of a stranger's options is evaluated, and none names a file, whatever option it stands in."""

import re
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import fairseq
import pytest
from changed_checkpoints import as_args, rewrite
from checkpoint_for_tests import make_model
from doors import open_model
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint, saved_options
from ode_transformer.models import ODETransformerModel
from ode_transformer.models.admission import admitted_model, admitted_options, admitted_state
from ode_transformer.numerics import get_tableau, register_tableau
from ode_transformer.support.errors import UserError

State = dict[str, Any]
MARK = "stranger_of_this_test"
TRACES: list[object] = []  # what was opened or compiled and has this word in it


@sys.addaudithook
def note_traces(event: str, values: tuple[Any, ...]) -> None:
    if event in ("open", "compile") and MARK in str(values[0]):
        TRACES.append(values[0])


CODE = f"open('{MARK}')"
OTHERS, ARCH = (TASK_REGISTRY, CRITERION_REGISTRY), "ode_transformer_rk2_tiny"
TEXTS = (CODE, f"../{MARK}.pt${{oc.env:{MARK}}}")


# Read from the options, by getattr or hasattr, or a field of a class of options.
OPTION = re.compile(
    r"""\b(?:args|cfg|config)\.([a-z]\w*)|(?:get|has)attr\([^,()]+,\s*["']([a-z]\w*)["']|^    ([a-z]\w*): """,
    re.MULTILINE,
)


@cache
def option_names() -> set[str]:
    """Every option that fairseq's sources read, those that they evaluate or open among them."""
    sources = [path for path in Path(fairseq.__file__).parent.rglob("*.py") if "examples" not in path.parts]
    return {name for path in sources for found in OPTION.findall(path.read_text()) for name in found if name}


def test_the_names_are_found() -> None:
    of_issues = {"conv_aggregator_layers", "pretrained_mlm_checkpoint", "encoder_embed_path", "wer_args", "user_dir"}
    assert (
        of_issues | {"adaptive_softmax_cutoff", "tokenizer", "encoder_layers", "xformers_att_config"} <= option_names()
    )


def admitted(component: Callable[[State], State], text: str) -> tuple[State, set[str]]:
    """What comes through the door if every option is ``text``, and the options for which it is refused."""
    options, refused = dict.fromkeys(option_names(), text), set()
    while True:
        try:
            return component(options), refused
        except UserError as error:
            refused.add(re.search(r"refused: option (\w+)", str(error))[1])
            del options[max(refused & options.keys())]


@pytest.mark.parametrize("text", TEXTS)
def test_no_component_of_fairseq_gets_a_text(text: str) -> None:
    one_of_each_class = {model: arch for arch, model in ARCH_MODEL_REGISTRY.items()}
    components = [partial(_model, arch) for arch in one_of_each_class.values()]
    components += [partial(admitted_options, other) for others in OTHERS for other in others.values()]
    for component in components:
        assert MARK not in str(admitted(component, text)[0])


def _model(arch: str, options: State) -> State:
    return admitted_model(options | {"arch": arch, "_name": arch}, any_of_fairseq=True)


def as_groups(state: State, /, **options: Any) -> None:
    vars(state["cfg"]["model"]).update(options)
    for group in state["cfg"].values():
        if isinstance(group, dict):
            group.update({name: value for name, value in options.items() if isinstance(group.get(name, ""), str)})


def enter(door: str, folder: Path) -> object:
    """Open the folder's model.pt by ``door``, or what it is exported to."""
    if door != "exported folder":
        return open_model(door, folder)
    from ode_transformer.export.huggingface_model import ODETransformerConfig, ODETransformerForSeq2SeqLM  # slow

    options = dict(saved_options(load_checkpoint(folder / "model.pt"), "model"))
    return ODETransformerForSeq2SeqLM(ODETransformerConfig(options, 20, 20))


@pytest.fixture(scope="module")
def made_by_fairseq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with all options that fairseq knows."""
    return make_model(tmp_path_factory.mktemp("fairseq"))


@pytest.mark.parametrize("form", [as_groups, as_args])
@pytest.mark.parametrize("door", ["translate", "from_pretrained", "fairseq", "verify", "exported folder"])
def test_every_door_is_this_one(door: str, form: Callable[..., None], made_by_fairseq: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made_by_fairseq.parent, tmp_path / "model"))
    original = load_checkpoint(folder / "model.pt")
    # And all numbers, without which nothing is built.
    kept = {"_name", "arch", "task", "criterion", "source_lang", "target_lang"}
    kept |= {name for name, value in vars(original["cfg"]["model"]).items() if not isinstance(value, str)}
    _, refused = admitted(partial(_model, ARCH), CODE)
    TRACES.clear()
    for names in (option_names() - kept, option_names() - kept - refused):
        save_checkpoint(original, folder / "model.pt")
        rewrite(folder, partial(form, **dict.fromkeys(names, CODE)))  # traced also if it is taken for a file's name
        with pytest.raises(UserError, match="refused: option") if names & refused else nullcontext():
            assert enter(door, folder)
    assert not TRACES


@pytest.fixture
def folder(made_by_fairseq: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_by_fairseq.parent, tmp_path / "model"))


def test_a_checkpoint_chooses_neither_the_search_nor_files_of_subwords(folder: Path) -> None:
    address = {"_name": "sentencepiece", "sentencepiece_model": "https://example.org/model"}
    rewrite(folder, lambda state: state["cfg"].update(bpe=address, tokenizer={"_name": "space"}))
    rewrite(folder, lambda state: state["cfg"]["generation"].update(sampling=True, replace_unk="/dev/stdin"))
    hub = ODETransformerModel.from_pretrained(folder, "model.pt", beam=2)
    generation = hub.cfg.generation
    assert (generation.sampling, generation.replace_unk, generation.beam) == (False, None, 2)
    assert (hub.cfg.bpe, hub.cfg.tokenizer) == (None, None)
    pieces = ODETransformerModel.from_pretrained(folder, "model.pt", bpe="sentencepiece")
    assert pieces.cfg.bpe.sentencepiece_model == str(folder / "sentencepiece.bpe.model")


@pytest.mark.parametrize("saved", [False, True])
def test_options_of_a_criterion_that_refer_to_others_have_values(folder: Path, saved: bool) -> None:
    """fairseq-validate would take the text of a reference for true, and divide its loss by sentences."""
    criterion = {"_name": "fused_label_smoothed_cross_entropy", "sentence_avg": saved}
    rewrite(folder, lambda state: state["cfg"].update(criterion=criterion))
    options = admitted_state(load_checkpoint(folder / "model.pt"))["cfg"].criterion
    assert (options.sentence_avg, options.use_bmuf, options.zero_sharding) == (saved, False, "none")


@pytest.mark.usefixtures("registry")
def test_a_scheme_that_is_registered_after_a_first_model_was_loaded() -> None:
    for name in ("heun", "of-a-plugin"):
        if name == "of-a-plugin":
            register_tableau(replace(get_tableau("heun"), name=name, aliases=()))
        options = {"encoder_ode_scheme": name}
        assert admitted_options(ODETransformerModel, options) == options
