"""Importing and using coreproof changes nothing for code that does not use it."""

import re
import subprocess
import sys
import textwrap

import coremltools as ct
import executorch.exir as exir
import pytest
import torch
from coremltools.converters.mil.frontend.torch import ops as torch_frontend_ops
from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY
from executorch.backends.apple.coreml.compiler import CoreMLBackend as StockBackend
from executorch.backends.apple.coreml.partition import CoreMLPartitioner as StockPartitioner
from lowered import Call, lower
from torch import nn

import coreproof
from coreproof import backend


@pytest.fixture
def conversions(monkeypatch):
    """Counts whose backend converts."""
    counts = {"stock": 0, "ours": 0}
    stock, ours = StockBackend._convert_to_mlmodel, backend.to_mlmodel

    def count_stock(*args, **kwargs):
        counts["stock"] += 1
        return stock(*args, **kwargs)

    def count_ours(*args, **kwargs):
        counts["ours"] += 1
        return ours(*args, **kwargs)

    monkeypatch.setattr(StockBackend, "_convert_to_mlmodel", staticmethod(count_stock))
    monkeypatch.setattr(backend, "to_mlmodel", count_ours)
    return counts


def stock_lowering(function=lambda m, x: torch.relu(x) * 2):
    program = torch.export.export(Call(function).eval(), (torch.randn(3),))
    return exir.to_edge_transform_and_lower(program, partitioner=[StockPartitioner()])


def test_the_stock_partitioner_gets_the_stock_backend(conversions):
    stock_lowering()
    assert conversions == {"stock": 1, "ours": 0}
    lower(lambda m, x: torch.relu(x) * 2, (torch.randn(3),))
    assert conversions == {"stock": 1, "ours": 1}
    stock_lowering()
    assert conversions == {"stock": 2, "ours": 1}


def test_after_a_lowering_that_failed_half_way(conversions, monkeypatch):
    registry = _TORCH_OPS_REGISTRY.name_to_func_mapping
    before = dict(registry)
    progress, level = torch_frontend_ops._tqdm, ct._logger.level

    def fail(mil):
        raise RuntimeError("half way")

    with monkeypatch.context() as patch:
        patch.setattr("coreproof.convert.program.give_outputs_their_own_ops", fail)
        with pytest.raises(RuntimeError, match="half way"):
            lower(lambda m, x: nn.functional.gelu(x, approximate="tanh"), (torch.randn(3),))
    assert _TORCH_OPS_REGISTRY.name_to_func_mapping is registry
    assert dict(registry) == before
    assert torch_frontend_ops._tqdm is progress
    assert ct._logger.level == level
    stock_lowering()
    assert conversions["stock"] == 1


def test_ct_convert_keeps_coremltools_converters():
    def full_dtype():
        program = torch.export.export(Call(lambda m, x: x + torch.full((3,), 2)).eval(), (torch.randn(3),))
        mil = ct.convert(
            program.run_decompositions({}), convert_to="milinternal", minimum_deployment_target=ct.target.iOS18
        )
        return re.sub(r"block\d+", "block", str(mil))

    before = full_dtype()
    lower(lambda m, x: x + torch.full((3,), 2), (torch.randn(3),))
    assert full_dtype() == before


def test_an_import_alone_changes_no_registry():
    script = """
        import coremltools
        import executorch.backends.apple.coreml.compiler
        from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY as registry
        before = dict(registry.name_to_func_mapping)
        import coreproof
        coreproof.lower, coreproof.CoreMLPartitioner
        from coreproof.convert.scope import conversion
        with conversion():
            assert registry.name_to_func_mapping["gelu"] is not before["gelu"]
        assert registry.name_to_func_mapping == before
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, capture_output=True)


def test_stock_and_coreproof_methods_in_one_program(conversions):
    program = torch.export.export(Call(lambda m, x: torch.relu(x) * 2).eval(), (torch.randn(3),))
    other = torch.export.export(Call(lambda m, x: torch.relu(x) * 3).eval(), (torch.randn(3),))
    exir.to_edge_transform_and_lower(
        {"a": program, "b": other},
        partitioner={"a": [StockPartitioner()], "b": [coreproof.CoreMLPartitioner()]},
    )
    assert conversions == {"stock": 1, "ours": 1}


def test_the_single_program_path_is_refused():
    from executorch.exir.backend.backend_api import to_backend

    program = torch.export.export(Call(lambda m, x: torch.relu(x) * 2).eval(), (torch.randn(3),))
    edge = exir.to_edge(program).exported_program()
    with pytest.raises(coreproof.InputError, match="to_edge_transform_and_lower"):
        to_backend(edge, coreproof.CoreMLPartitioner())
