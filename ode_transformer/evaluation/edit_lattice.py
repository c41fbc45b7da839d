"""The edits of a correction: the path through its edit lattice that agrees most with an annotator (MaxMatch).

Dahlmeier & Ng 2012, "Better evaluation for grammatical error correction", Section 3.

    lattice       vertex (i, j): i tokens of the source have become j tokens of the hypothesis. An edge deletes,
                  inserts, substitutes or keeps one token. There are those edges that lie on a cheapest path from
                  (0, 0) to the end, where a substitution costs 1, or where it costs 2 like a deletion and an insertion
    edit          a path within the lattice that changes at least one token and keeps at most ``max_unchanged``
    correct edit  the same span and the same tokens as a gold edit by one of its alternatives; each gold edit counts
                  once, and several insertions at one place match in the order of the annotation
    system edits  of the path from (0, 0) to the end that has, in this order: most correct edits, fewest edges outside
                  them, fewest other edits

The path is found by dynamic programming over the vertices in their order. Merged edits are never listed: being within
an edit, and how many tokens it has kept, is part of the state, so that the time is proportional to the lattice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ode_transformer.evaluation.m2_file import Edit

Tokens = Sequence[str]
Vertex = tuple[int, int]
Lattice = dict[Vertex, set[Vertex]]  # vertices in rising order, each with those from which an edge leads to it

# At a vertex: how many of the gold insertions at this place are matched or passed over, and how many tokens the edit
# that is going on has kept, or OUTSIDE of edits.
State = tuple[int, int]
OUTSIDE = -1
Reached = dict[State, tuple[int, "tuple[Vertex, State] | None"]]  # state: its cost, and vertex and state before it

MAX_UNCHANGED = 2


@dataclass(frozen=True)
class SystemEdit:
    """Tokens ``start`` to ``end`` (exclusive) of the source became ``correction``."""

    start: int
    end: int
    correction: tuple[str, ...]
    correct: bool

    def __str__(self) -> str:
        return f"{self.start}-{self.end} {' '.join(self.correction) or '(nothing)'}"


def edit_lattice(source: Tokens, hypothesis: Tokens) -> Lattice:
    """The edges of all cheapest paths, with substitutions at the price of one edit and at that of two."""
    lattice: defaultdict[Vertex, set[Vertex]] = defaultdict(set)
    end = len(source), len(hypothesis)
    for substitution in (1, 2):
        costs = _edit_costs(source, hypothesis, substitution)
        to_visit, seen = [end], {end}
        while to_visit:
            i, j = to_visit.pop()
            lattice[i, j]  # the start has no edge to it
            diagonal = substitution if i and j and source[i - 1] != hypothesis[j - 1] else 0
            for before, price in (((i - 1, j), 1), ((i, j - 1), 1), ((i - 1, j - 1), diagonal)):
                if min(before) >= 0 and costs[before[0]][before[1]] + price == costs[i][j]:
                    lattice[i, j].add(before)
                    if before not in seen:
                        seen.add(before)
                        to_visit.append(before)
    return dict(sorted(lattice.items()))


def _edit_costs(source: Tokens, hypothesis: Tokens, substitution: int) -> list[list[int]]:
    """costs[i][j]: the least from the first i tokens to the first j, where an insertion or deletion costs 1."""
    costs = [list(range(len(hypothesis) + 1))]
    for i, old in enumerate(source, start=1):
        above, left = costs[-1], i
        row = [left]
        for j, new in enumerate(hypothesis):
            left = min(above[j + 1] + 1, left + 1, above[j] + (0 if old == new else substitution))
            row.append(left)
        costs.append(row)
    return costs


def best_edits(
    source: Tokens, hypothesis: Tokens, gold: Sequence[Edit], lattice: Lattice, max_unchanged: int = MAX_UNCHANGED
) -> list[SystemEdit]:
    """The system's edits for one annotator, from left to right.

    :param gold: the annotator's edits in the order of their spans
    """
    # Costs are whole numbers, in which a correct edit outweighs all edges, and an edge all edits.
    edge = len(source) + len(hypothesis) + 2
    match = edge**2
    arcs = _correct_arcs(source, hypothesis, gold, lattice, max_unchanged)
    best: dict[Vertex, Reached] = {(0, 0): {(0, OUTSIDE): (0, None)}}
    for vertex, predecessors in lattice.items():
        here = best.setdefault(vertex, {})

        def offer(state: State, cost: int, step: tuple[Vertex, State], here: Reached = here) -> None:
            if state not in here or cost < here[state][0]:
                here[state] = cost, step

        for before in predecessors:
            kept = _keeps(source, hypothesis, before, vertex)
            for state, (cost, _) in best[before].items():
                passed, unchanged = state[0] if before[0] == vertex[0] else 0, state[1]
                if not kept:  # begins an edit or goes on with it
                    offer((passed, max(unchanged, 0)), cost + edge + (unchanged == OUTSIDE), (before, state))
                elif unchanged == OUTSIDE:
                    offer((passed, OUTSIDE), cost + edge, (before, state))
                elif unchanged < max_unchanged:
                    offer((passed, unchanged + 1), cost + edge, (before, state))
        for before, order in arcs.get(vertex, ()):
            for state, (cost, _) in best[before].items():
                if state[1] == OUTSIDE and (order is None or state[0] <= order):
                    offer((0 if order is None else order + 1, OUTSIDE), cost - match, (before, state))
        for state, (cost, _) in list(here.items()):
            if state[1] != OUTSIDE:  # the edit ends
                offer((state[0], OUTSIDE), cost, (vertex, state))
    return _edits_of_path(best, (len(source), len(hypothesis)), source, hypothesis)


def _keeps(source: Tokens, hypothesis: Tokens, before: Vertex, after: Vertex) -> bool:
    """Whether the edge between two vertices keeps a token."""
    (i, j), (k, m) = before, after
    return i < k and j < m and source[i] == hypothesis[j]


def _correct_arcs(
    source: Tokens, hypothesis: Tokens, gold: Sequence[Edit], lattice: Lattice, max_unchanged: int
) -> dict[Vertex, list[tuple[Vertex, int | None]]]:
    """Edits that are gold edits, by the vertex where they end: where they begin, and the number of an insertion among
    the gold insertions at its place."""
    arcs: dict[Vertex, list[tuple[Vertex, int | None]]] = {}
    insertions: defaultdict[int, int] = defaultdict(int)
    for edit in gold:
        order = None
        if edit.start == edit.end:
            order = insertions[edit.start]
            insertions[edit.start] += 1
        for correction in set(edit.corrections) - {tuple(source[edit.start : edit.end])}:
            for j in range(len(hypothesis) - len(correction) + 1):
                start, end = (edit.start, j), (edit.end, j + len(correction))
                if start in lattice and end in lattice and tuple(hypothesis[j : end[1]]) == correction:
                    kept = _fewest_kept(source, hypothesis, lattice, start, end)
                    if kept is not None and kept <= max_unchanged:
                        arcs.setdefault(end, []).append((start, order))
    return arcs


def _fewest_kept(source: Tokens, hypothesis: Tokens, lattice: Lattice, start: Vertex, end: Vertex) -> int | None:
    """How many tokens a path within the lattice keeps at least; None if there is no path."""
    fewest = {start: 0}
    for i in range(start[0], end[0] + 1):
        for j in range(start[1], end[1] + 1):
            reached = [
                fewest[before] + _keeps(source, hypothesis, before, (i, j))
                for before in lattice.get((i, j), ())
                if before in fewest
            ]
            if reached and (i, j) != start:
                fewest[i, j] = min(reached)
    return fewest.get(end)


def _edits_of_path(best: dict[Vertex, Reached], end: Vertex, source: Tokens, hypothesis: Tokens) -> list[SystemEdit]:
    """Goes back from the end's cheapest state."""
    final = {state: cost for state, (cost, _) in best[end].items() if state[1] == OUTSIDE}
    vertex, state = end, min(final, key=lambda state: final[state])
    edits: list[SystemEdit] = []
    stop: Vertex | None = None  # where the edit that is going on ends
    while (step := best[vertex][state][1]) is not None:
        before, state_before = step
        if before == vertex:
            stop = vertex
        elif state[1] != OUTSIDE and state_before[1] == OUTSIDE:
            assert stop is not None
            edits.append(SystemEdit(before[0], stop[0], tuple(hypothesis[before[1] : stop[1]]), False))
        elif state[1] == state_before[1] == OUTSIDE and not _is_edge(source, hypothesis, before, vertex):
            edits.append(SystemEdit(before[0], vertex[0], tuple(hypothesis[before[1] : vertex[1]]), True))
        vertex, state = step
    return edits[::-1]


def _is_edge(source: Tokens, hypothesis: Tokens, before: Vertex, after: Vertex) -> bool:
    """A step outside of edits keeps one token, or is a correct edit."""
    return (after[0] - before[0], after[1] - before[1]) == (1, 1) and _keeps(source, hypothesis, before, after)
