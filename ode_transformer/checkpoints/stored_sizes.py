"""The one rule on sizes of a stranger's file: a reader builds what the file's bytes hold, whatever they claim.

A few bytes can claim any size. A tensor is a view of a storage and can repeat it; a list of a pickle can stand many
times in another, which stands many times in a third; a record of an archive can be compressed; a device never ends.
Therefore

- a file is a regular one, and a record of an archive is stored as it is,
- a tensor needs no more than its storage has, and all storages together no more than the file,
- what is nested is counted by nodes, once for each place where it stands, before it is built,
- a model has about as many parameters as are stored for it.

Everything here works without fairseq.
"""

import argparse
import io
import os
import pickletools
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from torch import Tensor, nn, strided
from torch.nn.modules.module import register_module_parameter_registration_hook

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import check_regular

MAX_TENSORS = 30_000  # of a file, those of the optimizer included
MAX_LETTERS = 10_000  # bytes of a dictionary's line
_NODES, _NODES_PER_BYTE = 10**5, 10  # that a pickle may build: whatever its length, and for each of its bytes, of 2
_NAMES_OF_A_TENSOR = 64  # on average: models of many languages that share their parameters have as many as pairs
_OLD_PICKLES = 5  # at the beginning of a file from before torch 1.6


def check_tensor_count(number: int) -> None:
    """Refuse a file of more tensors than any model and its optimizer have."""
    if number > MAX_TENSORS:
        raise UserError(f"refused: it holds more than {MAX_TENSORS:,} tensors")


def check_archive(file: IO[bytes]) -> None:
    """Refuse a file of ``torch.save`` whose records or pickle need more than its bytes; compare its checksums.

    :raises UserError: it is refused
    :raises zipfile.BadZipFile: it is damaged
    """
    size = file.seek(-22, os.SEEK_END) + 22
    end = file.read()  # it counts the members, which take seconds to list
    check_tensor_count(int.from_bytes(end[10:12], "little") if end.startswith(b"PK\5\6") else 0)
    with zipfile.ZipFile(file) as archive:
        records = archive.infolist()
        check_tensor_count(len(records))
        if any(record.compress_type != zipfile.ZIP_STORED for record in records):
            raise UserError("refused: it is compressed")
        # torch does not tell capitals from small letters.
        if len({record.filename.lower() for record in records}) < len(records):
            raise UserError("refused: two of its records have one name")
        if sum(record.file_size for record in records) > size:
            raise UserError("refused: its records overlap")
        if archive.testzip() is not None:  # torch writes the checksums and does not read them
            raise zipfile.BadZipFile
        for record in records:
            if record.filename.lower().endswith("data.pkl"):
                check_pickle(io.BytesIO(archive.read(record)))


def check_old_file(file: IO[bytes]) -> None:
    """Refuse a file from before torch 1.6 one of whose pickles needs more than its bytes."""
    for _ in range(_OLD_PICKLES):
        check_pickle(file)


def check_pickle(file: IO[bytes]) -> None:
    """Refuse a pickle that builds far more than its bytes, by its opcodes alone; read it to its end.

    An object is a list of its parts here, or a number or text. Those that torch's restricted unpickler would copy,
    compare or print are counted with all their parts, and so is the whole.

    :raises UserError: it is refused
    :raises Exception: it is no pickle of ``torch.save``; torch's unpickler ends there, too
    """
    stack: list[Any] = []
    outer: list[list[Any]] = []  # the stacks below the marks
    memo: dict[Any, Any] = {}
    nodes = 0

    def count(*parts: Any) -> None:
        nonlocal nodes
        remaining = [list(parts)]
        while remaining:
            part = remaining.pop()
            nodes += len(part)
            if nodes > _NODES + _NODES_PER_BYTE * position:
                raise UserError("refused: what is nested in it has no end")
            nodes += sum([len(text) for text in part if isinstance(text, str | bytes)])
            remaining += [inner for inner in part if isinstance(inner, list)]

    for opcode, argument, start in pickletools.genops(file):
        position = start or 0
        match opcode.name:
            case "MARK":
                outer.append(stack)
                stack = []
            case "TUPLE":
                parts, stack = stack, outer.pop()
                stack.append(parts)
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                length = int(opcode.name[-1])
                stack[-length:] = [stack[-length:]]
            case "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_TUPLE" | "EMPTY_SET":
                stack.append([])
            case "APPEND":
                part = stack.pop()
                stack[-1].append(part)
            case "APPENDS":
                parts, stack = stack, outer.pop()
                stack[-1].extend(parts)
            case "SETITEM":
                key, value = stack[-2:]
                del stack[-2:]
                count(key)
                stack[-1] += [key, value]
            case "SETITEMS":
                parts, stack = stack, outer.pop()
                count(*parts[::2])  # the keys
                stack[-1].extend(parts)
            case "BUILD":
                state = stack.pop()
                count(state)
                stack[-1].append(state)
            case "REDUCE" | "NEWOBJ":
                arguments = stack.pop()
                count(arguments)
                if not isinstance(stack[-1], str):  # torch prints it
                    raise UserError("refused: it calls what is no function")
                if stack[-1].endswith(("Tensor", "Storage")):  # of as many numbers as it is told
                    raise UserError(f"refused: it calls {stack[-1]}")
                stack[-1] = [arguments]
            case "BINPERSID":
                count(stack[-1])
                stack[-1] = [stack[-1]]
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "PROTO":
                pass
            case "STOP":
                count(stack[-1])
            case _ if not opcode.stack_before:  # a number or a text
                if opcode.name == "GLOBAL" and str(argument).endswith(" bytearray"):  # of as many zeros as it is told
                    raise UserError("refused: it holds bytearray")
                stack.append(argument)
            case name:
                raise ValueError(f"{name} is no opcode of torch.save")


