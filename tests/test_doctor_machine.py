"""What the doctor reads on this machine: files of models, processes, folders."""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

import pytest

from slotgate.doctor import machine, slot_files
from slotgate.doctor.facts import Header
from slotgate.doctor.gguf import header_of
from slotgate.doctor.options import Options
from slotgate.snapshots.names import OURS
from slotgate.state import StateFolder
from slotgate.testing.models import write_tiny_model


@pytest.mark.parametrize(
    ("window", "header"), [(0, Header("llama", 0, False)), (64, Header("gemma3", 64, False))]
)
def test_a_models_file_says_what_it_is(tmp_path: Path, window: int, header: Header) -> None:
    write_tiny_model(tmp_path / "m.gguf", sliding_window=window)
    assert header_of(str(tmp_path / "m.gguf")) == header


def gguf(*pairs: tuple[str, int, bytes]) -> bytes:
    """A header with these keys."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs))
    return head + b"".join(
        struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value
        for key, kind, value in pairs
    )


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def test_a_model_with_a_state(tmp_path: Path) -> None:
    strings = struct.pack("<IQ", 8, 2) + text("a") + text("b")
    content = gguf(
        ("tokenizer.ggml.tokens", 9, strings),
        ("general.architecture", 8, text("mamba")),
        ("mamba.ssm.state_size", 4, struct.pack("<I", 16)),
    )
    (tmp_path / "m.gguf").write_bytes(content)
    assert header_of(str(tmp_path / "m.gguf")) == Header("mamba", 0, True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"junk" * 100,
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**60),
        gguf(("general.architecture", 8, struct.pack("<Q", 2**60))),
        gguf(("a", 9, struct.pack("<IQ", 9, 2**60))),
        gguf(("a", 77, b"")),
        gguf(("general.architecture", 8, text("llama")))[:-2],
    ],
)
def test_what_is_no_model_is_not_known(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    assert header_of(str(tmp_path / "m.gguf")) is None


def test_a_file_that_is_not_here_is_not_known(tmp_path: Path) -> None:
    assert header_of(str(tmp_path / "m.gguf")) is None
    assert header_of("\0") is None


def process(proc: Path, number: int, command: list[str], inode: int) -> None:
    """A process that listens, in a /proc of the test's."""
    (proc / str(number) / "fd").mkdir(parents=True)
    (proc / str(number) / "fd" / "3").symlink_to(f"socket:[{inode}]")
    (proc / str(number) / "cmdline").write_bytes(b"".join(c.encode() + b"\0" for c in command))


def listening(proc: Path, port: int, inode: int) -> None:
    (proc / "net").mkdir()
    line = f"   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 0 0 {inode} 1 0 100 0 0 10 0"
    (proc / "net" / "tcp").write_text(f"  sl  local_address\n{line}\n")


def test_the_command_line_of_a_server_here(tmp_path: Path) -> None:
    listening(tmp_path, 8080, 77)
    process(tmp_path, 11, ["/bin/other"], 78)
    process(tmp_path, 12, ["/usr/bin/llama-server", "-np", "2"], 77)
    assert machine.options_at(8080, tmp_path) == Options(("-np", "2"))
    assert machine.options_at(8081, tmp_path) is None


def test_another_program_has_no_options(tmp_path: Path) -> None:
    listening(tmp_path, 8080, 77)
    process(tmp_path, 12, ["/usr/bin/docker-proxy", "-np", "2"], 77)
    assert machine.options_at(8080, tmp_path) is None


def test_our_own_sockets_are_found_in_the_real_proc() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not list(machine._listening(port, Path("/proc"))):
            pytest.skip("this system does not tell who listens")
        # it is Python, no llama-server
        assert machine.options_at(port) is None


def test_options() -> None:
    said = Options(("-np", "1", "--parallel", "3", "-cram", "x", "--sleep-idle-seconds", "nan"))
    assert (said.parallel, said.cache_ram_mib, said.sleep_seconds) == (3, 8192, None)
    assert Options(("-np", "-1")).parallel is None
    assert Options(("--sleep-idle-seconds", "9")).sleep_seconds == 9
    assert Options(("--sleep-idle-seconds", "-1")).sleep_seconds is None
    assert Options(("--slot-save-path",)).slot_save_path == ""


