"""Groups of vectors, as many as are stable."""

from typing import Any, Final
from warnings import catch_warnings

import numpy as np
from numpy.typing import NDArray

from regard.concordance._teach import learning
from regard.concordance._vectors import Vectors
from regard.core.errors import InputError

_STABLE: Final = 0.6  # the least adjusted Rand index of a stable grouping
_MOST_GROUPS: Final = 8
_HALVES, _NULLS, _DIRECTIONS, _PART = 20, 19, 20, 1000


def grouping(
    vectors: Vectors, count: int | None = None, seed: int = 0
) -> tuple[NDArray[np.int64], float | None, str]:
    """Groups of vectors, 0 the largest; how stable they are; and that in words.

    K-means in the 20 directions of most variance. The number of groups is that of the largest silhouette,
    among those that half samples give again and whose silhouette is beyond that of 19 normal clouds.

    Source: Lloyd 1982; Rousseeuw 1987 (silhouettes); Liu et al. 2008 (a normal cloud as the null).
    """
    names = ("sklearn.cluster", "sklearn.exceptions", "sklearn.metrics", "threadpoolctl")
    cluster, exceptions, metrics, threads = map(learning, names)
    size, rng = len(vectors), np.random.default_rng(seed)
    distinct = len(np.unique(vectors, axis=0))
    most = min(_MOST_GROUPS, size // 10, distinct - 1)
    one = np.zeros(size, np.int64)
    if count is not None and not 2 <= count < distinct:
        raise InputError(
            f"groups must be 2 or more, and fewer than the {distinct} distinct uses; got {count}."
        )
    if count is None and most < 2:
        return one, None, f"Too few to part, {distinct} of them distinct: one group."
    part = np.sort(rng.choice(size, min(size, _PART), replace=False))
    centred = (vectors - vectors[part].mean(0)).astype(np.float64)
    points = centred @ np.linalg.svd(centred[part], full_matrices=False)[2][:_DIRECTIONS].T
    some = points[part]

    def split(of: NDArray[np.float64], groups: int) -> tuple[Any, float]:
        fitted = cluster.KMeans(groups, n_init=4, random_state=seed).fit(of)
        parted = groups == len(set(fitted.labels_)) < len(of)
        return fitted, float(metrics.silhouette_score(of, fitted.labels_)) if parted else -1.0

    found = []
    # A second thread makes so small a task ten times slower. Half of uses that are alike may be fewer groups.
    with (
        threads.threadpool_limits(1),
        catch_warnings(action="ignore", category=exceptions.ConvergenceWarning),
    ):
        for groups in range(2, most + 1) if count is None else [count]:
            whole, score = split(some, groups)
            halves = [rng.permutation(len(some))[: max(groups, len(some) // 2)] for _ in range(_HALVES)]
            again = [split(some[half], groups)[0].predict(some) for half in halves]
            stability = float(np.mean([metrics.adjusted_rand_score(whole.labels_, each) for each in again]))
            found.append((score, stability, groups, whole))
        for score, stability, groups, whole in sorted(found, key=lambda each: -each[0]):
            clouds = (rng.standard_normal(some.shape) * some.std(0) for _ in range(_NULLS))
            if count is None and (
                stability < _STABLE or any(split(cloud, groups)[1] >= score for cloud in clouds)
            ):
                continue
            labels = whole.predict(points)
            order = np.argsort(np.argsort(-np.bincount(labels, minlength=groups), kind="stable"))
            said = "stable" if stability >= _STABLE else "not stable"
            about = (
                f"{groups} groups of vectors, {said}: half of the uses give them again with an adjusted Rand "
                f"index of {stability:.2f} (1 is the same, 0 chance). A dictionary may part them otherwise."
            )
            return order[labels], stability, about
    _, stability, groups, _ = max(found, key=lambda each: each[1])
    about = (
        f"One group: no split is both stable and clearer than chance. The most stable, into {groups}, has "
        f"an adjusted Rand index of {stability:.2f}."
    )
    return one, None, about
