"""Which files make up a run, and what is in them: folders, links, archives, compressed files, pipes."""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import COMPRESS, LONG, TEXT, contents, notes, tar, write, zipped

from logforensics.sniff import is_binary, utf16_of
from logforensics.sources import InputError, collect

# -- layouts --------------------------------------------------------------------------------------------------


def test_a_single_file_goes_by_its_own_name(tmp_path):
    write(tmp_path, {"run.log": TEXT})

    assert contents(tmp_path / "run.log") == {"run.log": TEXT}


def test_per_rank_files_are_in_the_order_of_their_numbers(tmp_path):
    write(tmp_path, {f"rank{rank}.log": TEXT for rank in (10, 9, 0)})

    with collect([tmp_path]) as sources:
        assert [(source.name, source.hints.rank) for source in sources.found] == [
            ("rank0.log", 0),
            ("rank9.log", 9),
            ("rank10.log", 10),
        ]


def test_a_torchrun_tree_gives_local_ranks_attempts_and_error_files(tmp_path):
    write(tmp_path, {"none_ab/attempt_1/3/stderr.log": TEXT, "none_ab/attempt_1/3/error.json": b'{"message": "x"}'})

    with collect([tmp_path]) as sources:
        assert [(s.kind, s.hints.local_rank, s.hints.attempt) for s in sources.found] == [
            ("error_file", 3, 1),
            ("log", 3, 1),
        ]


def test_trees_of_several_nodes_given_side_by_side_keep_apart(tmp_path):
    write(tmp_path, {f"node{node}/none_x/attempt_0/0/stderr.log": TEXT for node in (0, 1)})

    with collect([tmp_path / "node0", tmp_path / "node1"]) as sources:
        assert [(s.name, s.hints.node) for s in sources.found] == [
            ("node0/none_x/attempt_0/0/stderr.log", "node0"),
            ("node1/none_x/attempt_0/0/stderr.log", "node1"),
        ]


def test_files_of_different_folders_are_named_from_the_folder_they_share(tmp_path):
    write(tmp_path, {"a/x.log": TEXT, "b/c/y.log": TEXT})

    assert list(contents(tmp_path / "a" / "x.log", tmp_path / "b")) == ["a/x.log", "b/c/y.log"]


def test_a_pattern_means_all_that_it_matches(tmp_path):
    write(tmp_path, {"rank0.log": TEXT, "rank1.log": TEXT, "other.txt": TEXT, "deep/er/rank2.log": TEXT})

    assert list(contents(f"{tmp_path}/rank*.log")) == ["rank0.log", "rank1.log"]
    assert len(contents(f"{tmp_path}/**/rank*.log")) == 3


def test_a_file_whose_name_looks_like_a_pattern_is_found(tmp_path):
    write(tmp_path, {"run[1].log": TEXT})

    assert contents(tmp_path / "run[1].log") == {"run[1].log": TEXT}


def test_configuration_in_a_folder_is_no_log_but_what_is_named_is(tmp_path):
    write(tmp_path, {"notes.md": TEXT, "run.log": TEXT})

    with collect([tmp_path]) as sources:
        assert {s.name: s.kind for s in sources.found} == {"notes.md": "config", "run.log": "log"}
    with collect([tmp_path / "notes.md"]) as sources:
        assert [s.kind for s in sources.found] == ["log"]


def test_a_folder_with_nothing_but_configuration_has_no_log(tmp_path):
    write(tmp_path, {"config.yaml": b"a: 1\n"})

    with pytest.raises(InputError, match="no log file here; give the folder"):
        collect([tmp_path])


def test_code_and_repositories_below_a_run_are_left_alone(tmp_path):
    write(tmp_path, {"run.log": TEXT, ".git/x.log": TEXT, "venv/site-packages/y.log": TEXT})

    assert list(contents(tmp_path)) == ["run.log"]


# -- twice, links ---------------------------------------------------------------------------------------------


def test_a_file_that_is_reached_twice_is_read_once(tmp_path):
    write(tmp_path, {"run.log": TEXT})
    (tmp_path / "again.log").hardlink_to(tmp_path / "run.log")

    assert len(contents(tmp_path / "run.log", tmp_path, tmp_path / "run.log", f"{tmp_path}/*.log")) == 1


