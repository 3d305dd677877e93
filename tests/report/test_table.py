from __future__ import annotations

import io

import pytest
from rich.console import Console

from coreproof.partition.record import (
    BufferPlacement,
    MethodPlacement,
    Narrowing,
    NodePlacement,
    Partition,
    Placement,
    Refusal,
)
from coreproof.report.table import file_size, placement_report


def method(cpu_lines: int = 5) -> MethodPlacement:
    refusals = [
        Refusal("boundary-dtype", "it reads uint8", "aten.view_copy.default", f"view_{i}", f"policy.py:{10 + i}")
        for i in range(cpu_lines)
    ]
    refusals.append(Refusal("attempt", "no [bold]converter[/bold]", "aten.acosh.default", "acosh", "", "head.0"))
    nodes = [NodePlacement(f"n{i}", "aten.add.Tensor", 0 if i < 30 else 1) for i in range(40)]
    nodes += [NodePlacement(refusal.node, refusal.op, None) for refusal in refusals]
    return MethodPlacement(
        nodes=nodes,
        partitions=[
            Partition(0, 30, ("float32[1,3,64,64]", "bool[1,16]", "float32[1,7]", "int32[1]"), ("float16[1,16,7]",)),
            Partition(1, 10, ("float16[1,16,7]",), ("float32[1,16,7]",)),
        ],
        refusals=refusals,
        buffers=[
            BufferPlacement("layers.0.attention.keys", "state", "float16", (1, 8, 256, 64), 0),
            BufferPlacement("layers.0.attention.values", "state", "float16", (1, 8, 256, 64), 0),
            BufferPlacement("step", "io", "int64", (), None, "a float16 state holds no integer above 2048"),
            BufferPlacement("seen", "cpu", "float32", ("n", 2)),
        ],
        narrowings=[
            Narrowing("arange", "aten.arange.start_step", "int64", "int32", "policy.py:3"),
            Narrowing("arange_1", "aten.arange.start_step", "int64", "int32"),
            Narrowing("mean", "aten.mean.dim", "float64", "float32", "policy.py:9"),
        ],
    )


def printed(placement: Placement, width: int = 80, terminal: bool = False, **options) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, highlight=False)
    console.print(placement_report(placement, **options))
    return stream.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


def test_summary_counts_ops_delegates_narrowings_and_names_the_file():
    text = words(printed(Placement(forward=method()), written="model.pte (1.2 MB)"))
    assert "Core ML 40 of 46 ops (87.0%) in 2 delegates, 6 on the CPU" in text
    assert "Narrowed 1 tensor float64 to float32, 2 tensors int64 to int32" in text
    assert "Written model.pte (1.2 MB)" in text
    assert "Written" not in printed(Placement(forward=method()))


def test_each_delegate_with_its_ops_and_a_few_of_its_boundary_tensors():
    text = words(printed(Placement(forward=method()), width=120))
    assert "0: 30 ops in float32[1,3,64,64], bool[1,16], float32[1,7] and 1 more out float16[1,16,7]" in text
    assert "1: 10 ops in float16[1,16,7] out float32[1,16,7]" in text


def test_many_delegates_are_cut_short_but_counted():
    value = MethodPlacement(partitions=[Partition(i, 1) for i in range(12)])
    text = words(printed(Placement(forward=value)))
    assert "9: 1 op in out and 2 more" in text and "10: 1 op" not in text
    assert "11: 1 op" in words(printed(Placement(forward=value), verbose=True))


def test_source_lines_below_the_current_folder_are_shown_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = [str(tmp_path / "a" / "policy.py") + ":4", str(tmp_path) + "_other/b.py:5"]
    value = MethodPlacement(refusals=[Refusal("attempt", "r", "aten.x.default", "n", source) for source in sources])
    text = printed(Placement(forward=value), width=400)
    assert f" a/policy.py:4, {sources[1]}" in text


def test_refusals_are_grouped_with_rule_counts_and_the_first_lines():
    text = words(printed(Placement(forward=method())))
    assert "boundary-dtype: it reads uint8 5 x aten.view_copy.default policy.py:10, policy.py:11, policy.py:12" in text
    assert "policy.py:12 and 2 more" in text and "policy.py:13" not in text


