"""The command line with a stand-in for `coreproof.lower`; the real one is run by test_cli_lower.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import coreproof
from coreproof import cli
from coreproof.errors import InputError, RequirementError
from coreproof.partition.record import MethodPlacement, NodePlacement, Partition, Placement, Refusal
from coreproof.verify.record import Check, Verification

PTE = b"\x00program" * 300
REFUSAL = Refusal("attempt", "it has no converter", "aten.acosh.default", "acosh", "mine.py:7", "head")


def placement() -> Placement:
    nodes = [NodePlacement("mul", "aten.mul.Tensor", 0), NodePlacement("acosh", "aten.acosh.default", None)]
    method = MethodPlacement(nodes, [Partition(0, 1, ("float32[1,3]",), ("float32[1,3]",))], [REFUSAL])
    return Placement(forward=method)


class Lowered:
    placement = placement()
    verification = Verification([Check("program forward", "precision")])

    def save(self, path):
        with open(path, "wb") as file:
            file.write(PTE)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Stands in for `coreproof.lower` and `plan`: keeps each call, and raises `error` if there is one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text("import torch\ndef f():\n    return torch.nn.ReLU(), (torch.ones(2),)\n")
    fake = types.SimpleNamespace(calls=[], error=None)

    def called(kind, result):
        def call(model, inputs, *, progress, **options):
            fake.calls.append((kind, type(model).__name__, inputs, options))
            progress("placing 2 ops")
            if fake.error:
                raise fake.error
            return result

        return call

    # Into the dict: monkeypatch.setattr would first get the real ones, which imports everything.
    monkeypatch.setitem(vars(coreproof), "lower", called("lower", Lowered()))
    monkeypatch.setitem(vars(coreproof), "plan", called("plan", placement()))
    return fake


def test_lower_writes_the_file_and_prints_the_table(fake, tmp_path, capsys):
    assert cli.main(["lower", "mine.py:f", "-o", "out.pte"]) == 0
    assert (tmp_path / "out.pte").read_bytes() == PTE
    out, err = capsys.readouterr()
    assert "1 of 2 ops (50.0%) in 1 delegate, 1 on the CPU" in out
    assert "attempt: it has no converter" in out and "mine.py:7" in out
    assert "out.pte (2.4 kB)" in out
    assert err == "" and "\x1b" not in out


def test_plan_writes_nothing(fake, tmp_path, capsys):
    assert cli.main(["plan", "mine.py:f"]) == 0
    assert fake.calls[0][0] == "plan"
    assert "1 of 2 ops" in capsys.readouterr().out
    assert [name for name in os.listdir(tmp_path) if name != "__pycache__"] == ["mine.py"]


def test_options_reach_the_public_function_by_its_own_names(fake):
    arguments = "--target macOS13 --precision float32 --compute-units cpu_and_ne --no-state"
    skips = ["--skip-op", "aten.gelu.default", "--skip-op", "aten.mm.default"]
    assert cli.main(["plan", "mine.py:f", *arguments.split(), *skips]) == 0
    assert fake.calls[0][3] == {
        "dynamic_shapes": None,
        "minimum_deployment_target": "iOS16",
        "compute_precision": "float32",
        "compute_units": "cpu_and_ne",
        "skip_ops_for_coreml_delegation": ["aten.gelu.default", "aten.mm.default"],
        "use_cache": True,
        "float32_ops": [],
        "take_over_mutable_buffer": False,
        "lower_full_graph": False,
    }
    assert cli.main(["plan", "mine.py:f", "--full-graph", "--no-cache"]) == 0
    assert fake.calls[1][3]["lower_full_graph"] is True
    assert fake.calls[1][3]["use_cache"] is False


@pytest.mark.parametrize(
    ("name", "target"), [("iOS15", "iOS15"), ("ios18", "iOS18"), ("macOS12", "iOS15"), ("MACOS15", "iOS18")]
)
def test_targets_in_any_case_and_by_the_name_of_the_mac(fake, name, target):
    assert cli.main(["plan", "mine.py:f", "--target", name]) == 0
    assert fake.calls[0][3]["minimum_deployment_target"] == target


def test_json_is_one_document_and_nothing_else(fake, capsys):
    assert cli.main(["lower", "mine.py:f", "-o", "out.pte", "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == ""
    assert document["schema"] == 1 and document["command"] == "lower" and document["source"] == "mine.py:f"
    assert document["output"] == {"path": "out.pte", "bytes": len(PTE)}
    assert document["options"]["minimum_deployment_target"] == "iOS18"
    assert document["methods"]["forward"]["refusals"][0]["source"] == "mine.py:7"


def test_quiet_prints_nothing(fake, capsys):
    assert cli.main(["lower", "mine.py:f", "-o", "out.pte", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("aten.foo occurs nowhere"), 2, "coreproof: error: aten.foo occurs nowhere\n"),
        (RequirementError("1 op stays", (REFUSAL,)), 1, "coreproof: error: 1 op stays\n"),
        (KeyboardInterrupt(), 130, "coreproof: interrupted\n"),
    ],
)
def test_an_error_is_one_line_and_leaves_no_file(fake, tmp_path, capsys, error, code, line):
    fake.error = error
    assert cli.main(["lower", "mine.py:f", "-o", "out.pte"]) == code
    assert capsys.readouterr() == ("", line)
    assert not list(tmp_path.glob("*.pte"))


def test_an_unexpected_error_is_named_as_our_bug(fake, capsys):
    fake.error = KeyError("two\nlines")
    assert cli.main(["plan", "mine.py:f"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("coreproof: internal error: KeyError: ") and err.count("\n") == 1
    assert "a bug in coreproof" in err and "with -v" in err


def test_verbose_adds_the_traceback_before_the_line(fake, capsys):
    fake.error = InputError("no")
    assert cli.main(["plan", "mine.py:f", "-v"]) == 2
    err = capsys.readouterr().err
    assert err.index("Traceback") < err.index("coreproof: error: no")


def test_a_failure_with_json_is_a_document_too(fake, capsys):
    fake.error = RequirementError("1 op stays", (REFUSAL,))
    assert cli.main(["plan", "mine.py:f", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == {
        "type": "RequirementError",
        "message": "1 op stays",
        "exit_code": 1,
        "refusals": [
            {
                "rule": "attempt",
                "reason": "it has no converter",
                "op": "aten.acosh.default",
                "node": "acosh",
                "source": "mine.py:7",
                "module": "head",
                "tensor": "",
                "evidence": "",
            }
        ],
    }
    assert err == "coreproof: error: 1 op stays\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND"),
        (["lower", "mine.py:f"], "-o/--output"),
        (["plan"], "SOURCE"),
        (["plan", "mine.py:f", "--target", "iOS19"], "unknown deployment target 'iOS19', expected one of iOS15"),
        (["plan", "mine.py:f", "--precision", "float64"], "invalid choice: 'float64'"),
        (["plan", "mine.py:f", "--compute-units", "ane"], "invalid choice: 'ane'"),
        (["plan", "mine.py:f", "--quiet", "-v"], "not allowed with"),
        (["plan", "mine.py:f", "--full-graph", "--no-state"], "--full-graph excludes"),
        (["plan", "mine.py:f", "--full-graph", "--skip-op", "aten.mm"], "--full-graph excludes"),
        (["train", "mine.py:f"], "invalid choice: 'train'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(fake, capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    out, err = capsys.readouterr()
    assert caught.value.code == 2 and out == "" and not fake.calls
    assert message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "output", "message"),
    [
        ("missing.pt2", "out.pte", "missing.pt2 does not exist"),
        ("mine.py:g", "out.pte", "no function g in mine.py"),
        ("mine.py:f", "missing/out.pte", "does not exist; create it first"),
        ("mine.py:f", "out.onnx", "ends with .pte"),
        ("mine.py:f", "", "the output path is empty"),
    ],
)
def test_bad_input_is_found_before_the_work_starts(fake, tmp_path, capsys, source, output, message):
    assert cli.main(["lower", source, "-o", output]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("\n") == 1
    assert not fake.calls and not list(tmp_path.glob("**/*.pte"))


def run(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Run Python with the coreproof under test, installed or not."""
    return subprocess.run(
        [sys.executable, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])},
    )


