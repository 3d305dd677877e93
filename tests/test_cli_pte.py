"""`coreproof run`, `inspect`, `check` and `extract` on a whole `.pte`."""

import json

import numpy as np
import pytest
import torch
from coremltools.models import MLModel
from lowered import Call, lower

import coreproof
from coreproof.cli import main
from coreproof.runtime import PteProgram, load
from coreproof.runtime.pte.inspect import extract

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
WEIGHT = torch.arange(12.0).reshape(4, 3) / 8


def model(m, x, u):
    return torch.nn.functional.linear(x, m.weight) + u.float()


@pytest.fixture(scope="module")
def pte(tmp_path_factory):
    path = tmp_path_factory.mktemp("pte") / "model.pte"
    u = torch.tensor([[1], [2]], dtype=torch.uint8)
    lower(model, (X, u), members={"weight": WEIGHT}, compute_precision="float32").save(path)
    return str(path)


def printed(capsys, *arguments, code=0):
    assert main(list(arguments)) == code
    return capsys.readouterr().out


def test_run_takes_tensors_in_order(pte, tmp_path, capsys):
    np.save(tmp_path / "x.npy", X.numpy())
    torch.save(torch.tensor([[3], [5]], dtype=torch.uint8), tmp_path / "u.pt")
    out = tmp_path / "out.npz"
    files = [str(tmp_path / "x.npy"), str(tmp_path / "u.pt")]
    shown = printed(capsys, "run", pte, "--inputs", *files, "-o", str(out), "--json")
    assert json.loads(shown)["outputs"] == {"output0": {"type": "float32", "shape": [2, 4]}}
    with np.load(out) as archive:  # sums of three products of small fractions: exact
        assert archive["output0"].tolist() == (X @ WEIGHT.T + torch.tensor([[3.0], [5.0]])).tolist()


def test_run_takes_an_archive_and_random_inputs(pte, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", first=X.numpy(), second=np.uint8([[0], [0]]))
    assert "output0: float32[2, 4]" in printed(capsys, "run", pte, "--inputs", str(tmp_path / "in.npz"))
    shown = [printed(capsys, "run", pte, "--random", "--seed", seed) for seed in ("1", "1", "2")]
    assert shown[0] == shown[1] != shown[2]


def test_inspect_names_kernels_and_delegates(pte, capsys):
    found = json.loads(printed(capsys, "inspect", pte, "--json"))
    method = found["methods"]["forward"]
    assert method["inputs"] == ["float32 of [2, 3]", "uint8 of [2, 1]"]
    assert found["missing_kernels"] == []
    (delegate,) = method["delegates"]
    assert delegate["backend"] == "CoreMLBackend"
    assert any(name.startswith("dim_order_ops::_to_dim_order_copy") for name in method["kernels"])
    shown = printed(capsys, "inspect", pte)
    assert "method forward" in shown and "delegate 0: CoreMLBackend" in shown and "linear 1" in shown


def test_check_looks_into_delegates(pte, capsys):
    assert "nothing found" in printed(capsys, "check", pte)


def test_check_names_kernels_that_are_missing(pte, capsys, monkeypatch):
    monkeypatch.setattr(PteProgram, "missing_kernels", ["aten::matmul.out"])
    assert "[missing-kernel] aten::matmul.out" in printed(capsys, "check", pte, code=1)


def test_extract_writes_packages_that_others_open(pte, tmp_path, capsys):
    folder = tmp_path / "out"
    assert "forward_0.mlpackage" in printed(capsys, "extract", pte, "-o", str(folder))
    package = folder / "forward_0.mlpackage"
    assert MLModel(str(package), skip_model_load=True).get_spec().WhichOneof("Type") == "mlProgram"
    runtime = load(package, mode="exact")
    values = {"x": X.numpy(), "u": np.float32([[1], [1]])}
    data = {v.name: values["x" if v.type.shape == (2, 3) else "u"] for v in runtime.function().inputs}
    (got,) = runtime.predict(data).values()
    assert got.tolist() == (X @ WEIGHT.T + 1).tolist()


def test_extract_never_writes_over_a_folder(pte, tmp_path, capsys):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("mine")
    assert main(["extract", pte, "-o", str(tmp_path / "kept")]) == 2
    assert "it exists" in capsys.readouterr().err
    assert (tmp_path / "kept" / "file").read_text() == "mine"
    assert main(["extract", pte, "-o", str(tmp_path / "absent" / "folder")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


def test_extract_of_a_broken_delegate_leaves_nothing(pte, tmp_path):
    program = load(pte)
    assert isinstance(program, PteProgram)

    def broken(*_):
        raise coreproof.errors.ModelError("broken")

    program.model_files = broken
    with pytest.raises(coreproof.errors.ModelError):
        extract(program, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_methods_that_share_weights(tmp_path, capsys):
    shared = torch.nn.Linear(64, 64)
    one = Call(lambda m, x: m.net(x), net=shared).eval()
    two = Call(lambda m, x: m.net(x).relu(), net=shared).eval()
    x = torch.randn(2, 64)
    lowered = coreproof.lower({"a/b": torch.export.export(one, (x,)), "two": torch.export.export(two, (x,))})
    path = tmp_path / "two.pte"
    lowered.save(path)
    names = json.loads(printed(capsys, "extract", str(path), "-o", str(tmp_path / "out"), "--json"))["packages"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(names)
    assert all("/" not in name and name.endswith(".mlpackage") for name in names)
    assert set(json.loads(printed(capsys, "inspect", str(path), "--json"))["methods"]) == {"a/b", "two"}
    assert "output0" in printed(capsys, "run", str(path), "--random", "--function", "two")


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["run", "{pte}", "--random", "--function", "absent"], "no method named 'absent'; expected forward"),
        (["run", "{pte}", "--inputs", "absent.npy", "absent.npy"], "no such file: absent.npy"),
        (["extract", "absent.pte", "-o", "{tmp}/out"], "no such file or folder: absent.pte"),
        (["extract", "{package}", "-o", "{tmp}/out"], "is no .pte, so it has no delegates"),
    ],
)
def test_bad_input_is_one_line(pte, tmp_path, capsys, arguments, text):
    extract(load(pte), tmp_path / "packages")
    named = {"pte": pte, "tmp": str(tmp_path), "package": str(tmp_path / "packages" / "forward_0.mlpackage")}
    assert main([argument.format(**named) for argument in arguments]) == 2
    err = capsys.readouterr().err
    assert text in err and err.count("\n") == 1


def test_a_wrong_number_of_inputs(pte, tmp_path, capsys):
    np.save(tmp_path / "x.npy", X.numpy())
    assert main(["run", pte, "--inputs", str(tmp_path / "x.npy")]) == 2
    assert "1 inputs for method 'forward'; expected 2: float32 of [2, 3], uint8 of [2, 1]" in capsys.readouterr().err
