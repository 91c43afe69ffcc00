"""Which row of DeBERTa's table of relative positions stands for which distance."""

import torch
from torch import Tensor

from regard.core.errors import InputError


def log_buckets(distances: Tensor, *, num_buckets: int, max_distance: int) -> Tensor:
    """The bucket of each distance: itself for the near ones, wider and wider ones for the far.

    With n = |distance| and m = num_buckets // 2:

        distance                                                                        for n <= m
        sign(distance) (m + ceil(ln(n / m) / ln((max_distance - 1) / m) (m - 1)))       else

    Args:
        distances: int64 of any shape, position of the query minus position of the key.
        num_buckets: twice the distances that have a bucket of their own, on either side.
        max_distance: from here on the formula goes beyond 2 m - 1, and the table ends.

    Returns:
        int64 of the same shape.

    Raises:
        InputError: too few buckets, or a `max_distance` that the near ones already reach.

    Source: He et al. 2021, arXiv 2006.03654, section 5.1 ("Scale up to 1.5 billion parameters") says that
    positions are encoded in buckets; the formula is in their code. In float32, as in `transformers`: a
    distance on the border of two buckets falls on the same side.
    """
    near = num_buckets // 2
    if near < 1:
        raise InputError(f"num_buckets must be at least 2; got {num_buckets}.")
    if max_distance - 1 <= near:
        raise InputError(
            f"max_distance must be greater than {near + 1}, where {num_buckets} buckets stop to be one "
            f"distance each; got {max_distance}."
        )
    n = distances.abs().clamp(min=near)  # the near ones are not read off the logarithm
    whole = torch.full_like(n, (max_distance - 1) / near, dtype=torch.float32)
    ratio = torch.log(n.float() / near) / torch.log(whole)
    far = (torch.ceil(ratio * (near - 1)) + near).to(torch.int64) * distances.sign()
    return torch.where(n <= near, distances, far)


def table_rows(length: int, *, span: int, num_buckets: int | None, max_distance: int) -> Tensor:
    """The row of the table for every distance in a text: int64 (2 length - 1,), that of 1 - length first.

    Args:
        length: tokens in the text.
        span: half the rows of the table.
        num_buckets: see `log_buckets`; None where every distance has a row, up to `span`.
        max_distance: see `log_buckets`.
    """
    distances = torch.arange(1 - length, length, device="cpu")
    if num_buckets is not None:
        distances = log_buckets(distances, num_buckets=num_buckets, max_distance=max_distance)
    return (distances + span).clamp_(0, 2 * span - 1)
