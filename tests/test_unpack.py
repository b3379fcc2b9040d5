"""What is compressed or packed: every codec and archive, cut, damaged, hostile, and bombs."""

from __future__ import annotations

import gzip
import io
import resource
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import COMPRESS, LONG, TEXT, contents, encrypted, notes, tar, write, zipped

from logforensics import unpack
from logforensics.sources import InputError, collect
from logforensics.unpack import Limit, Stream, decompressed, tar_members, zip_members

# -- compressed and packed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_compressed_file_keeps_its_name_and_tells_what_the_name_inside_tells(tmp_path, codec):
    write(tmp_path, {f"rank7.log.{codec}": COMPRESS[codec](TEXT)})

    with collect([tmp_path]) as sources:
        (source,) = sources.found
        assert (source.name, source.hints.rank, source.kind) == (f"rank7.log.{codec}", 7, "log")
        assert (source.path.read_bytes(), source.size) == (TEXT, len(TEXT))


def test_a_log_and_its_compressed_copy_are_two_sources(tmp_path):
    write(tmp_path, {"x.log": TEXT, "x.log.gz": COMPRESS["gz"](TEXT)})

    assert list(contents(tmp_path)) == ["x.log", "x.log.gz"]


def test_a_name_that_only_claims_to_be_compressed_is_read_as_it_is(tmp_path):
    write(tmp_path, {"x.log.gz": TEXT})

    assert contents(tmp_path) == {"x.log.gz": TEXT}


@pytest.mark.parametrize("codec", COMPRESS)
def test_streams_behind_one_another_are_one(tmp_path, codec):
    pieces = [TEXT[start : start + 7] for start in range(0, len(TEXT), 7)]
    write(tmp_path, {"x.log": b"".join(map(COMPRESS[codec], pieces))})

    assert contents(tmp_path) == {"x.log": TEXT}


@pytest.mark.parametrize("codec", COMPRESS)
def test_padding_is_nothing_and_anything_else_behind_the_end_is_noted(tmp_path, codec):
    write(tmp_path, {"a.log": COMPRESS[codec](TEXT) + bytes(100), "b.log": COMPRESS[codec](TEXT) + b"something else"})

    with collect([tmp_path]) as sources:
        assert {s.name: s.path.read_bytes() for s in sources.found} == {"a.log": TEXT, "b.log": TEXT}
        assert [note.source for note in sources.notes] == ["b.log"]
        assert "something else stands behind the end" in sources.notes[0].what


@pytest.mark.parametrize("codec", [None, *COMPRESS])
def test_archives_give_their_files_under_the_names_inside(tmp_path, codec):
    inside = {"logs/rank0.log": TEXT, "logs/rank1.log": TEXT[:50], "logs/empty.log": b""}
    packed = COMPRESS[codec](tar(inside)) if codec else tar(inside)
    write(tmp_path, {"run.archive": packed})

    assert contents(tmp_path) == {f"run.archive!{name}": content for name, content in inside.items()}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_archives_give_their_files(tmp_path, method):
    write(tmp_path, {"run.zip": zipped({"a/rank0.log": TEXT, "b.log": TEXT[:9]}, method)})

    assert contents(tmp_path) == {"run.zip!a/rank0.log": TEXT, "run.zip!b.log": TEXT[:9]}


def test_an_archive_in_an_archive_is_opened_but_not_without_end(tmp_path):
    inner = COMPRESS["gz"](tar({"rank0.log.zst": COMPRESS["zst"](TEXT)}))
    write(tmp_path, {"run.zip": zipped({"node0.tgz": inner})})
    endless = TEXT
    for _ in range(9):
        endless = COMPRESS["gz"](endless)
    write(tmp_path, {"endless": endless})

    with collect([tmp_path]) as sources:
        assert [s.name for s in sources.found] == ["run.zip!node0.tgz!rank0.log.zst"]
        assert sources.found[0].hints.rank == 0
        assert notes(sources) == ["endless: packed more than 6 times over; unpack it and give what is in it"]