def test_a_lock_is_found_without_taking_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    inode = lock.stat().st_ino
    (tmp_path / "locks").write_text(
        f"1: POSIX  ADVISORY  READ 5 08:01:{inode} 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE 6 08:01:{inode}9 0 EOF\n"
        f"3: FLOCK  ADVISORY  WRITE 7 08:01:{inode} 0 EOF\n"
    )
    assert machine.lock_holder(lock, tmp_path) == 7
    assert machine.lock_holder(tmp_path / "none", tmp_path) is None


def test_the_lock_of_a_slotgate_that_runs(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.open()
    try:
        if not Path("/proc/locks").exists():
            pytest.skip("this system does not tell who holds a lock")
        assert machine.lock_holder(tmp_path / "lock") == os.getpid()
    finally:
        folder.close()
    assert machine.lock_holder(tmp_path / "lock") is None


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://localhost", True),
        ("http://10.0.0.1", False),
        ("https://llama.example", False),
    ],
)
def test_what_is_on_this_machine(url: str, local: bool) -> None:
    assert machine.is_local(url) is local


def test_memory_that_is_left(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:       2048 kB\n")
    assert machine.memory_available(tmp_path) == 2048 * 1024
    assert machine.memory_available(tmp_path / "none") == 0


def test_a_look_at_a_folder_leaves_nothing(tmp_path: Path) -> None:
    folder = slot_files.look(tmp_path, 0, slot_files.probe_name())
    assert (folder.exists, folder.writable, folder.trouble) == (True, True, "")
    assert folder.write_speed > 0
    assert folder.read_speed > 0
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_doctor_that_was_killed_are_seen_and_left_there(tmp_path: Path) -> None:
    old, young = slot_files.probe_name(), slot_files.probe_name()
    for name, age in ((old, 3700), (young, 3500), ("session.bin", 9999)):
        (tmp_path / name).write_bytes(b"12345")
        at = time.time() - age
        os.utime(tmp_path / name, (at, at))
    folder = slot_files.look(tmp_path, 0, slot_files.probe_name())
    assert (folder.left, folder.left_bytes) == ((old,), 5)
    assert {path.name for path in tmp_path.iterdir()} == {old, young, "session.bin"}


def test_a_disk_without_room_is_not_written(tmp_path: Path) -> None:
    folder = slot_files.look(tmp_path, 2**60, slot_files.probe_name())
    assert (folder.writable, folder.write_speed) == (True, 0)


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert (
        slot_files.look(tmp_path / "file", 0, slot_files.probe_name()).trouble == "it is no folder"
    )
    assert not slot_files.look(tmp_path / "none", 0, slot_files.probe_name()).exists


def test_only_the_doctors_own_files_are_deleted(tmp_path: Path) -> None:
    name = slot_files.probe_name()
    assert not OURS.match(name)
    (tmp_path / name).touch()
    assert slot_files.size_of(tmp_path, name) == 0
    assert slot_files.delete(tmp_path, name) == ""
    assert slot_files.delete(tmp_path, name) == ""
    assert slot_files.size_of(tmp_path, name) is None
    for other in ("m.bin", "../" + name, name + "x"):
        with pytest.raises(ValueError, match="not a name of the doctor's"):
            slot_files.delete(tmp_path, other)


def test_a_relative_folder_starts_where_the_server_was_started(tmp_path: Path) -> None:
    command = ["llama-server", "--slot-save-path", "d/slots/"]
    process(tmp_path, 7, command, 4711)
    (tmp_path / "7" / "cwd").symlink_to("/srv/llama")
    listening(tmp_path, 8080, 4711)
    found = machine.options_at(8080, tmp_path)
    assert found is not None
    assert found.slot_save_path == "/srv/llama/d/slots"
    assert Options(("--slot-save-path", "/a/b/")).slot_save_path == "/a/b"
    assert Options(()).slot_save_path == ""
