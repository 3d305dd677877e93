"""Quantisation of computed values: ties, ends of the range, axes."""

import pytest
import torch
from op_run import run


@pytest.mark.parametrize(
    "dtype, zero_point, expected",
    [
        ("int8", 0, [0, 2, 2, -2, 127, -128]),
        ("int8", -100, [-100, -98, -98, -102, 127, -128]),
        ("uint8", 10, [10, 12, 12, 8, 255, 0]),
    ],
)
def test_ties_go_to_even_before_the_zero_point_and_the_ends_hold(dtype, zero_point, expected):
    x = torch.tensor([0.5, 1.5, 2.5, -1.5, 1e9, -float("inf")])
    kind = torch.int8 if dtype == "int8" else torch.uint8
    got = run(
        "quantize", "CoreML7", input=x, scale=torch.tensor(1.0), output_dtype=dtype,
        zero_point=torch.tensor(zero_point, dtype=kind),
    )  # fmt: skip
    assert got.tolist() == expected and got.dtype == kind


def test_an_odd_zero_point_moves_no_tie():
    got = run(
        "quantize", input=[0.5, 2.5], scale=1.0, output_dtype="int8", zero_point=torch.tensor(3, dtype=torch.int8)
    )
    assert got.tolist() == [3, 5]


def test_scales_along_an_axis_and_back():
    x = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
    scale, zero = torch.tensor([0.5, 2.0]), torch.tensor([1, -1], dtype=torch.int8)
    for axis in (0, -2):
        got = run("quantize", input=x, scale=scale, output_dtype="int8", zero_point=zero, axis=axis)
        assert got.tolist() == [[3, -3, 7], [1, 1, -4]]  # 2 - 1, then 2.5 -> 2 and -3, all less 1
        back = run("dequantize", input=got, scale=scale, zero_point=zero, axis=axis)
        assert back.tolist() == [[1, -2, 3], [4, 4, -6]]
    plain = run("dequantize", input=torch.tensor([200], dtype=torch.uint8), scale=torch.tensor(0.5))
    assert plain.tolist() == [100] and plain.dtype == torch.float32
    with pytest.raises(ValueError, match="needs the axis"):
        run("quantize", input=x, scale=scale, output_dtype="int8")
