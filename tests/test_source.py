from __future__ import annotations

import sys
import zipfile

import pytest
import torch
from torch import nn

from coreproof.errors import InputError
from coreproof.source import load_source


@pytest.fixture
def python(tmp_path, monkeypatch):
    """A function that writes a Python file and returns its path; sys.path is put back afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text: str, name: str = "mine.py") -> str:
        path = tmp_path / name
        path.write_text("import torch\n" + text)
        return str(path)

    return write


@pytest.fixture
def exported(tmp_path):
    class Add(nn.Module):
        def forward(self, x):
            return x + 1

    path = tmp_path / "good.pt2"
    torch.export.save(torch.export.export(Add(), (torch.tensor([1.0, -2.0]),)), path)
    return path


def fails(source: str) -> str:
    with pytest.raises(InputError) as caught:
        load_source(source)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def test_a_pt2_file_is_the_program_that_was_saved(exported):
    source = load_source(str(exported))
    assert source.example_inputs is None and source.dynamic_shapes is None
    torch.testing.assert_close(source.model.module()(torch.tensor([-3.0, 0.5])), torch.tensor([-2.0, 1.5]))


def test_a_function_gives_the_model_and_its_inputs(python):
    path = python("def f():\n    return torch.nn.Linear(3, 2), (torch.ones(1, 3),)\n")
    source = load_source(f"{path}:f")
    assert source.model.weight.shape == (2, 3)
    assert [x.shape for x in source.example_inputs] == [(1, 3)]
    assert source.dynamic_shapes is None


def test_dynamic_shapes_are_passed_on_and_a_list_of_inputs_becomes_a_tuple(python):
    path = python("def f():\n    return torch.nn.ReLU(), [torch.ones(1)], {'input': {0: 'n'}}\n")
    source = load_source(f"{path}:f")
    assert isinstance(source.example_inputs, tuple)
    assert source.dynamic_shapes == {"input": {0: "n"}}


def test_a_file_named_like_a_library_module_imports_its_neighbours_and_shadows_nothing(python):
    python("WIDTH = 5\n", "neighbour_of_mine.py")
    path = python("import neighbour_of_mine as n\ndef f():\n    return torch.nn.Linear(n.WIDTH, 1), ()\n", "types.py")
    assert load_source(f"{path}:f").model.in_features == 5
    assert hasattr(sys.modules["types"], "SimpleNamespace")


@pytest.mark.parametrize("source", ["", "model", "model.onnx", "model.py", "a.py:", "a.py:f()", ":f", "a.txt:f"])
def test_what_is_neither_form_is_named_with_both_forms(source):
    message = fails(source)
    assert repr(source) in message and "a .pt2 file or file.py:function" in message


@pytest.mark.parametrize("source", ["missing.pt2", "missing.py:f"])
def test_a_missing_file(source):
    assert "does not exist" in fails(source)


def test_a_folder(tmp_path):
    (tmp_path / "model.pt2").mkdir()
    assert "is a folder" in fails(str(tmp_path / "model.pt2"))


def test_pt2_files_that_do_not_load(tmp_path, exported):
    good = exported.read_bytes()
    (tmp_path / "empty.pt2").write_bytes(b"")
    (tmp_path / "text.pt2").write_bytes(b"hello")
    (tmp_path / "half.pt2").write_bytes(good[: len(good) // 2])
    for name in ("empty", "text", "half"):
        assert "not a zip archive" in fails(str(tmp_path / f"{name}.pt2"))

    torch.save({"a": 1}, tmp_path / "checkpoint.pt2")
    torch.jit.save(torch.jit.trace(nn.ReLU(), torch.ones(1)), tmp_path / "script.pt2")
    for name in ("checkpoint", "script"):
        assert "holds no exported program" in fails(str(tmp_path / f"{name}.pt2"))
    with zipfile.ZipFile(tmp_path / "version.pt2", "w") as archive:
        archive.writestr("version", "1.1")
    assert "does not load: RuntimeError: " in fails(str(tmp_path / "version.pt2"))


def test_the_reason_that_torch_only_logs_is_in_the_message(tmp_path, exported):
    with zipfile.ZipFile(exported) as old, zipfile.ZipFile(tmp_path / "op.pt2", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"aten.add", b"aten.nosuchop"))
    assert "nosuchop" in fails(str(tmp_path / "op.pt2"))


def test_a_pt2_file_with_programs_of_other_names(tmp_path, exported):
    from torch.export.pt2_archive._package import package_pt2

    package_pt2(f=str(tmp_path / "two.pt2"), exported_programs={"prefill": torch.export.load(exported)})
    assert "no program named 'model'" in fails(str(tmp_path / "two.pt2"))


def test_a_missing_function_lists_those_that_are_there(python):
    path = python("from math import sqrt\ndef policy(): pass\ndef _own(): pass\nclass Net: pass\n")
    message = fails(f"{path}:polcy")
    assert "no function polcy" in message and "it defines policy, Net" in message
    assert "sqrt" not in message and "_own" not in message


def test_a_name_that_is_no_function(python):
    assert "is int; expected a function" in fails(python("f = 3\n") + ":f")


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        ("None", "returned NoneType"),
        ("torch.nn.ReLU()", "returned ReLU"),
        ("(torch.nn.ReLU(),)", "returned a tuple of 1"),
        ("(torch.nn.ReLU(), (), None, 1)", "returned a tuple of 4"),
        ("[torch.nn.ReLU(), ()]", "returned list"),
        ("(torch.nn.ReLU, ())", "returned type as the model"),
        ("(torch.nn.ReLU(), torch.ones(1))", "returned Tensor as example_inputs"),
        ("(torch.nn.ReLU(), {'x': torch.ones(1)})", "returned dict as example_inputs"),
    ],
)
def test_a_function_that_returns_something_else(python, returned, got):
    message = fails(python(f"def f():\n    return {returned}\n") + ":f")
    assert "f() of" in message and got in message


@pytest.mark.parametrize(
    ("text", "line", "exception"),
    [
        ("import no_such_module_xyz\n", 2, "ModuleNotFoundError: No module named 'no_such_module_xyz'"),
        ("x = 1\n\ny = x / 0\n", 4, "ZeroDivisionError: division by zero"),
        ("def f(:\n", 2, "SyntaxError: "),
        ("raise SystemExit('bye')\n", 2, "SystemExit: bye"),
        ("raise ValueError('first\\nsecond')\n", 2, "ValueError: first second"),
        ("assert False\n", 2, "AssertionError"),
        ("def f():\n    return g()\ndef g():\n    raise KeyError('k')\n", 5, "KeyError: 'k'"),
        ("def f():\n    return torch.ones(2) @ torch.ones(3), ()\n", 3, "RuntimeError: "),
    ],
)
def test_an_error_in_the_users_file_is_shown_with_its_line(python, text, line, exception):
    message = fails(python(text) + ":f")
    assert f" at mine.py:{line}: {exception}" in message


def test_the_part_of_a_long_message_that_says_what_is_wrong_is_kept(python):
    path = python("def f():\n    torch.nn.Linear(3, 2).load_state_dict({'weight': torch.ones(5, 3)})\n")
    message = fails(f"{path}:f")
    assert "loading state_dict for Linear" in message and "bias" in message and "size mismatch for weight" in message


def test_a_function_that_needs_arguments(python):
    assert "missing 1 required positional argument: 'x'" in fails(python("def f(x): pass\n") + ":f")
