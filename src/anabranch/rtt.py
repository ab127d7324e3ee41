"""Matrices of measured round-trip times: reading them from files, and filling in what was not measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from anabranch.sites import TopologyError

Matrix = npt.NDArray[np.float64]

TENTHS = "rtt_tenths_ms"
"""The array of an .npz file: round-trip times in tenths of a millisecond, n x n or T x n x n, 0 where not
measured."""

LONGEST_MS = 1e9
"""Eleven days: a longer round trip is a mistake in the file, not a network."""


def load_rtt(path: str | Path) -> Matrix:
    """The round-trip times of a file in milliseconds, T x n x n, with NaN where none was measured.

    An ``.npz`` file holds an array ``rtt_tenths_ms``; any other is text: a row of the matrix a line,
    milliseconds separated by blanks, ``nan`` or 0 where none was measured.
    """
    path = Path(path)
    try:
        return measured(_tenths(path) if path.suffix == ".npz" else _text(path))
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    except Exception as error:  # zipfile, zlib and numpy's header parser each raise kinds of their own
        raise TopologyError(f"{path}: not a file of round-trip times ({error})") from None


def measured(matrix_ms: npt.ArrayLike) -> Matrix:
    """The matrix as T x n x n, checked, its diagonal 0 and NaN wherever nothing was measured."""
    try:
        matrix = np.array(matrix_ms, np.float64)
    except (TypeError, ValueError):
        raise TopologyError(
            "the RTT matrix has rows of different lengths, or something else than numbers"
        ) from None
    if matrix.ndim == 2:
        matrix = matrix[None]
    if matrix.ndim != 3 or matrix.shape[1] != matrix.shape[2] or 0 in matrix.shape:
        shape = " x ".join(map(str, matrix.shape))
        raise TopologyError(
            f"the RTT matrix is {shape}; it must be square, n x n, or T x n x n for T points in time"
        )
    wrong = np.argwhere((matrix < 0) | (matrix > LONGEST_MS))
    if len(wrong):
        t, i, j = wrong[0]
        raise TopologyError(
            f"the RTT from row {i} to column {j} (slice {t}) is {matrix[t, i, j]:g} ms; "
            f"it must be between 0 and {LONGEST_MS:g} (0 or nan: not measured)"
        )
    matrix[matrix == 0] = np.nan
    diagonal = np.arange(matrix.shape[1])
    matrix[:, diagonal, diagonal] = 0
    return matrix


def filled(matrix_ms: npt.ArrayLike) -> Matrix:
    """The matrix as T x n x n without gaps.

    What was not measured is taken from the other direction at that time; else it is the median of the pair,
    both directions, over time; else the shortest path through other sites.
    """
    matrix = measured(matrix_ms)
    back = matrix.transpose(0, 2, 1)
    matrix = np.where(np.isnan(matrix), back, matrix)
    if not np.isnan(matrix).any():
        return matrix
    both = np.concatenate([matrix, matrix.transpose(0, 2, 1)])
    gaps = np.argwhere(np.isnan(matrix).any(axis=0))
    for i, j in gaps:
        known = both[:, i, j][~np.isnan(both[:, i, j])]
        if len(known):
            column = matrix[:, i, j]
            column[np.isnan(column)] = np.median(known)
    if np.isnan(matrix).any():
        matrix = _detoured(matrix)
    return matrix


def _detoured(matrix: Matrix) -> Matrix:
    unknown = np.isnan(matrix)
    shortest = np.where(unknown, np.inf, matrix)
    for via in range(matrix.shape[1]):
        # Floyd and Warshall, all slices at once
        np.minimum(shortest, shortest[:, :, via, None] + shortest[:, None, via, :], out=shortest)
    out = np.where(unknown, shortest, matrix)
    lost = np.argwhere(np.isinf(out))
    if len(lost):
        _, i, j = lost[0]
        raise TopologyError(
            f"no RTT was ever measured between rows {i} and {j}, nor along any path between them; "
            "leave one of them out"
        )
    return out


def _tenths(path: Path) -> Matrix:
    with np.load(path, allow_pickle=False) as arrays:
        if TENTHS not in arrays:
            raise TopologyError(
                f"no array {TENTHS!r} in it, only {', '.join(arrays) or 'nothing'}; rename yours"
            )
        return np.asarray(arrays[TENTHS]).astype(np.float64) / 10.0


def _text(path: Path) -> Matrix:
    lines = path.read_text("utf-8").splitlines()
    rows = [row for row in (line.partition("#")[0].split() for line in lines) if row]
    if not rows:
        raise TopologyError("the file holds no numbers; write one row of the matrix a line, in milliseconds")
    for i, row in enumerate(rows):
        if len(row) != len(rows):
            raise TopologyError(
                f"row {i} has {len(row)} numbers in a matrix of {len(rows)} rows; it must be square"
            )
        for j, cell in enumerate(row):
            try:
                float(cell)
            except ValueError:
                raise TopologyError(
                    f"row {i}, column {j}: {cell!r} is not a number of milliseconds"
                ) from None
    return np.array(rows, np.float64)
