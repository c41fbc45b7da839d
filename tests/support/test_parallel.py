"""Work in chunks: in order, over processes, and no more of the input in memory than it takes."""

import os

import pytest

from ode_transformer.support.errors import UserError
from ode_transformer.support.parallel import map_chunks


def squares(numbers: list[int]) -> list[int]:
    return [number * number for number in numbers]


def one_for_all(numbers: list[int]) -> list[tuple[int, int]]:
    return [(os.getpid(), sum(numbers))]


def refuse(numbers: list[int]) -> list[int]:
    raise UserError(f"{numbers[0]}: no")


@pytest.mark.parametrize("workers", [1, 2])
def test_results_keep_the_order(workers: int) -> None:
    assert list(map_chunks(squares, range(25), workers, "numbers", chunk_size=4)) == squares(list(range(25)))


def test_a_chunk_may_give_another_number_of_results_and_other_processes_do_the_work() -> None:
    found = list(map_chunks(one_for_all, range(10), 2, "numbers", chunk_size=4))
    assert [total for _, total in found] == [0 + 1 + 2 + 3, 4 + 5 + 6 + 7, 8 + 9]
    assert os.getpid() not in {process for process, _ in found}
    assert {process for process, _ in map_chunks(one_for_all, range(10), 1, "numbers", chunk_size=4)} == {os.getpid()}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_through_as_it_is(workers: int) -> None:
    with pytest.raises(UserError, match="4: no"):
        list(map_chunks(refuse, range(4, 10), workers, "numbers"))
