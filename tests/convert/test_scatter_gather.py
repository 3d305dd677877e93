"""Reads and writes at places: every form against torch, exactly, as it is converted and after the passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import coremltools as ct
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Program
from executorch.exir import EdgeCompileConfig, to_edge
from mil_eval import evaluate
from torch.export import Dim, ExportedProgram, export

from coreproof.convert.program import run_passes, to_mil, to_mlmodel

aten = torch.ops.aten
T = torch.tensor
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def counting(*shape: int) -> torch.Tensor:
    """Integers of both signs as floats, so that sums are exact in any order."""
    return torch.arange(float(np.prod(shape))).reshape(shape) - 20


class Case(NamedTuple):
    function: Callable[..., torch.Tensor]
    inputs: tuple[torch.Tensor, ...]


def put(*indices: Any, x: torch.Tensor, v: torch.Tensor, accumulate: bool = False) -> Case:
    """`index_put` at run-time indices; None stands for a whole slice."""
    places = [i for i in indices if i is not None]

    def function(x, v, *places):
        remaining = iter(places)
        return aten.index_put(x, [i if i is None else next(remaining) for i in indices], v, accumulate)

    return Case(function, (x, v, *places))


def read(*indices: Any, x: torch.Tensor) -> Case:
    """`index.Tensor` at run-time indices; None stands for a whole slice."""

    def function(x, *places):
        remaining = iter(places)
        return aten.index.Tensor(x, [i if i is None else next(remaining) for i in indices])

    return Case(function, (x, *(i for i in indices if i is not None)))


X = normal(4, 5, 3)
COUNT = counting(4, 5, 3)
INTS = torch.arange(60).reshape(4, 5, 3) - 30
CACHE = normal(2, 3, 8, 4)
RANK5 = normal(2, 3, 4, 2, 2)
INT_MAX = 2**31 - 1

INDEX_PUT = {
    "one": put(T([2, -4]), x=X, v=normal(2, 5, 3)),
    "two": put(T([2, 0]), T([-1, 3]), x=X, v=normal(2, 3)),
    "slice_before": put(None, T([4, -5]), x=X, v=normal(4, 2, 3)),
    "slice_before_one_entry": put(None, T([-1]), x=X, v=normal(4, 1, 3)),
    "slices_before": put(None, None, T([2, 0]), x=X, v=normal(4, 5, 2)),
    "cache_prefill": put(None, None, T([1, 5, -2]), x=CACHE, v=normal(2, 3, 3, 4)),
    "cache_decode": put(None, None, T([5]), x=CACHE, v=normal(2, 3, 1, 4)),
    "cache_constant": Case(lambda x, v: aten.index_put(x, [None, None, T([1, -2])], v), (CACHE, normal(2, 3, 2, 4))),
    "slice_between": put(T([2, 0, -1]), None, T([2, 0, 1]), x=X, v=normal(3, 5)),
    "slice_around": put(None, T([2, 0, -1]), T([2, 0, 1]), x=CACHE, v=normal(2, 3, 4)),
    "places_go_first": put(None, T([2, 0, -1]), None, T([2, 0, 1]), x=CACHE, v=normal(3, 2, 8)),
    "index_shapes": put(T([[2], [0]]), T([-1, 3, 0]), x=X, v=normal(2, 3, 3)),
    "index_shapes_slice": put(None, T([[2], [0]]), T([-1, 1, 0]), x=X, v=normal(4, 2, 3)),
    "one_entry_two_axes": put(T([[-1]]), None, T([1]), x=X, v=normal(1, 1, 5)),
    "index_of_rank_2": put(None, T([[0, 3], [-1, 1]]), x=X, v=normal(4, 2, 2, 3)),
    "value_0d": put(None, T([2, 0]), x=X, v=T(7.5)),
    "value_constant": Case(lambda x, i: aten.index_put(x, [None, i], T(7.5)), (X, T([2, 0]))),
    "value_one_element": put(T([2, 0]), x=X, v=T([7.5])),
    "value_trailing": put(T([2, 0]), x=X, v=normal(3)),
    "value_of_places": put(None, T([2, 0]), x=X, v=normal(2, 1)),
    "value_nonfinite": put(None, T([2, 0]), x=X, v=T([[float("nan")], [-float("inf")]])),
    "accumulate": put(T([2, 2, -2]), x=COUNT, v=counting(3, 5, 3), accumulate=True),
    "accumulate_slice": put(None, T([2, 2, -3]), x=COUNT, v=counting(4, 3, 3), accumulate=True),
    "accumulate_shapes": put(T([[2], [2]]), T([-1, 3, 3]), x=COUNT, v=counting(2, 3, 3), accumulate=True),
    "accumulate_one_entry": put(None, T([-1]), x=COUNT, v=T(3.0), accumulate=True),
    "accumulate_int": put(T([2, 2, -2]), x=INTS, v=INTS[:3], accumulate=True),
    "mask": put(X > 0, x=X, v=T(3.0)),
    "mask_leading": put(X[..., 0] > 0, x=X, v=T([3.0])),
    "mask_row": put(X[..., 0] > 0, x=X, v=normal(3)),
    "mask_broadcast": put(X[:, 0, 0] > 0, x=X, v=normal(1, 5, 1)),
    "mask_slice": put(None, X[0] > 0, x=X, v=normal(4, 1)),
    "mask_accumulate": put(X[..., 0] > 0, x=COUNT, v=T(3.0), accumulate=True),
    "mask_int": put(INTS > 3, x=INTS, v=T(INT_MAX)),
    "mask_constant": Case(
        lambda x, v: aten.index_put(x, [T([True, False, False, True])], v), (X, normal(2, 5, 3))
    ),
    "mask_all_false": Case(lambda x, v: aten.index_put(x, [T([False] * 4)], v) + 1, (X, normal(1, 5, 3))),
    "bool": Case(lambda x, i, v: aten.index_put(x > 0, [i], v > 0), (X, T([2, -4]), normal(2, 5, 3))),
    "bool_slice": Case(lambda x, i, v: aten.index_put(x > 0, [None, i], v > 0), (X, T([2, 0]), normal(4, 2, 3))),
    "bool_one_entry": Case(lambda x, i, v: aten.index_put(x > 0, [None, i], v > 0), (X, T([2]), normal(4, 1, 3))),
    "bool_mask": Case(lambda x, m: aten.index_put(x > 0, [m], T(True)), (X, X[..., 1] > 0)),
    "bool_accumulate": Case(
        lambda x, i, v: aten.index_put(x > 0, [i], v > 0, True), (X, T([2, 0, 2]), normal(3, 5, 3))
    ),
    "index_0d": put(T(-2), x=X, v=normal(5, 3)),
    "index_0d_slice": put(None, T(-2), x=X, v=normal(4, 3)),
    "index_0d_row": put(None, T(1), x=X, v=normal(3)),
    "index_0d_and_1d": put(T(-2), T([1, -1, 0]), x=X, v=normal(3, 3)),
    "index_0d_all": put(T(-2), T(1), T(-1), x=X, v=T(4.0)),
    "index_0d_apart": put(T(-2), None, T(1), x=X, v=normal(5)),
    "int": put(None, T([2, -5]), x=INTS, v=INTS[:, :2]),
    "int_extreme": put(T([2, -1]), x=INTS.int(), v=torch.full((2, 5, 3), -INT_MAX - 1, dtype=torch.int32)),
    "int32_index": put(None, T([2, -5]).int(), x=X, v=normal(4, 2, 3)),
    "rank_1": put(T([2, -5]), x=normal(6), v=normal(2)),
    "rank_5": put(None, T([2, -3]), None, T([0, 1]), x=RANK5, v=normal(2, 2, 4, 2)),
    "unsafe": Case(
        lambda x, i, v: aten._unsafe_index_put(x, [None, i], v), (X, T([2, -1]), normal(4, 2, 3))
    ),
}  # fmt: skip

INDEX = {
    "read_one": read(T([2, -1]), x=X),
    "read_slice": read(None, T([2, -1]), x=X),
    "read_constant": Case(lambda x: x[:, T([-1, 2])], (X,)),
    "read_two": read(None, T([2, -1]), T([-1, 0]), x=X),
    "read_apart": read(None, T([2, -1]), None, T([-1, 0]), x=CACHE),
    "read_shapes": read(None, T([[2], [-1]]), T([-1, 0, 1]), x=X),
    "read_rank_2": read(None, T([[0, 3], [-1, 1]]), x=X),
    "read_0d": read(None, T(-2), x=X),
    "read_0d_two": read(T(-2), T(1), x=X),
    "read_0d_inner": read(None, T(-2), T(1), x=X),
    "read_0d_apart": read(T(-2), None, T([1, -1]), x=X),
    "read_0d_all": read(T(-2), T(1), T(-1), x=X),
    "read_0d_of_rank_1": read(T(-2), x=normal(5)),
    "read_bool": Case(lambda x, i: aten.index.Tensor(x > 0, [None, i]), (X, T([2, -1]))),
    "read_bool_two": Case(lambda x, i, j: aten.index.Tensor(x > 0, [i, j]), (X, T([2, -1]), T([1, 0]))),
    "read_int": read(T([2, -1]), T([0, 1]), x=torch.full((4, 5, 3), INT_MAX, dtype=torch.int32)),
    "read_mask_constant": Case(lambda x: x[:, T([True, False, True, True, False])], (X,)),
    "read_rank_5": read(None, T([2, -3]), None, T([0, 1]), x=RANK5),
    "index_select_0d": Case(lambda x, i: aten.index_select(x, -2, i), (X, T(3))),
    "index_select_bool": Case(lambda x, i: aten.index_select(x > 0, 1, i), (X, T([3, 0]))),
}

SPREAD = T([0, 3, 3])[None, :, None].repeat(4, 1, 3)  # repeated places, so only for sums
APART = T([0, 3])[None, :, None].repeat(4, 1, 3)

SCATTER_GATHER = {
    "gather": Case(lambda x, i: aten.gather(x, -2, i), (X, SPREAD)),
    "gather_small_index": Case(lambda x, i: aten.gather(x, 1, i), (X, SPREAD[:2, :, 1:])),
    "gather_bool": Case(lambda x, i: aten.gather(x > 0, 1, i), (X, SPREAD)),
    "gather_0d": Case(lambda x, i: aten.gather(x, 0, i), (normal(5), T(3))),
    "scatter": Case(lambda x, i, v: aten.scatter(x, -2, i, v), (X, APART, normal(4, 2, 3))),
    "scatter_small_index": Case(lambda x, i, v: aten.scatter(x, 1, i, v), (X, APART[:2, :, 1:], normal(4, 5, 3))),
    "scatter_large_source": Case(lambda x, i, v: aten.scatter(x, 1, i, v), (X, APART, normal(4, 5, 3))),
    "scatter_bool": Case(lambda x, i, v: aten.scatter(x > 0, 1, i, v > 0), (X, APART, normal(4, 2, 3))),
    "scatter_0d": Case(lambda x, i, v: aten.scatter(x, 0, i, v), (normal(5), T(3), T(2.0))),
    "scatter_value": Case(lambda x, i: aten.scatter(x, 1, i, 2), (X, APART)),
    "scatter_value_int": Case(lambda x, i: aten.scatter(x, 1, i, -7), (INTS, APART)),
    "scatter_value_bool": Case(lambda x, i: aten.scatter(x > 0, 1, i, 1), (X, APART)),
    "scatter_add": Case(lambda x, i, v: aten.scatter_add(x, 1, i, v), (COUNT, SPREAD, counting(4, 3, 3))),
    "scatter_add_small": Case(
        lambda x, i, v: aten.scatter_add(x, 0, i, v), (COUNT, T([[[3, 3]], [[3, 3]]]), counting(4, 5, 3))
    ),
    "scatter_reduce": Case(
        lambda x, i, v: aten.scatter(x, 1, i, v, reduce="multiply"), (COUNT, SPREAD, counting(4, 3, 3))
    ),
    "select_scatter": Case(lambda x, v: aten.select_scatter(x, v, 1, -1), (X, normal(4, 3))),
    "select_scatter_bool": Case(lambda x, v: aten.select_scatter(x > 0, v > 0, 1, -1), (X, normal(4, 3))),
    "slice_scatter": Case(lambda x, v: aten.slice_scatter(x, v, 1, -4, None, 2), (X, normal(4, 2, 3))),
    "slice_scatter_bool": Case(lambda x, v: aten.slice_scatter(x > 0, v > 0, 1, 1, 3), (X, normal(4, 2, 3))),
    "masked_fill": Case(lambda x, m: aten.masked_fill(x, m, -float("inf")), (X, X[0] > 0)),
    "masked_fill_int": Case(lambda x, m: aten.masked_fill(x, m, 2**24 + 1), (INTS, X > 0)),
    "masked_fill_bool": Case(lambda x, m: aten.masked_fill(x > 0, m, True), (X, X > 0)),
    "masked_fill_tensor": Case(lambda x, m, v: aten.masked_fill(x, m, v), (X, X > 0, T(2))),
}
FAMILIES = {"index_put": INDEX_PUT, "index": INDEX, "scatter_gather": SCATTER_GATHER}

# Ops without a converter, which ExecuTorch decomposes into the ones above.
DECOMPOSED = {
    "index_copy": Case(lambda x, i, v: x.index_copy(-2, i, v), (X, T([2, 0]), normal(4, 2, 3))),
    "index_copy_0d": Case(lambda x, i, v: x.index_copy(1, i, v), (X, T(2), normal(4, 1, 3))),
    "index_fill": Case(lambda x, i: x.index_fill(1, i, 2.5), (X, T([2, -1]))),
    "index_fill_int": Case(lambda x, i: x.index_fill(-1, i, 7), (INTS, T([2, -2]))),
    "index_fill_bool": Case(lambda x, i: (x > 0).index_fill(1, i, True), (X, T([2, 0]))),
    "index_fill_tensor": Case(lambda x, i, v: x.index_fill(1, i, v), (X, T([2, 0]), T(4.0))),
    "index_add": Case(lambda x, i, v: x.index_add(1, i, v), (COUNT, T([2, 0, 2]), counting(4, 3, 3))),
    "index_add_alpha": Case(lambda x, i, v: x.index_add(1, i, v, alpha=-2), (COUNT, T([2, 0, 2]), counting(4, 3, 3))),
    "index_add_int": Case(lambda x, i, v: x.index_add(0, i, v), (INTS, T([2, 0, 2]), INTS[:3])),
}


class All(torch.nn.Module):
    """All cases in one program, one output each; its inputs are theirs one after the other."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, *inputs):
        remaining = iter(inputs)
        return tuple(case.function(*(next(remaining) for _ in case.inputs)) for case in self.cases)


