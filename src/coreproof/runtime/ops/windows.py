"""How many elements a sliding window pads before and after each spatial dimension."""

from __future__ import annotations

from collections.abc import Sequence

from .convert import Ints


def window_padding(
    pad_type: str, sizes: Sequence[int], kernel: Sequence[int], strides: Ints, dilations: Ints, pad: Ints | None
) -> list[tuple[int, int]]:
    """(before, after) of each spatial dimension.

    `same` makes the output ceil(size / stride) long, with the odd element after; `same_lower` before.

    Raises:
        ValueError: an unknown kind of padding, or a list of another length than the dimensions.
    """
    rank, pad_type = len(sizes), pad_type.lower()
    if len(kernel) != rank or len(strides) != rank or len(dilations) != rank or min((*strides, *dilations, 1)) < 1:
        raise ValueError(f"kernel {list(kernel)}, strides {strides} and dilations {dilations} for {rank} dimensions")
    if pad_type == "valid":
        return [(0, 0)] * rank
    if pad_type == "custom":
        amounts = pad or [0] * 2 * rank
        if len(amounts) != 2 * rank:
            raise ValueError(f"pad has {len(amounts)} values; expected {2 * rank}")
        return [(amounts[2 * i], amounts[2 * i + 1]) for i in range(rank)]
    if pad_type not in ("same", "same_lower"):
        raise ValueError(f"unknown pad_type {pad_type!r}")
    found = []
    for size, window, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (window - 1) * dilation + 1
        total = max(0, (-(-size // stride) - 1) * stride + reach - size)
        less = total // 2
        found.append((less, total - less) if pad_type == "same" else (total - less, less))
    return found


def for_torch(padding: Sequence[tuple[int, int]]) -> list[int]:
    """The padding as torch.nn.functional.pad takes it: the last dimension first."""
    return [amount for pair in reversed(padding) for amount in pair]
