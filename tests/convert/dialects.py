"""Programs of both dialects, and their conversion, for the converter tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil.mil import Program
from executorch.exir import EdgeCompileConfig, to_edge
from mil_eval import evaluate
from torch.export import ExportedProgram, export

from coreproof.convert.program import to_mil, to_mlmodel
from coreproof.runtime import load

TARGETS = (ct.target.iOS15, ct.target.iOS16, ct.target.iOS17, ct.target.iOS18)
PRECISIONS = (ct.precision.FLOAT16, ct.precision.FLOAT32)
# What Core ML carries each torch dtype as.
NARROWED = {torch.int64: np.dtype(np.int32), torch.float64: np.dtype(np.float32)}


class _Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], buffers: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.names = [f"buffer{i}" for i in range(len(buffers))]
        for name, buffer in zip(self.names, buffers, strict=True):
            self.register_buffer(name, buffer)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *(getattr(self, name) for name in self.names))


def programs(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    buffers: Sequence[torch.Tensor] = (),
    dynamic: Sequence[dict[int, Any]] | None = None,
    keep: Sequence[Any] = (),
) -> dict[str, ExportedProgram]:
    """`function` of `inputs` and `buffers` in the ATen and the edge dialect, where the ops `keep` stay whole."""
    shapes = None if dynamic is None else (tuple(dynamic),)
    exported = export(_Model(function, buffers), tuple(inputs), dynamic_shapes=shapes, strict=False)
    config = EdgeCompileConfig(_check_ir_validity=False, preserve_ops=list(keep))
    edge = to_edge(exported, compile_config=config).exported_program()
    return {"aten": exported.run_decompositions({}), "edge": edge}


def converted(program: ExportedProgram, target: ct.target, precision: ct.precision) -> Program:
    """The MIL program of the finished model, after all passes."""
    return to_mlmodel(program, target, precision=precision)._mil_program


def run(program: ExportedProgram | Program, inputs: Sequence[torch.Tensor], target: ct.target) -> list[np.ndarray]:
    """The outputs of the converted program, before the passes where `program` is not converted yet."""
    mil = to_mil(program, target) if isinstance(program, ExportedProgram) else program
    (function,) = mil.functions.values()
    arrays = [value.numpy() for value in inputs]
    return evaluate(mil, {name: array for name, array in zip(function.inputs, arrays, strict=True)})


def exact_values(function: Callable[..., Any], inputs: Sequence[torch.Tensor], target: ct.target) -> Iterator[list]:
    """What each dialect's conversion gives in the reference runtime, before any pass, in exact mode."""
    for program in programs(function, inputs).values():
        model = load(to_mil(program, target), mode="exact")
        names = [value.name for value in model.function().inputs]
        yield list(model.predict(dict(zip(names, (x.numpy() for x in inputs), strict=True))).values())


def expected(outputs: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """torch's outputs in the dtypes that Core ML has for them."""
    return [value.numpy().astype(NARROWED.get(value.dtype, value.numpy().dtype)) for value in outputs]


def assert_same(actual: Sequence[np.ndarray], outputs: Sequence[torch.Tensor], **tolerance: float) -> None:
    """Shape, dtype and value of every output are torch's, with the declared narrowings."""
    assert len(actual) == len(outputs)
    for index, (got, want) in enumerate(zip(actual, expected(outputs), strict=True)):
        assert (got.dtype, got.shape) == (want.dtype, want.shape), f"output {index}"
        np.testing.assert_allclose(got, want, **{"rtol": 0.0, **tolerance}, err_msg=f"output {index}")
