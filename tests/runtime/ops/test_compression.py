"""Compressed weights, against values worked out one by one."""

import numpy as np
import pytest
import torch
from op_run import run

from coreproof.errors import ModelError

GENERATOR = np.random.default_rng(0)


def u8(values):
    return torch.tensor(values, dtype=torch.uint8)


def test_affine_dequantize_of_one_scale_and_of_one_for_each_channel():
    data = torch.tensor([[0, 255, 7], [1, 2, 3]], dtype=torch.uint8)
    got = run(
        "constexpr_affine_dequantize", "CoreML6", quantized_data=data, zero_point=u8(7), scale=torch.tensor(0.5), axis=0
    )
    assert got.tolist() == [[-3.5, 124, 0], [-3, -2.5, -2]]
    got = run(
        "constexpr_affine_dequantize", "CoreML6", quantized_data=data, zero_point=u8([0, 1, 2]),
        scale=torch.tensor([1.0, 2.0, 4.0]), axis=-1,
    )  # fmt: skip
    assert got.tolist() == [[0, 508, 20], [1, 2, 4]]


@pytest.mark.parametrize("bits", [1, 2, 4, 6, 8])
def test_packed_indices_across_bytes(bits):
    indices = GENERATOR.integers(0, 1 << bits, 21)
    number = sum(int(index) << (bits * place) for place, index in enumerate(indices))
    packed = number.to_bytes((21 * bits + 7) // 8, "little")
    lut = torch.arange(1 << bits) * 0.5 - 3
    got = run("constexpr_lut_to_dense", "CoreML6", indices=u8(list(packed)), lut=lut, shape=[3, 7])
    assert got.tolist() == (indices.reshape(3, 7) * 0.5 - 3).tolist()


def test_packed_forms_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 bytes hold fewer than 9 entries of 2 bits"):
        run("constexpr_lut_to_dense", "CoreML6", indices=u8([0, 0]), lut=torch.zeros(4), shape=[9])
    with pytest.raises(ValueError, match="a table of 5 entries"):
        run("constexpr_lut_to_dense", "CoreML6", indices=u8([0, 0]), lut=torch.zeros(5), shape=[2])
    with pytest.raises(ModelError, match="GiB"):
        run("constexpr_lut_to_dense", "CoreML6", indices=u8([0]), lut=torch.zeros(2), shape=[2**40])
    with pytest.raises(ValueError, match="a mask with 2 ones for 3 values"):
        run("constexpr_sparse_to_dense", "CoreML6", nonzero_data=torch.ones(3), mask=u8([0b101]), shape=[4])


def test_sparse_to_dense_of_both_versions():
    values = torch.tensor([5, -6, 7], dtype=torch.int8)
    packed = u8([0b00000010, 0b00000011])  # places 1, 8 and 9
    got = run("constexpr_sparse_to_dense", "CoreML7", nonzero_data=values, mask=packed, shape=[2, 5])
    assert got.tolist() == [[0, 5, 0, 0, 0], [0, 0, 0, -6, 7]] and got.dtype == torch.int8
    mask = u8([[0, 1, 0], [1, 0, 1]])
    assert run("constexpr_sparse_to_dense", nonzero_data=values, mask=mask).tolist() == [[0, 5, 0], [-6, 0, 7]]


def test_cast_keeps_the_values():
    x = torch.tensor([1.5, -2.0])
    for opset in ("CoreML6", "CoreML8"):
        assert torch.equal(run("constexpr_cast", opset, source_val=x, output_dtype="fp32"), x)
    with pytest.raises(ValueError, match="output_dtype 'int32'"):
        run("constexpr_cast", source_val=x, output_dtype="int32")


def test_scale_and_offset_by_blocks():
    data = torch.tensor([[1, 2, 3, 4], [5, 6, 7, -8]], dtype=torch.int8)
    scale, offset = torch.tensor([[1.0, 10.0]]), torch.tensor([[1, -1]], dtype=torch.int8)
    got = run("constexpr_blockwise_shift_scale", data=data, scale=scale, offset=offset)
    assert got.tolist() == [[0, 1, 40, 50], [4, 5, 80, -70]]
    assert run("constexpr_blockwise_shift_scale", data=data, scale=scale).tolist()[1] == [5, 6, 70, -80]
    for shape in ((1, 3), (1,), (1, 8)):
        with pytest.raises(ValueError, match="do not divide"):
            run("constexpr_blockwise_shift_scale", data=data, scale=torch.ones(shape))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_vectors_of_a_table_are_laid_along_the_axis(axis):
    indices = u8([[0, 1], [1, 1], [0, 0]])
    vectors = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    got = run("constexpr_lut_to_dense", indices=indices, lut=torch.tensor(vectors)[None, None], vector_axis=axis)
    spread = [[vectors[index] for index in row] for row in indices.tolist()]
    rows, columns = 3, 2
    expected = (
        [[spread[r][c][k] for c in range(columns)] for r in range(rows) for k in range(3)]
        if axis == 0
        else [[spread[r][c][k] for c in range(columns) for k in range(3)] for r in range(rows)]
    )
    assert got.tolist() == expected


def test_tables_that_do_not_fit_are_refused():
    for operands, text in (
        ({"lut": torch.zeros(2, 2, 1)}, "a table of shape"),
        ({"lut": torch.zeros(1, 1, 2, 3)}, "vectors need a vector_axis"),
        ({"lut": torch.zeros(1, 1, 1, 1)}, "index 1 in a table of 1 entries"),
        ({"lut": torch.zeros(3, 1, 2, 1)}, "do not divide"),
    ):
        with pytest.raises(ValueError, match=text):
            run("constexpr_lut_to_dense", indices=u8([[0, 1], [1, 1]]), **operands)


def test_sparse_tables_follow_the_specifications_example():
    mask = u8([[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1], [0, 1, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0]])
    indices = u8([0, 1, 1, 0, 1, 1, 0, 0, 1])
    got_mask, values = run(
        "constexpr_lut_to_sparse", indices_mask=mask, indices_nonzero_data=indices,
        lut=torch.tensor([2.0, 3.0]).reshape(1, 1, 2, 1),
    )  # fmt: skip
    assert torch.equal(got_mask, mask) and values.tolist() == [2, 3, 3, 2, 3, 3, 2, 2, 3]
    got_mask, values = run(
        "constexpr_lut_to_sparse", indices_mask=mask, indices_nonzero_data=indices,
        lut=torch.tensor([[2.0, -2.0], [3.0, -3.0]])[None, None], vector_axis=0,
    )  # fmt: skip
    assert torch.equal(got_mask, mask.repeat_interleave(2, 0))
    assert values.tolist() == [2, 3, -2, -3, 3, 2, 3, -3, -2, -3, 3, 2, 2, -3, -2, -2, 3, -3]


def test_sparse_scales():
    mask = u8([[1, 0], [1, 1]])
    got_mask, values = run(
        "constexpr_sparse_blockwise_shift_scale", data_mask=mask,
        nonzero_data=torch.tensor([10, 3, 4], dtype=torch.int8), scale=torch.tensor([[0.5, 2.0]]),
        offset=torch.tensor([[1, 2]], dtype=torch.int8),
    )  # fmt: skip
    assert torch.equal(got_mask, mask) and values.tolist() == [4.5, 1, 4]