def test_links_and_devices_in_a_tar_are_left_out(tmp_path):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, kind in (("passwd", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("dev", tarfile.CHRTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    write(tmp_path, {"a.tar": target.getvalue(), "b.log": TEXT})

    assert list(contents(tmp_path)) == ["b.log"]


@pytest.mark.parametrize("pack", [tar, zipped])
def test_members_that_lead_out_are_read_as_if_inside_and_noted_once(tmp_path, pack):
    write(tmp_path, {"run": pack({"../../up.log": TEXT, "/etc/abs.log": TEXT, "in.log": TEXT})})

    with collect([tmp_path / "run"]) as sources:
        assert [s.name for s in sources.found] == ["run!etc/abs.log", "run!in.log", "run!up.log"]
        assert notes(sources) == [
            "run: members with names that lead out of it (../../up.log and 1 more); read as if inside"
        ]
        spool = sources.found[0].path.parent
        assert all(source.path.parent == spool for source in sources.found)
    assert not (tmp_path.parent / "up.log").exists()


def test_a_name_that_an_archive_holds_twice_is_two_sources(tmp_path):
    first = tar({"a.log": TEXT})
    write(tmp_path, {"run.tar": first[: 512 + len(TEXT) + -len(TEXT) % 512] + tar({"a.log": TEXT[:9]})})

    assert contents(tmp_path) == {"run.tar!a.log": TEXT, "run.tar!a.log (2)": TEXT[:9]}


def test_an_encrypted_member_is_named_and_the_others_are_read(tmp_path):
    write(tmp_path, {"a.zip": encrypted(zipped({"a.log": TEXT})), "b.log": TEXT})

    with collect([tmp_path]) as sources:
        assert [s.name for s in sources.found] == ["b.log"]
        assert notes(sources) == ["a.zip!a.log: encrypted; unpack it and give what was in it; skipped"]


def test_what_was_unpacked_goes_away_and_nothing_is_written_beside_the_logs(tmp_path):
    write(tmp_path, {"a.log.gz": COMPRESS["gz"](TEXT), "b.zip": zipped({"c.log": TEXT})})
    before = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.iterdir())}

    with collect([tmp_path]) as sources:
        spool = sources.found[0].path.parent
        assert spool.exists() and tmp_path not in spool.parents
    assert not spool.exists()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.iterdir())} == before


