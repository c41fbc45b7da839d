"""Reads a model's sizes and choices from options, under the names of their flags.

Options are those of a command line, of a checkpoint or of an exported folder: a mapping from names such as
``encoder_embed_dim`` to values. What is no field of a size or a choice is not read.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ode_transformer.nn.compatibility import StackShape, idle_options, refusal
from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.options import Option
from ode_transformer.nn.sizes import GridChoice, TransformerSizes

Options = Mapping[str, Any]

# Options of fairseq's Transformer that our encoders and decoders do not implement
UNSUPPORTED_OPTIONS = (
    *("adaptive_input", "base_layers", "char_inputs", "cross_self_attention", "export", "no_cross_attention"),
    *("encoder_layers_to_keep", "decoder_layers_to_keep", "encoder_xformers_att_config", "decoder_xformers_att_config"),
    *("offload_activations", "quant_noise_pq", "quant_noise_scalar"),
    # Both tie the adaptive softmax to an adaptive input, which is not supported either.
    *("tie_adaptive_weights", "tie_adaptive_proj"),
)
OFF = (None, False, 0, -1)  # values of fairseq's options that mean "off"


def read_sizes(options: Options, vocabulary: int, target_vocabulary: int | None = None) -> TransformerSizes:
    """Return the sizes of a model; what is open has the defaults of fairseq's Transformer.

    :param vocabulary: words of the source, or of a model with one text
    :param target_vocabulary: words of the target; those of the source by default
    :raises ValueError: sizes are out of range or do not go together
    """

    def get(name: str, default: Any) -> Any:
        value = options.get(name)
        return default if value is None else value

    positions = "none" if get("no_token_positional_embeddings", False) else "sinusoidal"
    share = "output" if get("share_decoder_input_output_embed", False) else "none"
    samples = get("tokens_per_sample", 1024)
    has_encoder = "encoder_embed_dim" in options
    first = "encoder" if has_encoder else "decoder"
    dim, heads = int(get(f"{first}_embed_dim", 512)), int(get(f"{first}_attention_heads", 8))
    ffn = int(get(f"{first}_ffn_embed_dim", 2048))
    decoder_dim = int(get("decoder_embed_dim", dim))
    return TransformerSizes(
        vocabulary,
        target_vocabulary,
        dim=dim,
        heads=heads,
        ffn=ffn,
        encoder_layers=int(get("encoder_layers", 6)),
        decoder_layers=int(get("decoder_layers", 6)),
        decoder_dim=decoder_dim,
        decoder_heads=int(get("decoder_attention_heads", 8)),
        decoder_ffn=int(get("decoder_ffn_embed_dim", ffn)),
        decoder_input_dim=int(get("decoder_input_dim", decoder_dim)),
        decoder_output_dim=int(get("decoder_output_dim", decoder_dim)),
        share="all" if get("share_all_embeddings", False) else share,
        activation=get("activation_fn", "relu"),
        dropout=float(get("dropout", 0.1)),
        attention_dropout=float(get("attention_dropout", 0.0)),
        activation_dropout=float(get("activation_dropout", 0.0)),
        word_dropout=float(get("word_dropout_prob", 0.0)),
        encoder_positions="learned" if positions != "none" and get("encoder_learned_pos", False) else positions,
        decoder_positions="learned" if positions != "none" and get("decoder_learned_pos", False) else positions,
        max_source_positions=int(get("max_source_positions", get("max_positions", 1024))),
        max_target_positions=int(get("max_target_positions", samples if not has_encoder else 1024)),
        scale_embedding=not get("no_scale_embedding", False),
        normalize_embedding=bool(get("layernorm_embedding", False)),
        final_norm=not get("no_decoder_final_norm", False),
        left_padded=str(get("left_pad_target", False)) == "True",
        recompute=bool(get("checkpoint_activations", False)),
    )


class _WatchedOptions(dict[str, Any]):
    """Options that remember the names that are read."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def size_options(options: Options) -> set[str]:
    """Return the names of the options that a model's sizes are read from."""
    watched = _WatchedOptions(options)
    read_sizes(watched, vocabulary=4)
    return watched.names


def read_grid(options: Options) -> GridChoice:
    """Return the options of a Reformer's grid."""
    return GridChoice(
        **{option.name: _read(option, options, option.default) for option in GridChoice.options().values()}
    )


