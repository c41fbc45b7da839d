"""Decoding by CTranslate2 for ``speed.py``: an exported model, the batch and the beam of the other systems."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ctranslate2
from measuring import MeasuredSystem, Setting, seconds_between

from ode_transformer.export import ctranslate2_folder
from ode_transformer.export.translation_model import TranslationModel


class CTranslate2System(MeasuredSystem):
    """A system that CTranslate2 decodes.

    :param quantization: numbers of its weights, as for ``ode-transformer export --quantization``
    """

    def __init__(
        self, arch: str, options: dict[str, Any], setting: Setting, quantization: str = "float32", threads: int = 1
    ) -> None:
        super().__init__(arch, options, setting)
        self.quantization, self.threads = quantization, threads

    def prepare_to_decode(self) -> None:
        """Export the model to a temporary folder and load it.

        :raises UserError: CTranslate2 cannot express the model
        """
        super().prepare_to_decode()
        languages = SimpleNamespace(source_lang="en", target_lang="de")
        options = SimpleNamespace(model=SimpleNamespace(activation_fn="relu", arch="benchmark"), task=languages)
        model = TranslationModel(Path("benchmark"), self.model, options, self.task, subword_model=None)
        args = argparse.Namespace(quantization=self.quantization)
        ctranslate2_folder.check(model, args)
        with tempfile.TemporaryDirectory() as folder:
            ctranslate2_folder.write(model, Path(folder), args)
            self.translator = ctranslate2.Translator(folder, device=self.setting.device, intra_threads=self.threads)
        words, pad = self.task.source_dictionary, self.task.source_dictionary.pad()
        sources = [row[row != pad].tolist()[:-1] for row in self.batch["net_input"]["src_tokens"]]
        self.sources = [[words[number] for number in source] for source in sources]

    def decode(self) -> dict[str, float]:
        """Translate the sources of the batch; return the seconds.

        :raises RuntimeError: a hypothesis does not have ``target_length`` tokens
        """
        length = self.setting.target_length
        begin = self.clocks()
        results = self.translator.translate_batch(
            self.sources, beam_size=self.setting.beam, min_decoding_length=length, max_decoding_length=length
        )
        end = self.clocks()
        lengths = {len(result.hypotheses[0]) for result in results}
        if lengths != {length}:
            raise RuntimeError(f"hypotheses of {sorted(lengths)} tokens instead of {length}")
        return seconds_between("decode", begin, end)
