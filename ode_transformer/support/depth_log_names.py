"""Names under which ``--log-depth-interval`` logs numbers by layer and ``--log-samples`` translations.

They are for those that write and those that read a log.
"""

SAMPLES = "samples"
PREFIX = "depth/"
GRADIENT_NORM = "gradient_norm"


def gradient_norm_name(stack: str, layer: int) -> str:
    """Return the name of a layer's gradient norm, such as ``depth/encoder/1/gradient_norm``."""
    return f"{PREFIX}{stack}/{layer}/{GRADIENT_NORM}"


def stage_weight_name(stack: str, layer: int, sublayers: str, stage: int) -> str:
    """Return the name of a stage weight, such as ``depth/encoder/1/weight_2`` or ``depth/encoder/1/ffn/weight_2``.

    :param sublayers: name of the stepped block; empty where the layer is one block
    """
    block = f"{layer}/{sublayers}" if sublayers else str(layer)
    return f"{PREFIX}{stack}/{block}/weight_{stage}"