def test_a_link_to_a_file_that_is_here_anyway_does_not_take_its_name(tmp_path):
    write(tmp_path, {"rank3.log": TEXT})
    (tmp_path / "latest.log").symlink_to("rank3.log")

    assert list(contents(tmp_path)) == ["rank3.log"]


def test_a_link_to_a_log_elsewhere_is_followed(tmp_path):
    write(tmp_path, {"elsewhere/x.log": TEXT, "run/a.log": TEXT})
    (tmp_path / "run" / "rank1.log").symlink_to(tmp_path / "elsewhere" / "x.log")

    assert list(contents(tmp_path / "run")) == ["a.log", "rank1.log"]


def test_a_link_to_a_folder_elsewhere_is_named_and_read_when_that_folder_is_given_too(tmp_path):
    write(tmp_path, {"elsewhere/x.log": TEXT, "run/a.log": TEXT})
    (tmp_path / "run" / "more").symlink_to(tmp_path / "elsewhere")

    with collect([tmp_path / "run"]) as sources:
        assert [s.name for s in sources.found] == ["a.log"]
        assert notes(sources) == [
            f"more: a link to a folder elsewhere, not followed; give {tmp_path / 'elsewhere'} too to have it read"
        ]
    with collect([tmp_path / "run", tmp_path / "elsewhere"]) as sources:
        assert len(sources.found) == 2 and not sources.notes


def test_links_that_lead_in_circles_or_nowhere_end_in_notes(tmp_path):
    write(tmp_path, {"run/a.log": TEXT})
    for name, target in (("up", ".."), ("here", "."), ("self", "self"), ("gone.log", "/nonexistent/x")):
        (tmp_path / "run" / name).symlink_to(target)

    with collect([tmp_path / "run"]) as sources:
        assert [s.name for s in sources.found] == ["a.log"]
        assert [note.source for note in sources.notes] == ["up", "gone.log", "self"]


def test_a_path_that_cannot_be_reached_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"^/nonexistent/x: no such file or folder; check the path$"):
        collect(["/nonexistent/x"])
    with pytest.raises(InputError, match="nothing matches this pattern"):
        collect(["/nonexistent/*.log"])
    with pytest.raises(InputError, match=r"^x{200}\.\.\.: cannot be reached \(File name too long\)"):
        collect(["x" * 5000])
    with pytest.raises(InputError, match="no path given"):
        collect([])


