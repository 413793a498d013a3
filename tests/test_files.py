"""Writing files: what is there is replaced as a whole, or left alone."""

import errno
import os
import socket
import stat
import subprocess
import sys

import pytest

import randkern as rk
from randkern._files import atomic_write, check_writable
from randkern.exceptions import ModelFileError
from randkern.study.records import write_results

pytestmark = pytest.mark.skipif(os.name != "posix", reason="special files of POSIX")


def save_model(path):
    pytest.importorskip("skops")
    rk.save(rk.Gaussian(3.0), path)


def write_plainly(path):
    with atomic_write(path) as file:
        file.write(b"content")


WRITERS = {
    "model": save_model,
    "plain": write_plainly,
    "results": lambda path: write_results({"records": []}, path),
}


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as created:
        created.bind(os.path.relpath(path))


PLACES = {"a named pipe": make_pipe, "a socket": make_socket, "a folder": os.mkdir}


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    return tmp_path / "file.png"


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", PLACES)
def test_only_files_are_replaced(kind, linked, writer, path):
    PLACES[kind](path)
    before = path.stat()
    named = path.with_name("link.png") if linked else path
    if linked:
        named.symlink_to(path)
    with pytest.raises(OSError, match=f"is {kind}"):
        WRITERS[writer](named)
    assert os.path.samestat(path.stat(), before)
    assert named.is_symlink() == linked
    assert len(list(path.parent.iterdir())) == 1 + linked


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("there", [False, True])
def test_links_are_followed(there, writer, path):
    link = path.with_name("link.png")
    link.symlink_to(path.name)
    if there:
        path.write_bytes(b"before")
    WRITERS[writer](link)
    assert link.is_symlink()
    assert stat.S_ISREG(path.lstat().st_mode) and path.read_bytes() != b"before"
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.parametrize("kind", PLACES)
def test_special_files_are_not_read(kind, path):
    """Opening a pipe would wait for another process."""
    pytest.importorskip("skops")
    PLACES[kind](path)
    with pytest.raises(ModelFileError, match=f"is {kind}"):
        rk.load(path)


def test_what_is_replaced_keeps_its_permissions(tmp_path):
    path = tmp_path / "model"
    write_plainly(path)
    path.chmod(0o600)
    write_plainly(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_paths_that_cannot_be(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(FileNotFoundError, match="path is empty"):
        write_plainly("")
    assert list(tmp_path.iterdir()) == [folder]


ABANDONED = """
import os, signal, sys
from randkern._files import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_files_of_killed_processes_are_removed_by_the_next(tmp_path):
    path = tmp_path / "results.json"
    subprocess.run([sys.executable, "-c", ABANDONED, str(path)], check=False)
    (left,) = tmp_path.iterdir()
    assert left.read_bytes() == b"half"
    with atomic_write(tmp_path / "other.json") as file:  # that of another file stays
        file.write(b"other")
    assert left.exists()
    with atomic_write(path) as first, atomic_write(path) as second:
        assert not left.exists()
        first.write(b"first")
        second.write(b"second")  # neither takes the other's for abandoned
    assert path.read_bytes() == b"first"
    assert {item.name for item in tmp_path.iterdir()} == {"results.json", "other.json"}


def test_descriptions_go_when_what_they_describe_is_replaced(tmp_path):
    path, report = tmp_path / "model", tmp_path / "report"
    for item in (path, report):
        item.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_write(path, [report]):
        raise ZeroDivisionError
    assert path.read_bytes() == report.read_bytes() == b"old"
    with atomic_write(path, [report, tmp_path / "none"]) as file:
        file.write(b"new")
        assert report.exists()
    assert path.read_bytes() == b"new" and not report.exists()


def test_folders_that_cannot_be_written_to_are_named(tmp_path, monkeypatch):
    check_writable(tmp_path, 1000)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError) as caught:
        check_writable(tmp_path / "none")
    assert caught.value.filename == str(tmp_path / "none")
    with pytest.raises(OSError, match="free, but about .* may be needed"):
        check_writable(tmp_path, 10**18)

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "a temporary name")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(PermissionError) as caught:
        check_writable(tmp_path)
    assert caught.value.filename == str(tmp_path)