@pytest.mark.parametrize("arguments", [["--help"], ["lower", "--help"], ["--version"]])
def test_help_and_version_import_nothing_heavy(arguments):
    code = (
        "import sys; from coreproof import cli\n"
        f"try: cli.main({arguments!r})\n"
        "except SystemExit as stop: code = stop.code\n"
        "heavy = {'torch', 'executorch', 'coremltools', 'rich'} & set(sys.modules)\n"
        "print(code, sorted(heavy))"
    )
    done = run("-c", code)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


def test_help_documents_every_exit_code():
    listed = run("-m", "coreproof", "--help").stdout.split("exit codes:")[1].split("\n")
    assert [line.split()[0] for line in listed if line] == ["0", "1", "2", "3", "70", "130"]


NOISE = """
import logging, os, subprocess, sys, warnings
import coreproof
from coreproof import cli
from coreproof.partition.record import MethodPlacement, Placement
def plan(model, inputs, *, progress, **options):
    print("a print")
    print("to stderr", file=sys.stderr)
    warnings.warn("a warning")
    logging.getLogger("somebody").error("a log line")
    handler = logging.StreamHandler(sys.stdout)
    logging.getLogger("other").addHandler(handler)
    logging.getLogger("other").error("a log line of a library's own handler")
    os.write(1, b"from C++"); os.write(2, b"from C++")
    subprocess.run(["echo", "from a child"], check=True)
    return Placement(forward=MethodPlacement())
coreproof.plan = plan
sys.exit(cli.main(sys.argv[1:]))
"""


def test_libraries_are_silent_however_they_write(fake):
    done = run("-c", NOISE, "plan", "mine.py:f")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.strip() == "Core ML  0 of 0 ops (100.0%) in 0 delegates, 0 on the CPU"


def test_verbose_lets_them_speak(fake):
    done = run("-c", NOISE, "plan", "mine.py:f", "-v")
    for text in ("a print", "to stderr", "a warning", "a log line", "from C++", "from a child"):
        assert text in done.stdout + done.stderr


def test_a_reader_that_stops_reading_is_no_error(fake):
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = run("-c", NOISE, "plan", "mine.py:f", stdout=write_end)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")
