"""`coreproof run`, `inspect` and `check`: results, exit codes, and one line for bad input."""

import json

import coremltools as ct
import numpy as np
import pytest
from coremltools.converters.mil.mil import Builder as mb

from coreproof.cli import main

X = np.float32([[1, 2, 3], [4, 5, 6]])


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    @mb.program(input_specs=[mb.TensorSpec(shape=(2, 3))], opset_version=ct.target.iOS17)
    def program(x):
        return mb.linear(x=x, weight=np.ones((4, 3), np.float32), name="y")

    path = tmp_path_factory.mktemp("model") / "model.mlpackage"
    ct.convert(program, minimum_deployment_target=ct.target.iOS17, skip_model_load=True).save(str(path))
    return str(path)


@pytest.mark.parametrize("form", ["npz", "npy", "named npy"])
def test_run_takes_inputs_from_files_and_writes_an_archive(package, tmp_path, form, capsys):
    np.savez(tmp_path / "in.npz", x=X)
    np.save(tmp_path / "value.npy", X)
    given = {"npz": "in.npz", "npy": "value.npy", "named npy": "value.npy"}[form]
    prefix = "x=" if form == "named npy" else ""
    out = tmp_path / "out.npz"
    assert main(["run", package, "--inputs", f"{prefix}{tmp_path / given}", "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"y": {"type": "float32", "shape": [2, 4]}}
    with np.load(out) as archive:
        assert archive["y"].tolist() == [[6.0] * 4, [15.0] * 4]


def test_random_inputs_are_seeded(package, capsys):
    shown = []
    for seed in ("1", "1", "2"):
        assert main(["run", package, "--random", "--seed", seed]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]
    assert shown[0].startswith("y: float32[2, 4], ")


def test_inspect_and_check(package, capsys):
    assert main(["inspect", package]) == 0
    assert "input   x: fp32[2, 3]" in capsys.readouterr().out
    assert main(["inspect", package, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "iOS17"
    assert main(["check", package]) == 0
    assert "nothing found" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["run", "absent.mlpackage", "--random"], "no such file or folder: absent.mlpackage"),
        (["inspect", "absent.mlpackage"], "no such file or folder"),
        (["run", "PACKAGE", "--inputs", "absent.npy"], "no such file: absent.npy"),
        (["run", "PACKAGE", "--random", "--function", "other"], "no function named 'other'; expected main"),
        (["run", "PACKAGE", "--random", "-o", "out.txt"], "out.txt"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, text, package, capsys):
    assert main([package if one == "PACKAGE" else one for one in arguments]) == 2
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1 and "Traceback" not in error


def test_a_pickle_is_not_loaded(package, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert main(["run", package, "--inputs", str(tmp_path / "x.npy")]) == 2
    assert "cannot be read" in capsys.readouterr().err