def test_a_file_that_cannot_be_opened_is_noted_and_the_rest_is_read(tmp_path, monkeypatch):
    write(tmp_path, {"a.log": TEXT, "secret.log": TEXT})
    plain = Path.open

    def refuse(self, *arguments, **more):
        if self.name == "secret.log":
            raise PermissionError(13, "Permission denied")
        return plain(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with collect([tmp_path]) as sources:
        assert [s.name for s in sources.found] == ["a.log"]
        assert notes(sources) == ["secret.log: cannot be read (Permission denied); skipped"]


def test_a_folder_that_cannot_be_searched_is_noted(tmp_path, monkeypatch):
    write(tmp_path, {"a.log": TEXT, "locked/b.log": TEXT})
    plain = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return plain(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with collect([tmp_path]) as sources:
        assert notes(sources) == ["locked: this folder cannot be read; check its permissions"]


def test_names_are_spelled_so_that_no_terminal_obeys_them(tmp_path):
    write(tmp_path, {"a\nb\x1b[31m\u202e.log": TEXT, "plain ü 日.log": TEXT})
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.log")).write_bytes(TEXT)

    assert sorted(contents(tmp_path)) == ["\\xff.log", "a\\x0ab\\x1b[31m\\u202e.log", "plain ü 日.log"]


# -- special files and pipes ----------------------------------------------------------------------------------


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path):
    write(tmp_path, {"a.log": TEXT})
    os.mkfifo(tmp_path / "pipe")

    with collect([tmp_path]) as sources:
        assert notes(sources) == ["pipe: not a regular file; skipped"]


def test_a_pipe_that_is_named_is_read_to_its_end(tmp_path):
    """As the shell's <(zcat run.log.gz) is."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(COMPRESS["gz"](TEXT),))
    writer.start()
    try:
        assert contents(tmp_path / "pipe") == {"pipe": TEXT}
    finally:
        writer.join()


def test_a_device_is_refused():
    with pytest.raises(InputError, match="not a regular file"):
        collect(["/dev/null"])


@pytest.mark.parametrize("wrap", [bytes, COMPRESS["gz"], COMPRESS["zst"]])
def test_standard_input_may_be_compressed(monkeypatch, wrap):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(wrap(TEXT))))

    assert contents("-") == {"stdin": TEXT}


def test_standard_input_may_be_an_archive_and_stand_beside_files(monkeypatch, tmp_path):
    write(tmp_path, {"a.log": TEXT})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(COMPRESS["gz"](tar({"logs/rank0.log": TEXT})))))

    assert list(contents("-", tmp_path / "a.log", "-")) == ["a.log", "stdin!logs/rank0.log"]


@pytest.mark.parametrize(("stdin", "says"), [(io.TextIOWrapper(io.BytesIO()), "nothing came"), (None, "closed")])
def test_standard_input_without_anything_is_refused(monkeypatch, stdin, says):
    monkeypatch.setattr(sys, "stdin", stdin)

    with pytest.raises(InputError, match=says):
        collect(["-"])


# -- what a file is -------------------------------------------------------------------------------------------


class _Harmful:
    def __reduce__(self):
        return os.mkdir, (os.environ["HARM"],)


def test_a_pickle_is_recognised_and_nothing_in_it_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("HARM", str(tmp_path / "harm"))
    write(tmp_path, {
        "run/a.log": TEXT, "run/model.pkl": pickle.dumps(_Harmful()), "run/nccl_trace_rank_0": pickle.dumps(_Harmful()),
    })  # fmt: skip

    with collect([tmp_path / "run"]) as sources:
        assert {s.name: s.kind for s in sources.found} == {"a.log": "log", "nccl_trace_rank_0": "flight_recorder"}
        assert notes(sources) == ["model.pkl: a binary file, not a log; skipped"]
    assert not (tmp_path / "harm").exists()


def test_binary_files_share_one_note(tmp_path):
    write(
        tmp_path, {"a.log": TEXT, "b.bin": bytes(range(256)) * 40, "core": b"\x7fELF" + bytes(99), "w.safetensors": b""}
    )

    with collect([tmp_path]) as sources:
        assert notes(sources) == ["b.bin: a binary file, not a log; skipped, like 2 more"]


def test_a_checkpoint_is_a_zip_file_that_is_not_unpacked(tmp_path):
    """torch.save writes zip files; a run's folder may hold hundreds of gigabytes of them."""
    write(tmp_path, {"a.log": TEXT, "pytorch_model.bin": zipped({"archive/data.pkl": TEXT, "archive/data/0": TEXT})})

    with collect([tmp_path]) as sources:
        assert [s.name for s in sources.found] == ["a.log"] and not sources.spooled
        assert notes(sources) == ["pytorch_model.bin: a binary file, not a log; skipped"]


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_turned_into_utf8(tmp_path, codec):
    text = "2026-11-30 loss is NaN — µ\r\n" * 30
    write(tmp_path, {"a.log": text.encode(codec)})

    assert contents(tmp_path)["a.log"].decode() == text


def test_a_rotated_log_that_begins_with_a_hole_is_a_log(tmp_path):
    """A log cut by rotation while its writer goes on begins with NULs up to where the writer was."""
    write(tmp_path, {"a.log": bytes(1 << 20) + TEXT})

    with collect([tmp_path]) as sources:
        assert [s.kind for s in sources.found] == ["log"]


@given(st.lists(st.sampled_from(["a", "é", "日", "\t", "\r", "\n", "\x1b[31m", "\x07", "\x08", "│", "█"]), min_size=1))
def test_text_with_bars_and_escapes_is_never_binary(parts):
    assert not is_binary("".join(parts).encode())


@given(st.binary())
def test_sniffing_takes_any_bytes(head):
    assert is_binary(head) in (True, False)
    assert utf16_of(head) in (None, "utf-16", "utf-16-le", "utf-16-be")


def test_text_of_other_encodings_is_text_and_noise_is_not():
    text = "Bellek yetersiz: çalışma durdu, ığüşöç\n" * 20
    for codec in ("utf-8", "iso8859-9", "cp1254"):
        assert not is_binary(text.encode(codec, "replace"))
    assert not is_binary("内存不足 训练停止\n".encode("gbk") * 20)
    assert not is_binary(TEXT.replace(b"\n", b"\0\n"))
    assert is_binary(COMPRESS["xz"](LONG)[6:4000])