def test_a_refusal_leaves_nothing_in_the_temporary_folder(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    write(tmp_path, {"a.gz": COMPRESS["gz"](bytes(5000))})

    with pytest.raises(InputError):
        collect([tmp_path / "a.gz"])
    assert not list((tmp_path / "tmp").iterdir())


def test_a_full_temporary_folder_is_noted(tmp_path):
    write(tmp_path, {"a.log.gz": COMPRESS["gz"](LONG)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
        sources = collect([tmp_path])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with sources:
        assert LONG.startswith(sources.found[0].path.read_bytes())
        assert "no room to unpack it (File too large)" in sources.notes[0].what


# -- damage ---------------------------------------------------------------------------------------------------


def _unpacked(data: bytes) -> tuple[bytes, str | None]:
    stream = decompressed(Stream([data]), Limit(len(data)))
    got = b""
    while block := stream.read():
        got += block
    return got, stream.trouble


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_cut_stream_gives_what_was_there_and_says_that_it_is_cut(codec):
    packed = COMPRESS[codec](LONG)
    whole, trouble = _unpacked(packed)
    assert whole == LONG and trouble is None
    for place in range(6, len(packed), len(packed) // 15):
        got, trouble = _unpacked(packed[:place])
        assert LONG.startswith(got)
        assert trouble == f"the {_name(codec)} data are cut off"
    # bzip2 has one block here, zstandard a few
    least = {"gz": 0.6, "zst": 0.3, "bz2": 0.0, "xz": 0.2}[codec]
    assert len(_unpacked(packed[: len(packed) * 2 // 3])[0]) >= least * len(LONG)


def test_a_damaged_gzip_gives_every_byte_before_the_damage():
    packed = bytearray(gzip.compress(LONG, compresslevel=0, mtime=0))
    place, good = 10, 0  # behind gzip's header stand blocks: a byte, a length, the length inverted, the text
    for _ in range(3):
        length = int.from_bytes(packed[place + 1 : place + 3], "little")
        place, good = place + 5 + length, good + length
    packed[place + 3] ^= 1

    assert _unpacked(bytes(packed)) == (LONG[:good], "the gzip data are damaged (" + _STORED + ")")


_STORED = "Error -3 while decompressing data: invalid stored block lengths"


def _name(codec: str) -> str:
    return {"gz": "gzip", "zst": "zstandard", "bz2": "bzip2", "xz": "xz"}[codec]


def test_a_cut_tar_gives_its_members_up_to_the_cut():
    packed = tar({"a.log": TEXT, "b.log": TEXT})
    for place in range(512, len(packed) - 2048, 700):
        said: list[str] = []
        got = {m.name: (_all(m.stream), m.stream.trouble) for m in tar_members(Stream([packed[:place]]), said.append)}
        for content, trouble in got.values():
            assert TEXT.startswith(content) and (trouble is None) == (content == TEXT)
        assert sum(len(content) for content, _ in got.values()) >= place - 512 - 512 * len(got) - 511
        if len(got) < 2 or any(trouble for _, trouble in got.values()):
            assert said or place in (512 + len(TEXT) + -len(TEXT) % 512, 512)


def _all(stream: Stream) -> bytes:
    got = b""
    while block := stream.read():
        got += block
    return got


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_without_its_table_of_contents_still_gives_its_members(tmp_path, method):
    packed = zipped({"a.log": TEXT, "b/c.log": TEXT, "d.log": TEXT}, method)
    third = packed.find(b"d.log")
    (tmp_path / "cut.zip").write_bytes(packed[: third + 300])
    said: list[str] = []

    got = {
        member.name: (_all(member.stream), member.stream.trouble)
        for member in zip_members(tmp_path / "cut.zip", Limit(1000), said.append)
    }
    assert list(got) == ["a.log", "b/c.log", "d.log"]
    assert got["a.log"] == got["b/c.log"] == (TEXT, None)
    assert 0 < len(got["d.log"][0]) < len(TEXT) and TEXT.startswith(got["d.log"][0])
    assert got["d.log"][1] == "the archive ends inside it"
    assert said == ["the zip archive is cut off or damaged (File is not a zip file); read what could be found in it"]


@pytest.mark.parametrize(
    "packed",
    [*(wrap(LONG[:20000]) for wrap in COMPRESS.values()), COMPRESS["gz"](tar({"a.log": TEXT, "b.log": TEXT})),
     tar({"a.log": TEXT}), zipped({"a.log": TEXT, "b.log": TEXT})],
    ids=[*COMPRESS, "tar.gz", "tar", "zip"],
)  # fmt: skip
def test_no_damage_raises_anything_but_a_refusal(tmp_path, packed):
    """Bytes changed here and there, by a fixed recipe."""
    path = tmp_path / "x"
    for number in range(40):
        broken = bytearray(packed)
        for place in range(number % 5 + 1):
            broken[(number * 7919 + place * 104729) % len(broken)] ^= 1 << (number + place) % 8
        path.write_bytes(broken)
        try:
            with collect([path]):
                pass
        except InputError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("change", [b"\xff" * 12, b"\x80" + bytes(11), b"-0000000001\0"])
def test_a_tar_with_an_impossible_size_or_time_ends_there(tmp_path, change):
    """A size below zero once sent readers round in circles."""
    for place in (124, 136):  # size, time
        header = bytearray(tar({"b.log": TEXT}))
        header[place : place + 12] = change
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header[:512])
        first = tar({"a.log": TEXT})[: 512 + len(TEXT) + -len(TEXT) % 512]
        write(tmp_path, {"x.tar": first + bytes(header)})

        got = contents(tmp_path)
        assert got["x.tar!a.log"] == TEXT
        assert place == 124 or got["x.tar!b.log"] == TEXT


# -- bombs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["gz", "bz2", "xz", "zst", "tar.gz", "nested", "zip", "many"])
def test_a_decompression_bomb_is_stopped(tmp_path, monkeypatch, shape):
    """Scaled down: 4 MB of like lines, and a limit of 256 KB."""
    monkeypatch.setattr(unpack, "MOST_UNPACKED", 1 << 18)
    monkeypatch.setattr(unpack, "MOST_RATIO", 5)
    lines = b"all the same\n" * 300_000
    packed = {
        "tar.gz": lambda: COMPRESS["gz"](tar({"a.log": lines})),
        "nested": lambda: zipped({"b.gz": COMPRESS["gz"](COMPRESS["gz"](lines))}),
        "zip": lambda: zipped({"a.log": lines}),
        "many": lambda: zipped({f"{number}.log": lines[:200_000] for number in range(20)}),
    }.get(shape) or (lambda: COMPRESS[shape](lines))
    write(tmp_path, {"bomb": packed(), "a.log": TEXT})

    with collect([tmp_path]) as sources:
        assert sum(source.size for source in sources.found) < 1 << 19
        assert any("decompression bomb" in note.what for note in sources.notes)
        assert sources.found[0].name == "a.log"


def test_a_log_that_packs_well_is_no_bomb(tmp_path):
    lines = b"all the same\n" * 500_000
    write(tmp_path, {"a.log.gz": COMPRESS["gz"](lines)})

    assert contents(tmp_path) == {"a.log.gz": lines}


# -- streams --------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=9)), st.lists(st.tuples(st.booleans(), st.integers(1, 12), st.integers(0, 3))))
def test_a_stream_gives_each_byte_once_however_it_is_looked_at(blocks, steps):
    whole = b"".join(blocks)
    stream, place = Stream(blocks), 0
    for look, size, back in steps:
        if look:
            assert stream.peek(size) == whole[place : place + size]
            continue
        taken = stream.read(size)
        assert taken == whole[place : place + len(taken)] and (taken or place == len(whole))
        back = min(back, len(taken))
        stream.give_back(back)
        place += len(taken) - back
    assert _all(stream) == whole[place:]


def test_a_disk_that_fails_ends_a_stream_with_the_reason():
    def blocks():
        yield b"good"
        raise OSError(5, "Input/output error")

    stream = Stream(blocks())
    assert (_all(stream), stream.trouble) == (b"good", "it cannot be read any further (Input/output error)")
