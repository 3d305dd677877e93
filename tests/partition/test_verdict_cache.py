"""Verdicts on disk: found again, never trusted when damaged, and shared by processes."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import coreproof
from coreproof.partition import attempt, verdict_cache
from coreproof.partition.attempt import Attempts, Verdict
from coreproof.partition.verdict_cache import keep, recall

REFUSED = Verdict(False, "value", "its conversion gives other values than torch", "", "at [0] torch gives 1")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COREPROOF_CACHE", str(tmp_path))
    return tmp_path


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_verdict_comes_back_as_it_was():
    assert recall("a", Verdict) is None
    keep("a", REFUSED)
    keep("b", Verdict(True))
    assert recall("a", Verdict) == REFUSED
    assert recall("b", Verdict) == Verdict(True)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[1]",
        "null",
        "{}",
        '{"signature": "a"}',
        '{"signature": "a", "ok": "yes"}',
        "\\u0000" * 10,
        "[" * 10**5,
    ],
)
def test_a_damaged_file_is_ignored_and_written_anew(folder, content):
    keep("a", REFUSED)
    (path,) = files(folder)
    path.write_text(content)
    assert recall("a", Verdict) is None
    keep("a", REFUSED)
    assert recall("a", Verdict) == REFUSED


def test_a_value_of_another_type_is_ignored(folder):
    keep("a", REFUSED)
    (path,) = files(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"ok": "false"}))
    assert recall("a", Verdict) is None


def test_a_file_of_another_signature_is_ignored(folder):
    keep("a", REFUSED)
    (path,) = files(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"signature": "b"}))
    assert recall("a", Verdict) is None


def test_a_folder_that_cannot_be_written_keeps_nothing(folder, monkeypatch):
    (folder / "file").write_text("")
    monkeypatch.setenv("COREPROOF_CACHE", str(folder / "file"))
    keep("a", REFUSED)
    assert recall("a", Verdict) is None


def test_several_writers_leave_one_whole_file(folder):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: keep("a", REFUSED), range(64)))
    assert len(files(folder)) == 1
    assert recall("a", Verdict) == REFUSED


def test_another_version_has_its_own_verdicts(monkeypatch):
    keep("a", REFUSED)
    monkeypatch.setattr(verdict_cache, "_versions", lambda: "another")
    assert recall("a", Verdict) is None


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.5


def proofs(monkeypatch, **options):
    """How many ops are proven when the model is planned in a new process."""
    monkeypatch.setattr(Attempts, "_verdicts", {})
    counted = []
    original = attempt.wrong_values
    monkeypatch.setattr(attempt, "wrong_values", lambda *given: counted.append(1) or original(*given))
    coreproof.plan(Model(), (torch.randn(2, 3),), **options)
    return len(counted)


def test_a_second_process_proves_nothing_again(monkeypatch, folder):
    assert proofs(monkeypatch) > 0
    assert files(folder)
    assert proofs(monkeypatch) == 0


def test_without_the_cache(monkeypatch, folder):
    assert proofs(monkeypatch, use_cache=False) > 0
    assert not files(folder)
    assert proofs(monkeypatch, use_cache=False) > 0
