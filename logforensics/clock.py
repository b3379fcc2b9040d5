"""Reads time stamps in all the spellings that logs have, and finds the year where none was written.

Times are microseconds since the epoch. A stamp without a zone is taken as the run's own clock (as if UTC):
what matters is the order of events, and a run's processes nearly always share a zone.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import regex

SECOND = 1_000_000
_DAY = 86_400 * SECOND
_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}

_ISO = regex.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[\sT_](\d\d):(\d\d):(\d\d)(?:[,.](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?$")
_GLOG = regex.compile(r"(\d{1,2})(\d\d)\s(\d\d):(\d\d):(\d\d)\.(\d{6,9})$")
_SYSLOG = regex.compile(r"([A-Z][a-z]{2})\s+(\d{1,2})\s(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?$")
_CTIME = regex.compile(r"[A-Z][a-z]{2}\s([A-Z][a-z]{2})\s+(\d{1,2})\s(\d\d):(\d\d):(\d\d)\s(\d{4})$")
_MONTH_DAY = regex.compile(r"(\d\d)-(\d\d)\s(\d\d):(\d\d):(\d\d)(?:[,.](\d{1,9}))?$")
_CLOCK = regex.compile(r"(\d\d):(\d\d):(\d\d)(?:[,.](\d{1,9}))?$")
_AMERICAN = regex.compile(r"(\d\d)/(\d\d)/(\d{2}|\d{4})\s(\d\d):(\d\d):(\d\d)$")


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stamp as written. ``error_us`` is the half-width it allows.

    ``year`` is None where the log had none; a stamp without a date has month and day 0.
    """

    year: int | None
    month: int
    day: int
    second_of_day: int
    microsecond: int
    error_us: int
    zone_minutes: int | None = None

    def at(self, year: int) -> int | None:
        """Return microseconds since the epoch in ``year``; None for a day or a zone that cannot be."""
        try:
            zone = timezone(timedelta(minutes=self.zone_minutes)) if self.zone_minutes is not None else UTC
            day = datetime(year, self.month, self.day, tzinfo=zone)
        except ValueError:
            return None
        return int(day.timestamp()) * SECOND + self.second_of_day * SECOND + self.microsecond

    def resolve(self, reference_us: int, latest_us: int | None = None) -> int | None:
        """Return the time; a missing year is the one that brings the stamp nearest to ``reference_us``.

        No year is taken that would bring it behind ``latest_us`` (a file holds nothing from after its last change),
        if there is another.
        """
        if self.year is not None:
            return self.at(self.year)
        if not self.dated:
            return self._on_the_nearest_day(reference_us)
        around = datetime.fromtimestamp(reference_us / SECOND, UTC).year
        found = [time for year in (around - 1, around, around + 1) if (time := self.at(year)) is not None]
        past = [time for time in found if latest_us is None or time <= latest_us]
        return min(past or found, key=lambda time: abs(time - reference_us)) if found else None

    @property
    def dated(self) -> bool:
        """Whether the log wrote a date, and not the time of day alone."""
        return self.month > 0

    def _on_the_nearest_day(self, reference_us: int) -> int:
        time = self.second_of_day * SECOND + self.microsecond - (self.zone_minutes or 0) * 60 * SECOND
        return time + round((reference_us - time) / _DAY) * _DAY


def parse_stamp(raw: str) -> Stamp | None:
    """Read one stamp; None when it is none (a log may hold "110:42:10" where a time should be).

    The nine-digit fraction of torch's C++ lines is the monotonic clock's (c10/util/Logging.cpp), so such a
    stamp is only good to its second.
    """
    raw = raw.strip()
    if m := _ISO.match(raw):
        year, month, day, hour, minute, second = (int(g) for g in m.groups()[:6])
        fraction, zone = m.group(7), m.group(8)
        return _stamp(year, month, day, hour, minute, second, fraction, _zone(zone))
    if m := _GLOG.match(raw):
        month, day, hour, minute, second = (int(g) for g in m.groups()[:5])
        fraction = m.group(6)
        return _stamp(None, month, day, hour, minute, second, None if len(fraction) == 9 else fraction)
    if m := _SYSLOG.match(raw):
        if m.group(1) not in _MONTHS:
            return None
        day, hour, minute, second = (int(g) for g in m.groups()[1:5])
        return _stamp(None, _MONTHS[m.group(1)], day, hour, minute, second, m.group(6))
    if m := _CTIME.match(raw):
        if m.group(1) not in _MONTHS:
            return None
        day, hour, minute, second, year = (int(g) for g in m.groups()[1:6])
        return _stamp(year, _MONTHS[m.group(1)], day, hour, minute, second, None)
    if m := _MONTH_DAY.match(raw):
        month, day, hour, minute, second = (int(g) for g in m.groups()[:5])
        return _stamp(None, month, day, hour, minute, second, m.group(6))
    if m := _CLOCK.match(raw):
        hour, minute, second = (int(g) for g in m.groups()[:3])
        return _stamp(None, 0, 0, hour, minute, second, m.group(4))
    if m := _AMERICAN.match(raw):
        month, day, year, hour, minute, second = (int(g) for g in m.groups())
        return _stamp(year + 2000 if year < 100 else year, month, day, hour, minute, second, None)
    return None


def _stamp(
    year: int | None,
    month: int,
    day: int,
    hour: int,
    minute: int,
    second: int,
    fraction: str | None,
    zone_minutes: int | None = None,
) -> Stamp | None:
    dated = 1 <= month <= 12 and 1 <= day <= 31
    if not ((dated or month == day == 0) and hour < 24 and minute < 60 and second <= 60):
        return None
    second_of_day = hour * 3600 + minute * 60 + second
    if fraction is None:  # whole seconds: the event lies somewhere inside
        return Stamp(year, month, day, second_of_day, SECOND // 2, SECOND // 2, zone_minutes)
    microsecond = int(fraction[:6].ljust(6, "0"))
    return Stamp(year, month, day, second_of_day, microsecond, 10 ** max(0, 6 - len(fraction)) // 2 + 1, zone_minutes)


def _zone(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "Z":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return -minutes if text[0] == "-" else minutes
