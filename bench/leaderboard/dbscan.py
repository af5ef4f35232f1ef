"""DBSCAN in the plane (Ester et al. 1996), as far as PERSEUS needs it: the members of the largest cluster."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from laggard_aggregator.detect.interface import BoolArray, FloatArray

Cells = dict[tuple[int, int], NDArray[np.intp]]
STEPS = sorted(
    ((x, y) for x in range(3) for y in range(-2, 3) if (x, y) > (0, 0)), key=lambda s: s[0] ** 2 + s[1] ** 2
)
"""To the squares that may hold points near a square's own, each pair once, the nearest first."""


def largest_cluster(points: FloatArray, distance: float, members: int) -> BoolArray:
    """True for the points (N, 2) of the cluster with the most of them; (N,).

    A point with `members` points within `distance`, itself included, is a core point; core points within that
    distance of each other are one cluster, and other points belong to the cluster of their nearest core
    point, if that is near enough. Exact: points of a square with a diagonal of `distance` are near each
    other, so only squares are joined.
    """
    cells = _cells(points, distance)
    core = np.zeros(len(points), dtype=np.bool_)
    for inside in cells.values():
        core[inside] = inside.size >= members
    sparse = np.flatnonzero(~core)
    tree = cKDTree(points)
    near = tree.query_ball_point(points[sparse], distance, return_length=True) if sparse.size else np.zeros(0)
    core[sparse] = near >= members
    if not core.any():
        return core
    cores = np.flatnonzero(core)
    cluster = _clusters(points[cores], distance)
    to, nearest = cKDTree(points[cores]).query(points)
    labels = np.where(to <= distance, cluster[nearest], -1)
    largest: BoolArray = labels == np.bincount(labels[labels >= 0]).argmax()
    return largest


def _cells(points: FloatArray, distance: float) -> Cells:
    """The places of the points in each square."""
    square = np.floor(points / (distance / np.sqrt(2))).astype(np.int64)
    order = np.lexsort(square.T)
    cuts = np.flatnonzero((np.diff(square[order], axis=0) != 0).any(axis=1)) + 1
    return {
        (int(square[inside[0], 0]), int(square[inside[0], 1])): inside for inside in np.split(order, cuts)
    }


def _clusters(cores: FloatArray, distance: float) -> NDArray[np.intp]:
    """The cluster of each core point: its square's, squares with two points near each other being joined."""
    cells = _cells(cores, distance)
    leader = {cell: cell for cell in cells}

    def led_by(cell: tuple[int, int]) -> tuple[int, int]:
        while leader[cell] != cell:
            leader[cell] = leader[leader[cell]]
            cell = leader[cell]
        return cell

    for dx, dy in STEPS:
        for cell, inside in cells.items():
            other = (cell[0] + dx, cell[1] + dy)
            if other not in cells or led_by(cell) == led_by(other):
                continue
            if (cdist(cores[inside], cores[cells[other]], "sqeuclidean") <= distance**2).any():
                leader[led_by(cell)] = led_by(other)
    number = {cell: n for n, cell in enumerate(cells)}
    cluster = np.empty(len(cores), dtype=np.intp)
    for cell, inside in cells.items():
        cluster[inside] = number[led_by(cell)]
    return cluster
