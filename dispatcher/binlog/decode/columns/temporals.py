"""Kernels that decode dates and times, to days or microseconds, or to the text that the server prints.

The server may store invalid dates ('0000-00-00', 2024-00-00, 2023-02-29, any date in the year 0), which no target can
store as dates. `column_types.InvalidDates` says whether they become NULL or text. As text they keep their value, but
then the whole column is a string.

Sources: MySQL source, mysys/my_time.cc (my_datetime_packed_from_binary, my_timestamp_from_binary,
my_time_packed_from_binary), sql/field.cc; checked against servers by the tests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.decode.formats.number_format import put_digits
from dispatcher.binlog.kernel.bytes import I32, I64, U8, Int, big, little
from dispatcher.binlog.kernel.jit import njit, part

Bool = NDArray[np.bool_]

# The storage formats.
DATE = 0
DATETIME2 = 1
TIMESTAMP2 = 2
TIME2 = 3
DATETIME_OLD = 4
TIMESTAMP_OLD = 5
TIME_OLD = 6

MICROS = 1_000_000
DAY_MICROS = 86_400 * MICROS

# The status of one value.
GOOD = 0
NO_DATE = 1  # an invalid date
BAD = 2  # no server stores such bytes
NO_DAY = -1_000_000


@njit
def days_from_civil(year: Int, month: Int, day: Int) -> Int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; NO_DAY if the date does not exist in years 1 to 9999.

    Source of the formula: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    """
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return NO_DAY
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    longest = 30 + ((month + (month >> 3)) & 1)
    if month == 2:
        longest = 29 if leap else 28
    if day > longest:
        return NO_DAY
    y = year - 1 if month <= 2 else year
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@part
def fraction(buf: U8, p: Int, digits: Int) -> Int:
    """Microseconds of a big-endian fraction with `digits` decimal digits."""
    if digits == 0:
        return np.int64(0)
    if digits <= 2:
        return np.int64(buf[np.uint64(p)]) * 10_000
    if digits <= 4:
        return big(buf, p, 2) * 100
    return big(buf, p, 3)


@njit
def timestamp_of(buf: U8, p: Int, form: Int, digits: Int) -> tuple[Int, Int]:
    seconds = little(buf, p, 4) if form == TIMESTAMP_OLD else big(buf, p, 4)
    micros = fraction(buf, p + 4, digits)
    value = seconds * MICROS + micros
    return value, BAD if micros >= MICROS else GOOD if value else NO_DATE


@part
def datetime_status(days: Int, hour: Int, minute: Int, second: Int, micros: Int) -> Int:
    if hour > 23 or minute > 59 or second > 59 or micros >= MICROS:
        return BAD
    return GOOD if days != NO_DAY else NO_DATE


@njit
def dates(buf: U8, at: I32, out: I64, valid: Bool) -> None:
    """Decode DATE to days since 1970, with the arguments and results of `temporals`."""
    known, days = np.int64(-1), np.int64(0)  # the previous row's date: many rows have the same date
    for i in range(len(at)):
        p = np.int64(at[i])
        out[i] = 0
        valid[i] = False
        if p < 0:
            continue
        packed = little(buf, p, 3)
        if packed != known:
            known, days = packed, days_from_civil(packed >> 9, packed >> 5 & 15, packed & 31)
        if days != NO_DAY:
            out[i] = days
            valid[i] = True