def test_markup_in_a_reason_is_text_and_a_module_stands_in_for_a_missing_line():
    text = words(printed(Placement(forward=method())))
    assert "attempt: no [bold]converter[/bold] 1 x aten.acosh.default head.0" in text


def test_the_tensors_of_a_reason_are_shown_once_and_on_demand():
    value = MethodPlacement()
    tensors = ["x: uint8[1, 3]", "", "x: uint8[1, 3]", "y: uint8[n, 2]"]
    value.refusals = [Refusal("boundary-dtype", "r", "aten.x", f"n{i}", "a.py:1", "", t) for i, t in enumerate(tensors)]
    assert "uint8" not in printed(Placement(forward=value))
    assert "a.py:1 x: uint8[1,3], y: uint8[n,2]" in words(printed(Placement(forward=value), verbose=True))


def test_no_line_breaks_inside_a_shape():
    value = MethodPlacement(partitions=[Partition(0, 1, ("frames: float32[1, 3, 64, 64]",))])
    assert "frames: float32[1,3,64,64]" in printed(Placement(forward=value))


def test_a_library_is_named_without_the_folder_it_is_installed_in():
    source = "/opt/env/lib/python3.11/site-packages/torch/nn/modules/linear.py:134"
    value = MethodPlacement(refusals=[Refusal("dtype", "r", "aten.mm.default", "n", source)])
    assert " torch/nn/modules/linear.py:134" in printed(Placement(forward=value))


def test_one_line_of_the_user_is_listed_once():
    value = method(0)
    value.refusals = [Refusal("attempt", "r", "aten.acosh.default", f"n{i}", "policy.py:4") for i in range(3)]
    assert "3 x aten.acosh.default policy.py:4" in words(printed(Placement(forward=value)))
    assert printed(Placement(forward=value)).count("policy.py:4") == 1


def test_buffers_are_grouped_by_where_they_live_and_why():
    text = words(printed(Placement(forward=method()), width=160))
    keys, values = (f"layers.0.attention.{name} float16[1,8,256,64]" for name in ("keys", "values"))
    assert f"Core ML state of delegate 0 {keys}, {values}" in text
    assert "passed in and out: a float16 state holds no integer above 2048 step int64[]" in text
    assert "CPU seen float32[n,2]" in text


def test_verbose_lists_everything():
    text = words(printed(Placement(forward=method()), verbose=True))
    assert "more" not in text
    assert all(f"policy.py:{line}" in text for line in range(10, 15))
    assert "int32[1]" in text
    assert "aten.arange.start_step int64 int32 arange_1" in text


def test_several_methods_are_told_apart():
    one = MethodPlacement(nodes=[NodePlacement("a", "aten.add.Tensor", 0)], partitions=[Partition(0, 1)])
    text = words(printed(Placement(prefill=method(), decode=one)))
    assert "prefill 40 of 46 ops (87.0%) in 2 delegates" in text
    assert "decode 1 of 1 op (100.0%) in 1 delegate, 0 on the CPU" in text
    # 41 of 47 ops
    assert "All methods 87.2% of the ops in 3 delegates" in text
    assert "Delegates of decode" in text and "Not on Core ML of prefill" in text
    assert "Not on Core ML of decode" not in text


def test_a_method_without_ops():
    assert "0 of 0 ops (100.0%) in 0 delegates" in words(printed(Placement(forward=MethodPlacement())))


def test_no_line_is_wider_than_80_columns_and_nothing_is_cut():
    value = method()
    value.refusals[0] = Refusal("attempt", "long " * 40, "aten.x.default", "n", "a/very/long/path/" * 6 + "policy.py:1")
    text = printed(Placement(forward=value), verbose=True)
    assert max(map(len, text.splitlines())) <= 80
    assert words(text).count("long ") >= 40 and "\u2026" not in text and text.isascii()
    assert ("a/very/long/path/" * 6 + "policy.py:1") in "".join(text.split())


def test_colour_is_for_terminals_only():
    assert "\x1b" not in printed(Placement(forward=method()))
    assert "\x1b" in printed(Placement(forward=method()), terminal=True)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (2_345_678, "2.3 MB"),
        (5_000_000_000_000, "5000.0 GB"),
    ],
)
def test_file_size(count, text):
    assert file_size(count) == text
