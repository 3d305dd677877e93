from __future__ import annotations

import os
import stat

import pytest

from coreproof import files
from coreproof.errors import InputError
from coreproof.files import check_output_path, write_atomically


def test_writes_bytes_and_what_a_function_writes(tmp_path):
    write_atomically(tmp_path / "a.pte", b"\x00\xff")
    write_atomically(tmp_path / "b.pte", lambda file: [file.write(b"12"), file.write(b"3")])
    assert (tmp_path / "a.pte").read_bytes() == b"\x00\xff"
    assert (tmp_path / "b.pte").read_bytes() == b"123"
    assert sorted(os.listdir(tmp_path)) == ["a.pte", "b.pte"]


def test_an_error_half_way_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "model.pte"
    target.write_bytes(b"old")

    def half(file):
        file.write(b"ne")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_atomically(target, half)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.pte"]


def test_the_permissions_are_those_of_an_ordinary_file(tmp_path):
    (tmp_path / "ordinary").write_bytes(b"")
    write_atomically(tmp_path / "model.pte", b"")
    ordinary, written = ((tmp_path / name).stat().st_mode for name in ("ordinary", "model.pte"))
    assert stat.S_IMODE(written) == stat.S_IMODE(ordinary)


def test_a_symbolic_link_keeps_pointing_to_the_file_it_names(tmp_path):
    (tmp_path / "real.pte").write_bytes(b"old")
    (tmp_path / "link.pte").symlink_to("real.pte")
    write_atomically(tmp_path / "link.pte", b"new")
    assert (tmp_path / "link.pte").is_symlink()
    assert (tmp_path / "real.pte").read_bytes() == b"new"


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    def full(file):
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"cannot write .*model\.pte: No space left on device"):
        write_atomically(tmp_path / "model.pte", full)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/model.pte", "does not exist"),
        ("a_file/model.pte", "does not exist"),
        ("folder.pte", "is a folder"),
        ("folder.pte/", "is a folder"),
        ("model.bin", "ends with .pte"),
        ("model", "ends with .pte"),
        ("", "is empty"),
    ],
)
def test_paths_that_cannot_be_written_are_found_early(tmp_path, monkeypatch, name, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.pte").mkdir()
    (tmp_path / "a_file").write_bytes(b"")
    with pytest.raises(InputError, match=reason):
        check_output_path(name, ".pte")
    assert sorted(os.listdir(tmp_path)) == ["a_file", "folder.pte"]


def test_a_folder_that_refuses_new_files_is_found_early(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.tempfile, "TemporaryFile", refuse)
    with pytest.raises(InputError, match="Permission denied in the folder"):
        check_output_path(tmp_path / "model.pte", ".pte")


def test_a_good_path_passes_and_nothing_is_created(tmp_path):
    check_output_path(tmp_path / "model.pte", ".pte")
    assert os.listdir(tmp_path) == []