def read_choices(options: Options, stacks: Sequence[str], trained: bool | None = None) -> dict[str, DepthChoice]:
    """Return the choice of each stack.

    :param trained: parameters were trained before, perhaps with options that change nothing, which a new training is
        refused; by default as ``ode_options_saved`` among the options says
    :raises ValueError: a stack's own flag is of no use to it, a short flag to no stack, or options of a stack do not
        go together
    """
    if trained is None:
        trained = bool(options.get("ode_options_saved"))
    values: dict[str, dict[str, Any]] = {stack: {} for stack in stacks}
    drafts = {stack: DepthChoice.draft({}) for stack in stacks}
    # A Reformer's encoder may have no layers, which read nothing.
    layered = [stack for stack in stacks if options.get(f"{stack}_layers") != 0]
    for option in DepthChoice.options().values():
        short = option.default if option.own_flag_only else _read(option, options, option.default)
        set_by_short = [stack for stack in stacks if option.is_set_by_short_flag(drafts[stack])]
        if trained and not set_by_short:  # Before, a short flag that was for no stack set each that could read it.
            set_by_short = [stack for stack in stacks if option.read_by(drafts[stack])]
        if short != option.default and not set(set_by_short) & set(layered):
            off = f"--no-{option.flag}" if option.default is False else f"--{option.flag} {option.default}"
            raise ValueError(f"{_flag(option, short)}: only with {option.short_needs or option.needs}; pass {off}")
        for stack in stacks:
            value = _read(option, options, short if stack in set_by_short else option.default, stack)
            if value == option.default:
                continue
            if not option.read_by(drafts[stack]):
                scheme = drafts[stack].scheme
                raise ValueError(f"{_flag(option, value, stack)}: only with {option.needs}, not with {scheme}")
            values[stack][option.name] = value
            drafts[stack] = DepthChoice.draft(values[stack])
    choices = {stack: _build_choice(stack, drafts[stack].scheme, values[stack]) for stack in stacks}
    if not trained:
        _refuse_idle_options(options, choices)
    return choices


def _build_choice(stack: str, scheme: str, values: Mapping[str, Any]) -> DepthChoice:
    try:
        return DepthChoice(**DepthChoice.arguments(values), accepts_idle=True)
    except ValueError as error:
        raise ValueError(f"--{stack}-ode-scheme {scheme}: {error}") from error


def _refuse_idle_options(options: Options, choices: Mapping[str, DepthChoice]) -> None:
    """Refuse a stack's own flag that changes nothing, and a short one that changes nothing in any stack."""
    shapes = {stack: stack_shape(options.get(f"{stack}_layers", 6), stack, choices) for stack in choices}
    idle = {stack: dict(idle_options(choice, shapes[stack])) for stack, choice in choices.items()}
    for option in DepthChoice.options().values():
        changed = [stack for stack, choice in choices.items() if choice.value(option) != option.default]
        reasons = {stack: idle[stack][option.name] for stack in changed if option.name in idle[stack]}
        for stack, reason in reasons.items():
            own = options.get(option.dest(stack)) is not None
            if own or len(reasons) == len(changed):
                flag = _flag(option, choices[stack].value(option), stack if own else "")
                raise ValueError(f"{flag}: {reason}")
    for stack, reasons in idle.items():
        if "" in reasons:
            raise ValueError(f"--{stack}-ode-scheme {choices[stack].scheme}: {reasons['']}")


def stack_shape(layers: int, stack: str, stacks: Collection[str]) -> StackShape:
    """Return the sizes of a stack that decide over its options: a decoder with an encoder has two attentions."""
    return StackShape(layers, len(stacks) if stack == "decoder" else 1)


def _read(option: Option, options: Options, default: Any, stack: str = "") -> Any:
    """Return the value of a flag; Python code may give a whole number for any number."""
    value = options.get(option.dest(stack))
    return default if value is None else type(option.default)(value)


def _flag(option: Option, value: Any, stack: str = "") -> str:
    flag = f"--{stack}-{option.flag}" if stack else f"--{option.flag}"
    return flag if value is True else f"{flag} {value}"


def check_choices(sizes: TransformerSizes, choices: Mapping[str, DepthChoice], grid: GridChoice | None = None) -> None:
    """Refuse choices that do not go with the sizes of their stacks, or with each other.

    :param choices: by stack
    :param grid: options of a Reformer, whose decoder is a grid and whose encoder may have no layers
    :raises ValueError: names the flag, its value, and what is allowed
    """
    for stack, choice in choices.items():
        own = getattr(sizes, stack)
        layers, width, heads = own.layers, own.dim, own.heads
        if layers < (grid is None or stack == "decoder"):
            raise ValueError(f"--{stack}-layers {layers}: a stack has at least one layer")
        if stack == "decoder" and grid is not None and grid.combination == "concat":
            width += sizes.encoder.dim
        if heads < 1 or width % heads > 0:
            raise ValueError(f"--{stack}-attention-heads {heads}: the heads have to divide the width {width}")
        if (reason := refusal(choice, stack_shape(layers, stack, choices))) is not None:
            raise ValueError(f"--{stack}-ode-scheme {choice.scheme}: {reason}")
    if grid is not None:
        joint = choices["decoder"]
        if joint.splitting != "lie-trotter":
            raise ValueError(f"--layer-splitting {joint.splitting} is not defined for joint layers: lie-trotter")
        if joint.value_residual != "none":
            raise ValueError("--value-residual adds values along one text, and a Reformer's layers attend in a grid")
        if grid.combination == "add" and sizes.encoder.dim != sizes.decoder.dim:
            raise ValueError(
                f"--joint-combination add: source and target have widths {sizes.encoder.dim} and "
                f"{sizes.decoder.dim}; use concat"
            )