def exported(cases: Sequence[Case], dynamic_shapes: Any = None) -> ExportedProgram:
    """The ATen program; without decompositions, so that each op stays what it is."""
    inputs = tuple(x for case in cases for x in case.inputs)
    program = export(All(cases), inputs, dynamic_shapes=dynamic_shapes and (dynamic_shapes,), strict=False)
    return program.run_decompositions({})


@cache
def exported_family(family: str) -> ExportedProgram:
    return exported(list(FAMILIES[family].values()))


def edge(program: ExportedProgram) -> ExportedProgram:
    return to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False)).exported_program()


def with_passes(program: ExportedProgram, target: ct.target) -> Program:
    mil = to_mil(program, target)
    pipeline = ct.PassPipeline.DEFAULT
    pipeline.remove_passes({"common::add_fp16_cast", "common::add_int16_cast"})
    run_passes(mil, pipeline)
    return mil


def core_ml(array: torch.Tensor) -> np.ndarray:
    """The array that Core ML is given for a tensor: no 64 bits, no rank 0."""
    narrow = {torch.int64: torch.int32, torch.float64: torch.float32}.get(array.dtype, array.dtype)
    return np.atleast_1d(array.to(narrow).numpy())


def check(mil: Program, cases: dict[str, Case], *, final: bool = False) -> None:
    """Compare the program's outputs with torch's, exactly; a finished program returns bools as float32."""
    (function,) = mil.functions.values()
    arrays = [core_ml(x) for case in cases.values() for x in case.inputs]
    gots = evaluate(mil, dict(zip(function.inputs, arrays, strict=True)), strict=final)
    for got, (name, case) in zip(gots, cases.items(), strict=True):
        want = case.function(*case.inputs)
        want = core_ml(want).reshape(want.shape)
        assert got.dtype == want.dtype or (final and want.dtype == bool and got.dtype == np.float32), name
        np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("target", [ct.target.iOS15, ct.target.iOS18])
