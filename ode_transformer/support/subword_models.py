"""Subword models that fairseq can apply, and the file of each beside a trained model."""

from dataclasses import dataclass

SENTENCEPIECE_FILE = "sentencepiece.bpe.model"
SUBWORD_NMT_FILE = "bpecodes"


@dataclass(frozen=True)
class SubwordModel:
    """Names that fairseq gives to a kind of subword model.

    :param fairseq_option: option of fairseq's ``--bpe`` that takes the file
    :param file_name: name under which fairseq's ``from_pretrained`` looks for the file beside a model
    """

    fairseq_option: str
    file_name: str


SUBWORD_MODELS = {
    "sentencepiece": SubwordModel("sentencepiece_model", SENTENCEPIECE_FILE),
    "subword_nmt": SubwordModel("bpe_codes", SUBWORD_NMT_FILE),
}