def check_tensors(state: Mapping[str, Any], size: int) -> None:
    """Refuse tensors that need more than what is stored for them.

    :param state: what was read of a file that passed :func:`check_archive` or :func:`check_old_file`
    :param size: bytes of that file
    :raises UserError: names the first of them
    """
    storages: dict[int, int] = {}
    needed = 0
    for name, tensor in _tensors(state):
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != strided or tensor.device.type != "cpu":
            raise UserError(f"refused: {name} is no plain tensor")
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        needed += tensor.nbytes
        if tensor.nbytes > storage.nbytes():
            raise UserError(f"refused: {name} has {tensor.numel():,} numbers, of which it stores fewer")
    if sum(storages.values()) > size:
        raise UserError("refused: its tensors are larger than the file")
    if needed > _NAMES_OF_A_TENSOR * size:
        raise UserError(f"refused: each of its tensors has more than {_NAMES_OF_A_TENSOR} names")


def _tensors(state: object) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of nested containers with the names by which they are found."""
    remaining: list[tuple[str, object]] = [("it", state)]
    while remaining:
        name, value = remaining.pop()
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, argparse.Namespace):
            remaining.append((name, vars(value)))
        elif isinstance(value, Mapping):
            remaining += [(key if isinstance(key, str) else name, part) for key, part in value.items()]
        elif isinstance(value, list | tuple | set):
            remaining += [(name, part) for part in value]


def stored_numbers(tensors: Iterable[Tensor]) -> int:
    """Return how many numbers the storages of tensors hold, each storage once."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
    return sum(storages.values())


class ParameterLimit:
    """Number of parameters that may be built; before anything is allowed, their number is not limited."""

    def __init__(self) -> None:
        self.tensors = self.numbers = 0
        self.refusal = ""  # unknown

    def allow(self, tensors: int, numbers: int) -> None:
        """Allow so many tensors and numbers more."""
        self.tensors, self.numbers = self.tensors + tensors, self.numbers + numbers
        self.refusal = "refused: its options describe a model too large to be built without stored parameters"

    def allow_for(self, tensors: int, numbers: int, path: str = "") -> None:
        """Allow what a model needs for which so many are stored; its path begins the refusal."""
        self.allow(4 * tensors + 100, 4 * numbers + 10**6)  # tied and replaced parameters are created several times
        self.refusal = f"{path}: " * bool(path) + "refused: its options describe far more parameters than it has"

    def allow_stored(self, parameters: Mapping[str, Tensor], path: str = "") -> None:
        """Allow what the model of a checkpoint needs."""
        self.allow_for(len(parameters), stored_numbers(parameters.values()), path)

    def count(self, module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        """Count a parameter that a module registers.

        :raises UserError: there are more than allowed
        """
        self.tensors, self.numbers = self.tensors - 1, self.numbers - (0 if parameter is None else parameter.numel())
        if self.refusal and min(self.tensors, self.numbers) < 0:
            raise UserError(self.refusal)


LIMIT: ContextVar[ParameterLimit | None] = ContextVar("limit of parameters", default=None)


@contextmanager
def limited_parameters() -> Iterator[ParameterLimit]:
    """Refuse to build models of far more parameters than are stored, before their memory is written.

    The block tells the limit what is stored, as soon as it knows.

    :raises UserError: there are more
    """
    limit = ParameterLimit()
    hook, token = register_module_parameter_registration_hook(limit.count), LIMIT.set(limit)
    try:
        yield limit
    finally:
        LIMIT.reset(token)
        hook.remove()


def check_dictionary(path: str | os.PathLike[str]) -> None:
    """Refuse a dictionary that is no regular file, or has a line that no word needs.

    :raises UserError: it is refused
    """
    check_regular(Path(path))
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(MAX_LETTERS + 1):
            number += 1
            if len(line) > MAX_LETTERS:
                raise UserError(f"{path}: refused: line {number} has more than {MAX_LETTERS:,} bytes; not a dictionary")