@njit
def datetimes(buf: U8, at: I32, digits: Int, out: I64, valid: Bool) -> Int:
    """Decode DATETIME2, with the arguments and results of `temporals`. The value is big-endian: 1 bit sign, 17 bits
    year * 13 + month, then day, hour, minute, second and fraction."""
    known, days = np.int64(-1), np.int64(0)  # the previous row's date: many rows have the same date
    for i in range(len(at)):
        p = np.int64(at[i])
        out[i] = 0
        valid[i] = False
        if p < 0:
            continue
        packed = (big(buf, p, 4) << 8 | np.int64(buf[np.uint64(p + 4)])) - 0x8000000000
        date = packed >> 17
        hour, minute, second = packed >> 12 & 31, packed >> 6 & 63, packed & 63
        micros = fraction(buf, p + 5, digits)
        if packed < 0:
            return np.int64(i)
        if date != known:
            months = date >> 5
            known, days = date, days_from_civil(months // 13, months % 13, date & 31)
        status = datetime_status(days, hour, minute, second, micros)
        if status == BAD:
            return np.int64(i)
        if status == GOOD:
            out[i] = days * DAY_MICROS + (hour * 3600 + minute * 60 + second) * MICROS + micros
            valid[i] = True
    return np.int64(-1)


@njit
def old_datetime(buf: U8, p: Int) -> tuple[Int, Int]:
    """Decode a DATETIME of the old format, the decimal number YYYYMMDDhhmmss."""
    packed = little(buf, p, 8)
    date, clock = packed // 1_000_000, packed % 1_000_000
    hour, minute, second = clock // 10_000, clock // 100 % 100, clock % 100
    if packed < 0:
        return np.int64(0), BAD
    days = days_from_civil(date // 10_000, date // 100 % 100, date % 100)
    value = days * DAY_MICROS + (hour * 3600 + minute * 60 + second) * MICROS
    return value, datetime_status(days, hour, minute, second, np.int64(0))


@njit
def time_of(buf: U8, p: Int, form: Int, digits: Int) -> tuple[Int, Int]:
    """Decode TIME2, or the old format, which is the decimal number hhmmss.

    TIME2 contains hours, minutes, seconds and fraction in one big-endian number with an offset. The parts of a negative
    value are the parts of the number's magnitude.
    """
    if form == TIME_OLD:
        packed = little(buf, p, 3) << 40 >> 40
        magnitude = abs(packed)
        hour, minute, second = magnitude // 10_000, magnitude // 100 % 100, magnitude % 100
        micros = np.int64(0)
    else:
        bits = np.int64(8 * ((digits + 1) // 2))
        packed = big(buf, p, 3 + (bits >> 3)) - (np.int64(0x800000) << bits)
        magnitude = abs(packed)
        whole = magnitude >> bits
        micros = magnitude - (whole << bits)
        micros *= 10_000 if bits == 8 else 100 if bits == 16 else 1
        hour, minute, second = whole >> 12 & 1023, whole >> 6 & 63, whole & 63
    value = (hour * 3600 + minute * 60 + second) * MICROS + micros
    good = minute <= 59 and second <= 59 and micros < MICROS
    return -value if packed < 0 else value, GOOD if good else BAD


@njit
def instants_and_times(buf: U8, at: I32, form: Int, digits: Int, out: I64, valid: Bool) -> Int:
    """Decode all forms except DATE and DATETIME2, with the arguments and results of `temporals`."""
    for i in range(len(at)):
        p = np.int64(at[i])
        out[i] = 0
        valid[i] = False
        if p < 0:
            continue
        if form == TIMESTAMP2 or form == TIMESTAMP_OLD:  # noqa: SIM109 - a kernel compares faster so
            value, status = timestamp_of(buf, p, form, digits)
        elif form == DATETIME_OLD:
            value, status = old_datetime(buf, p)
        else:
            value, status = time_of(buf, p, form, digits)
        if status == BAD:
            return np.int64(i)
        if status == GOOD:
            out[i] = value
            valid[i] = True
    return np.int64(-1)


def temporals(buf: U8, at: I32, form: int, digits: int, out: I64, valid: Bool) -> int:
    """Decode DATE to days since 1970, DATETIME and TIMESTAMP to µs since 1970, TIME to µs. `valid` becomes False for
    NULL and for an invalid date. Returns the row of a value that no server stores, or -1."""
    if form == DATE:
        dates(buf, at, out, valid)
        return -1
    if form == DATETIME2:
        return int(datetimes(buf, at, digits, out, valid))
    return int(instants_and_times(buf, at, form, digits, out, valid))


@njit
def civil_of(days: Int) -> tuple[Int, Int, Int]:
    """(year, month, day) of a day number: the inverse of `days_from_civil`, from the same source."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    part = (5 * of_year + 2) // 153
    day = of_year - (153 * part + 2) // 5 + 1
    month = part + 3 if part < 10 else part - 9
    return year + era * 400 + (1 if month <= 2 else 0), month, day


@njit
def datetime_parts(buf: U8, p: Int, form: Int, digits: Int) -> tuple[Int, Int, Int, Int, Int]:
    """Return (year, month, day, second of the day, microseconds) as stored, also for an invalid date."""
    if form == DATE:
        packed = little(buf, p, 3)
        return packed >> 9, packed >> 5 & 15, packed & 31, np.int64(0), np.int64(0)
    if form == TIMESTAMP2 or form == TIMESTAMP_OLD:  # noqa: SIM109 - a kernel compares faster so
        seconds = little(buf, p, 4) if form == TIMESTAMP_OLD else big(buf, p, 4)
        micros = fraction(buf, p + 4, digits)
        if seconds == 0 and micros == 0:
            return np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        year, month, day = civil_of(seconds // 86_400)
        return year, month, day, seconds % 86_400, micros
    if form == DATETIME2:
        packed = big(buf, p, 5) - 0x8000000000
        months = packed >> 22
        second = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
        return months // 13, months % 13, packed >> 17 & 31, second, fraction(buf, p + 5, digits)
    packed = little(buf, p, 8)
    date, clock = packed // 1_000_000, packed % 1_000_000
    second = clock // 10_000 * 3600 + clock // 100 % 100 * 60 + clock % 100
    return date // 10_000, date // 100 % 100, date % 100, second, np.int64(0)


@part
def put_temporal(buf: U8, p: Int, form: Int, digits: Int, out: U8, o: Int) -> Int:
    """Write a DATE, DATETIME or TIMESTAMP (in UTC) as the server prints it. Returns -1 for a value that no server
    stores. `out` needs room for 26 bytes."""
    year, month, day, second, micros = datetime_parts(buf, p, form, digits)
    if year > 9999 or year < 0 or month > 12 or second > 86_399 or micros >= MICROS:
        return np.int64(-1)
    o = put_digits(np.uint64(year), 4, out, o)
    out[o] = 45
    o = put_digits(np.uint64(month), 2, out, o + 1)
    out[o] = 45
    o = put_digits(np.uint64(day), 2, out, o + 1)
    if form != DATE:
        out[o] = 32
        o = put_digits(np.uint64(second // 3600), 2, out, o + 1)
        out[o] = 58
        o = put_digits(np.uint64(second // 60 % 60), 2, out, o + 1)
        out[o] = 58
        o = put_digits(np.uint64(second % 60), 2, out, o + 1)
        if digits:
            out[o] = 46
            o = put_digits(np.uint64(micros // 10 ** (6 - digits)), digits, out, o + 1)
    return np.int64(o)


@njit
def temporal_texts(buf: U8, at: I32, form: Int, digits: Int, offsets: I64, out: U8) -> Int:
    """Write a column of dates and times, each as `put_temporal` does. Returns the row of a value that no server stores,
    or -1. `out`: room for 26 bytes a row."""
    o = np.int64(0)
    for i in range(len(at)):
        p = np.int64(at[i])
        if p >= 0:
            o = put_temporal(buf, p, form, digits, out, o)
            if o < 0:
                return np.int64(i)
        offsets[i + 1] = o
    return np.int64(-1)
