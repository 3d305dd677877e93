"""A limit on what a declared size may ask for: model files come from strangers."""

from __future__ import annotations

import os
from functools import lru_cache

from ..errors import ModelError

_ELSEWHERE = 16 * 2**30  # bytes, where the operating system does not say how much there is


@lru_cache(maxsize=1)
def limit() -> int:
    """The most bytes that one value may take: half of the machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return _ELSEWHERE // 2


def require_room(size: int, what: str) -> None:
    """Refuse a value of `size` bytes that would not fit.

    Raises:
        ModelError: it would take more than half of the machine's memory.
    """
    if size > limit():
        raise ModelError(
            f"{what}: a value of {size / 2**30:.1f} GiB; at most {limit() / 2**30:.1f} GiB fit this machine"
        )


def require_elements(shape: tuple[int, ...] | list[int], what: str, size: int = 4) -> None:
    """Refuse a shape whose elements of `size` bytes would not fit, or that has a negative size.

    Raises:
        ModelError: as `require_room`, or a negative size.
    """
    count = size
    for one in shape:
        if one < 0:
            raise ModelError(f"{what}: negative size in shape {list(shape)}")
        count *= one
    require_room(count, what)
