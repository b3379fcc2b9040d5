"""Stamps: every spelling is read, to the precision that it has, and a year that was not written is found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import events_of

from logforensics.clock import SECOND, Stamp, parse_stamp

HALF = SECOND // 2


def us(text: str) -> int:
    """Return a moment, written in ISO 8601 with its zone, in microseconds since the epoch."""
    return round((datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def near(text: str) -> int:
    return us(text + "T12:00:00+00:00")


WITH_YEAR = [
    # a blank or a T, a comma or a point, slashes, torchrun's underscore
    ("2026-11-30 19:11:05,469", "2026-11-30T19:11:05.469+00:00", 501),
    ("2026-11-30 19:11:05.469", "2026-11-30T19:11:05.469+00:00", 501),
    ("2026-11-30T19:11:05.469123", "2026-11-30T19:11:05.469123+00:00", 1),
    ("2026-11-30T19:11:05.669794202", "2026-11-30T19:11:05.669794+00:00", 1),
    ("2026-11-30T19:11:05.6", "2026-11-30T19:11:05.6+00:00", 50_001),
    ("2026/11/30 19:11:05", "2026-11-30T19:11:05.5+00:00", HALF),
    ("2026-11-30_19:59:43", "2026-11-30T19:59:43.5+00:00", HALF),
    # zones
    ("2026-11-30T19:11:05Z", "2026-11-30T19:11:05.5+00:00", HALF),
    ("2026-11-30T19:11:05.1234567Z", "2026-11-30T19:11:05.123456+00:00", 1),
    ("2026-11-30T19:11:05.469+01:00", "2026-11-30T19:11:05.469+01:00", 501),
    ("2026-11-30T19:11:05.469-0830", "2026-11-30T19:11:05.469-08:30", 501),
    ("2026-11-30T00:11:05,469000+01:00", "2026-11-30T00:11:05.469+01:00", 1),
    ("2026-11-30 19:11:05.469 +02:00", "2026-11-30T19:11:05.469+02:00", 501),
    # Slurm
    ("2021-09-26T15:36:54", "2021-09-26T15:36:54.5+00:00", HALF),
    # dmesg -T, and mpirun's
    ("Sun Dec  1 14:54:40 2024", "2024-12-01T14:54:40.5+00:00", HALF),
    ("Mon Nov 30 07:00:00 2026", "2026-11-30T07:00:00.5+00:00", HALF),
    # month first, with two digits of the year or four
    ("03/17/23 20:01:12", "2023-03-17T20:01:12.5+00:00", HALF),
    ("11/30/2026 07:00:00", "2026-11-30T07:00:00.5+00:00", HALF),
    # a leap second is there once in a while
    ("2016-12-31 23:59:60", "2017-01-01T00:00:00.5+00:00", HALF),
]

WITHOUT_YEAR = [
    # glog; torch's C++ lines leave the zero of the month out, and their nine digits are another clock's
    ("1130 07:00:00.123456", "2026-11-30T07:00:00.123456+00:00", 1),
    ("1130 07:00:00.123456789", "2026-11-30T07:00:00.5+00:00", HALF),
    ("130 07:00:00.123456789", "2027-01-30T07:00:00.5+00:00", HALF),
    ("0905 23:59:59.000001", "2026-09-05T23:59:59.000001+00:00", 1),
    # syslog, journald, kernel
    ("Nov 30 07:00:00", "2026-11-30T07:00:00.5+00:00", HALF),
    ("Dec  1 07:00:00", "2026-12-01T07:00:00.5+00:00", HALF),
    # %m-%d %H:%M:%S
    ("11-30 07:00:00.123", "2026-11-30T07:00:00.123+00:00", 501),
    ("Nov 30 07:00:00.123456", "2026-11-30T07:00:00.123456+00:00", 1),
]


@pytest.mark.parametrize(("raw", "moment", "error"), WITH_YEAR, ids=[raw for raw, _, _ in WITH_YEAR])
def test_a_stamp_with_its_year_needs_no_neighbour(raw: str, moment: str, error: int):
    stamp = parse_stamp(raw)

    assert stamp is not None
    assert stamp.resolve(0) == stamp.resolve(near("2030-01-01")) == us(moment)
    assert stamp.error_us == error


@pytest.mark.parametrize(("raw", "moment", "error"), WITHOUT_YEAR, ids=[raw for raw, _, _ in WITHOUT_YEAR])
def test_a_stamp_without_a_year_gets_the_year_that_brings_it_nearest(raw: str, moment: str, error: int):
    stamp = parse_stamp(raw)

    assert stamp is not None
    assert stamp.year is None
    assert stamp.resolve(near("2026-12-15")) == us(moment)
    assert stamp.error_us == error


@pytest.mark.parametrize(
    "raw",
    [
        "", "soon", "12345.678901", "1669791600", "1669791600.123", "19:11", "24:00:00", "2026-11-30", "110:42:10",
        "2026-13-30 19:11:05", "2026-11-32 19:11:05", "2026-11-30 24:11:05", "2026-11-30 19:60:05", "2026-11-30 19:11:61",
        "2026-00-10 19:11:05", "Abc 30 07:00:00", "Sun Abc  1 14:54:40 2024", "1330 07:00:00.123456", "1100 07:00:00.123456",
        "13/30/2026 07:00:00", "2026-11-30 19:11:05 and more", "1130 07:00:00",
    ],
)  # fmt: skip
def test_what_is_no_time_of_a_day_is_no_stamp(raw: str):
    assert parse_stamp(raw) is None


@pytest.mark.parametrize("raw", ["2026-02-29 10:00:00", "2026-04-31 10:00:00"])
def test_a_day_that_its_year_does_not_have_is_no_moment(raw: str):
    stamp = parse_stamp(raw)

    assert stamp is not None
    assert stamp.resolve(0) is None


def test_the_leap_day_finds_the_leap_year_beside_it():
    stamp = parse_stamp("Feb 29 10:00:00")

    assert stamp is not None
    assert stamp.resolve(near("2026-06-01")) is None
    assert stamp.resolve(near("2025-02-01")) == us("2024-02-29T10:00:00.5+00:00")


@pytest.mark.parametrize(("raw", "reference", "year"), [
    ("Dec 31 23:59:59", "2027-01-01", 2026),
    ("Jan  1 00:00:01", "2026-12-31", 2027),
    ("1231 23:59:59.000000", "2027-01-02", 2026),
    ("101 00:00:01.000000000", "2026-12-30", 2027),
    ("Jul  1 00:00:00", "2026-12-30", 2026),
])  # fmt: skip
def test_at_the_turn_of_the_year_both_years_are_right(raw: str, reference: str, year: int):
    stamp = parse_stamp(raw)
    time = stamp.resolve(near(reference)) if stamp else None

    assert time is not None
    assert datetime.fromtimestamp(time / SECOND, UTC).year == year


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_a_moment_survives_being_written_and_read(moment: datetime, zone: int):
    sign = "-" if zone < 0 else "+"
    raw = f"{moment:%Y-%m-%dT%H:%M:%S.%f}{sign}{abs(zone) // 60:02}:{abs(zone) % 60:02}"
    stamp = parse_stamp(raw)

    assert stamp is not None
    assert stamp.resolve(0) == us(raw)


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.timedeltas(timedelta(days=-150), timedelta(days=150))
)
def test_a_year_is_found_for_any_stamp_within_five_months(moment: datetime, away: timedelta):
    stamp = Stamp(None, moment.month, moment.day, moment.hour * 3600, 0, HALF)
    reference = us(moment.isoformat() + "+00:00") + int(away / timedelta(microseconds=1))
    time = stamp.resolve(reference)

    assert time is not None
    assert datetime.fromtimestamp(time // SECOND, UTC).year == moment.year


@pytest.mark.parametrize(("raw", "reference", "moment"), [
    ("19:11:05", "2026-11-30T20:00:00+00:00", "2026-11-30T19:11:05.5+00:00"),
    ("23:59:59,250", "2026-12-01T00:10:00+00:00", "2026-11-30T23:59:59.25+00:00"),
    ("00:00:01.000", "2026-12-31T23:59:59+00:00", "2027-01-01T00:00:01+00:00"),
])  # fmt: skip
def test_a_time_of_day_without_a_date_is_on_the_day_that_brings_it_nearest(raw: str, reference: str, moment: str):
    stamp = parse_stamp(raw)

    assert stamp is not None
    assert not stamp.dated
    assert stamp.resolve(us(reference)) == us(moment)


# --- the year, in a run ---------------------------------------------------------------------------------------


def times(events) -> list[datetime | None]:
    return [datetime.fromtimestamp(e.time_us / SECOND, UTC) if e.time_us is not None else None for e in events]


ROLL_OVER = """\
Dec 31 23:59:58 node1 kernel: [1.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=8503, name=python, GPU has fallen off the bus.
Jan  1 00:00:02 node1 kernel: [5.000001] NVRM: Xid (PCI:0000:3b:00): 48, pid=8503, name=python, DBE (double bit error)
"""


@pytest.mark.parametrize("changed", ["2027-01-01T00:05:00+00:00", "2027-03-01T00:00:00+00:00"])
def test_the_year_comes_from_when_the_file_was_last_changed(tmp_path, changed: str):
    events = events_of(tmp_path, {"dmesg.log": ROLL_OVER}, mtime=us(changed) / SECOND)

    assert [time.isoformat() for time in times(events) if time] == [
        "2026-12-31T23:59:58.500000+00:00",
        "2027-01-01T00:00:02.500000+00:00",
    ]


def test_a_neighbour_that_wrote_its_year_knows_better_than_the_file(tmp_path):
    """Copying logs changes the files' times; what another log of the run says holds."""
    files = {
        "dmesg.log": ROLL_OVER,
        "rank0.log": "2023-01-01 00:00:03,000 ERROR train: RuntimeError: CUDA error: unspecified launch failure\n",
    }
    events = events_of(tmp_path, files, mtime=us("2027-06-01T00:00:00+00:00") / SECOND)

    assert [time.isoformat() for time in times(events) if time] == [
        "2022-12-31T23:59:58.500000+00:00",
        "2023-01-01T00:00:02.500000+00:00",
        "2023-01-01T00:00:03+00:00",
    ]


def test_times_of_day_go_on_past_midnight(tmp_path):
    """Each is near the line above it, however long the run: only the first needs a date from elsewhere."""
    clock = ["2026-11-30 21:00:00", "23:00:00", "09:00:00", "19:00:00", "05:00:00"]
    log = "".join(f"{time} RuntimeError: CUDA error: device-side assert triggered\n" for time in clock)

    assert [time.isoformat() for time in times(events_of(tmp_path, log)) if time] == [
        "2026-11-30T21:00:00.500000+00:00",
        "2026-11-30T23:00:00.500000+00:00",
        "2026-12-01T09:00:00.500000+00:00",
        "2026-12-01T19:00:00.500000+00:00",
        "2026-12-02T05:00:00.500000+00:00",
    ]


def test_seconds_since_boot_are_no_time(tmp_path):
    line = "[12345.678901] NVRM: Xid (PCI:0000:3b:00): 79, pid=8503, name=python, GPU has fallen off the bus.\n"
    (event,) = events_of(tmp_path, {"dmesg.log": line})

    assert (event.time_us, event.time_basis) == (None, "none")


def test_a_log_without_any_stamp_has_no_times(tmp_path):
    events = events_of(tmp_path, "RuntimeError: CUDA error: device-side assert triggered\n")

    assert [(event.time_us, event.time_basis) for event in events] == [(None, "none")]


def test_a_missing_year_is_not_one_that_lies_behind_the_files_last_change():
    changed = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp()) * SECOND
    stamp = parse_stamp("0113 11:43:02.123456")

    assert datetime.fromtimestamp(stamp.resolve(changed) / SECOND, UTC).year == 2027
    assert datetime.fromtimestamp(stamp.resolve(changed, changed) / SECOND, UTC).year == 2026