@pytest.mark.parametrize("family", FAMILIES)
def test_as_converted(family, target):
    check(to_mil(exported_family(family), target), FAMILIES[family])


@pytest.mark.parametrize("target", [ct.target.iOS16, ct.target.iOS17, ct.target.iOS18])
@pytest.mark.parametrize("family", FAMILIES)
def test_finished_program(family, target):
    mil = with_passes(exported_family(family), target)
    check(mil, FAMILIES[family], final=True)
    places = [op for op in mil.functions["main"].operations if op.op_type.startswith(("gather", "scatter"))]
    assert places
    if target >= ct.target.iOS17:
        assert {bool(op.inputs["validate_indices"].val) for op in places} == {False}


def test_edge_dialect():
    cases = {**INDEX_PUT, **INDEX, **SCATTER_GATHER, **DECOMPOSED}
    check(to_mil(edge(exported(list(cases.values()))), ct.target.iOS17), cases)


N = Dim("n", min=2, max=16)
K = Dim("k", min=2, max=16)
SEVEN = normal(7, 5, 3)

# A case, the sizes that are symbolic, and other inputs.
DYNAMIC = {
    "data": (INDEX_PUT["slice_before"], ({0: N}, {0: N}, None), (SEVEN, normal(7, 2, 3), T([-1, 0]))),
    "data_indexed": (INDEX_PUT["one"], ({0: N}, None, None), (SEVEN, normal(2, 5, 3), T([-1, 4]))),
    "places": (INDEX_PUT["slice_before"], (None, {1: K}, {0: K}), (X, normal(4, 3, 3), T([-1, 0, 2]))),
    "both": (INDEX_PUT["slice_before"], ({0: N}, {0: N, 1: K}, {0: K}), (SEVEN, normal(7, 3, 3), T([-1, 0, 2]))),
    "value_0d": (INDEX_PUT["value_0d"], ({0: N}, None, {0: K}), (SEVEN, T(2.0), T([-1, 0, 2]))),
    "value_of_places": (INDEX_PUT["value_of_places"], ({0: N}, {0: K}, {0: K}), (SEVEN, normal(3, 1), T([-1, 0, 2]))),
    "index_shapes": (
        put(T([[2], [0]]), T([1, 2, 3]), x=X, v=normal(3)),
        (None, None, {0: K}, None),
        (X, normal(3), T([[-1], [0], [2]]), T([1, -1, 0])),
    ),
    "places_go_first": (
        put(T([2, 0]), None, T([0, 1]), x=X, v=normal(2, 5)),
        ({0: N}, {0: K}, {0: K}, {0: K}),
        (SEVEN, normal(3, 5), T([-1, 0, 2]), T([1, -1, 0])),
    ),
    "accumulate": (
        put(None, T([2, 2]), x=COUNT, v=counting(4, 2, 3), accumulate=True),
        ({0: N}, {0: N, 1: K}, {0: K}),
        (counting(7, 5, 3), counting(7, 3, 3), T([-1, 0, -1])),
    ),
    "mask": (INDEX_PUT["mask_row"], ({0: N}, None, {0: N}), (SEVEN, normal(3), SEVEN[..., 2] > 0)),
    "read": (INDEX["read_slice"], ({0: N}, {0: K}), (SEVEN, T([-1, 0, 2]))),
    "read_shapes": (
        read(T([[2], [0]]), T([1, 1, 0]), x=X),
        ({0: N}, {0: K}, None),
        (SEVEN, T([[-1], [0], [6]]), T([0, -1, -2])),
    ),
    "scatter_value": (SCATTER_GATHER["scatter_value"], ({0: N}, {0: N}), (SEVEN, APART[:1].repeat(7, 1, 1))),
    "gather": (SCATTER_GATHER["gather"], ({0: N}, {0: N}), (SEVEN, SPREAD[:1].repeat(7, 1, 1))),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_symbolic_sizes(name):
    case, sizes, others = DYNAMIC[name]
    program = exported([case], dynamic_shapes=sizes)
    for target in (ct.target.iOS15, ct.target.iOS18):
        mil = to_mil(program, target)
        for inputs in (case.inputs, others):
            check(mil, {name: Case(case.function, inputs)})


@pytest.mark.parametrize(
    "case",
    [
        put(T([True, False, True, False]), x=X, v=normal(2, 5, 3)),
        put(T([1, -1]), T([True, False, True, False, False]), x=X, v=T(3.0)),
        read(T([True, False, True, False]), x=X),
        put(None, None, T([[0, 1], [2, 3]]), x=RANK5, v=T(3.0)),
    ],
    ids=["mask_with_its_values", "mask_beside_an_index", "read_by_mask", "values_above_rank_5"],
)
def test_refused(case):
    with pytest.raises(NotImplementedError, match="index"):
        to_mil(exported([case]), ct.target.iOS17)


class Cache(torch.nn.Module):
    """A key cache written at `positions`."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 2, 8, 4))

    def forward(self, positions, keys):
        self.cache[:, :, positions] = keys
        return self.cache * 2


@pytest.mark.parametrize(("positions", "update"), [([5], "slice_update"), ([6, 1, -8], "scatter")])
def test_a_cache_becomes_a_state(positions, update):
    keys = counting(1, 2, len(positions), 4)
    program = export(Cache(), (T(positions), keys), strict=False).run_decompositions({})
    mil = to_mlmodel(program, ct.target.iOS18, precision=ct.precision.FLOAT16)._mil_program
    (function,) = mil.functions.values()
    (write,) = (op for op in function.operations if op.op_type == "coreml_update_state")
    assert write.value.op.op_type == update
    assert write.value.child_ops == [write], "later ops read the state, not the value written"
    state = write.state.name
    names = [name for name in function.inputs if name != state]
    arrays = dict(zip(names, map(core_ml, (T(positions), keys)), strict=True))
    arrays[state] = np.zeros((1, 2, 8, 4), np.float16)
    (got,) = evaluate(mil, arrays, strict=True)
    model = Cache()
    np.testing.assert_array_equal(got, model(T(positions), keys).numpy())
    np.testing.assert_array_equal(arrays[state], model.cache.numpy())
