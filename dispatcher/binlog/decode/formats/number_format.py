"""Kernels that format values as MySQL prints them: integers, DOUBLE, DECIMAL, dates and times, base64.

A double is printed as the decimal with the fewest digits that parses to the same double; if there are several such
decimals, the nearest is printed. The algorithm is Schubfach (R. Giulietti, "The Schubfach way to render doubles"):
three products with a 128-bit power of ten give the interval of decimals that round to the double, and at most two
candidates are compared. Schubfach needs neither a loop nor big integers. The powers are computed once, when the module
is loaded. The notation is the one of `my_gcvt` (strings/dtoa.cc): plain if the point lies within 15 places (or among
the digits), else with an exponent.

Every kernel writes its text at `out[o]` and returns the offset after the text. The caller makes `out` large enough.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.kernel.bytes import U8, Int, little
from dispatcher.binlog.kernel.jit import njit, part

_U = np.uint64
_ONE, _TWO, _FOUR, _TEN = _U(1), _U(2), _U(4), _U(10)
_HUNDRED = _U(100)
_32 = _U(32)
_MASK32 = _U(0xFFFFFFFF)
_FRACTION = _U((1 << 52) - 1)
_HIDDEN = _U(1 << 52)

# 10^k for k in this range, as normalised 128-bit numbers, rounded up.
_FIRST_POWER, _LAST_POWER = -292, 324

# MAX_DECPT_FOR_F_FORMAT
_PLAIN_PLACES = 15

# The types that `temporal` reads.
DATE = 0
TIME = 1
DATETIME = 2

_LEAST = np.int64(-(1 << 63))

_PAIRS = np.frombuffer("".join(f"{n:02}" for n in range(100)).encode(), dtype=np.uint8)
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8
)


def _powers() -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    table = np.empty((_LAST_POWER - _FIRST_POWER + 1, 2), dtype=np.uint64)
    for k in range(_FIRST_POWER, _LAST_POWER + 1):
        if k >= 0:
            over = (10**k).bit_length() - 128
            value = 10**k << -over if over <= 0 else -(-(10**k) >> over)
        else:
            whole = 10**-k
            value = -(-(1 << (127 + whole.bit_length())) // whole)
        table[k - _FIRST_POWER] = value >> 64, value & 0xFFFFFFFFFFFFFFFF
    return table


_POWERS = _powers()


@part
def put_digits(value: Int, count: Int, out: U8, o: Int) -> Int:
    """Write the last `count` decimal digits of a uint64."""
    k = o + count
    while k - o >= 2:
        higher = value // _HUNDRED
        pair = (value - higher * _HUNDRED) << _ONE
        k -= 2
        out[k], out[k + 1] = _PAIRS[pair], _PAIRS[pair + _ONE]
        value = higher
    if k > o:
        out[o] = np.uint8(_U(48) + value % _TEN)
    return np.int64(o + count)


@njit
def unsigned(value: Int, out: U8, o: Int) -> Int:
    """Write a uint64."""
    count = np.int64(1)
    power = _TEN
    while value >= power and count < 20:
        count += 1
        power *= _TEN  # overflows only if `count` becomes 20; then the loop ends without another comparison
    return put_digits(value, count, out, o)


@njit
def signed(value: Int, out: U8, o: Int) -> Int:
    """Write an int64."""
    if value < 0:
        out[o] = 45
        return unsigned(_U(-(value + 1)) + _ONE, out, o + 1)
    return unsigned(_U(value), out, o)


@njit
def _product(a: Int, b: Int) -> tuple[Int, Int]:
    """Return the (high, low) 64 bits of a * b. No step overflows."""
    a0, a1 = a & _MASK32, a >> _32
    b0, b1 = b & _MASK32, b >> _32
    low = a0 * b0
    middle = a1 * b0 + (low >> _32)
    other = a0 * b1 + (middle & _MASK32)
    high = a1 * b1 + (middle >> _32) + (other >> _32)
    return high, (other << _32) | (low & _MASK32)


@njit
def _scaled(high: Int, low: Int, c: Int) -> Int:
    """Return c * (high, low) / 2^128, with the last bit set if the division is not exact ("round to odd")."""
    below, _ = _product(low, c)
    above, between = _product(high, c)
    room = ~between
    if below > room:
        above += _ONE
        between = below - room - _ONE
    else:
        between += below
    return above | (_ONE if between > _ONE else _U(0))


@njit
def shortest(bits: Int) -> tuple[Int, Int]:
    """Return (digits, exponent) of the shortest decimal digits * 10^exponent that rounds to the positive double."""
    fraction = bits & _FRACTION
    biased = np.int64(bits >> _U(52)) & 0x7FF
    c = fraction | _HIDDEN if biased else fraction
    q = biased - 1075 if biased else np.int64(-1074)
    if -53 < q <= 0 and (c & ((_ONE << _U(-q)) - _ONE)) == _U(0):
        return c >> _U(-q), np.int64(0)
    # `closer`: True if the next smaller double is only half as far away as the next larger double.
    closer = fraction == _U(0) and biased > 1
    odd = c & _ONE
    k = (q * 1262611 - (524031 if closer else 0)) >> 22
    h = _U(q + ((-k * 1741647) >> 19) + 1)
    high, low = _POWERS[-k - _FIRST_POWER, 0], _POWERS[-k - _FIRST_POWER, 1]
    middle = c << _TWO
    lower = _scaled(high, low, (middle - (_ONE if closer else _TWO)) << h) + odd
    upper = _scaled(high, low, (middle + _TWO) << h) - odd
    value = _scaled(high, low, middle << h)
    s = value >> _TWO
    if s >= _TEN:
        tens = s // _TEN
        at = tens * _U(40)
        under, over = lower <= at, at + _U(40) <= upper
        if under != over:
            return tens + (_ONE if over else _U(0)), k + 1
    at = s << _TWO
    under, over = lower <= at, at + _FOUR <= upper
    if under != over:
        return s + (_ONE if over else _U(0)), k
    half = at + _TWO
    up = value > half or (value == half and (s & _ONE) == _ONE)
    return s + (_ONE if up else _U(0)), k


@njit
def double(bits: Int, out: U8, o: Int) -> Int:
    """Write the finite double with these (uint64) bits as the server prints it in JSON: `0.1`, `1.0`, `1e20`, `-0.0`.
    Needs room for 34 bytes."""
    if bits >> _U(63):
        out[o] = 45
        o += 1
        bits &= ~(_ONE << _U(63))
    if bits == _U(0):
        out[o], out[o + 1], out[o + 2] = 48, 46, 48
        return o + 3
    digits, exponent = shortest(bits)
    while digits % _TEN == _U(0):
        digits //= _TEN
        exponent += 1
    # Write the digits after room for the longest prefix ("0." and 14 zeros), then move the digits to their final
    # offset.
    start = o + 16
    count = unsigned(digits, out, start) - start
    point = count + exponent
    if point > -_PLAIN_PLACES and (point <= _PLAIN_PLACES or count > point):
        return _plain(out, o, start, count, point)
    return _exponential(out, o, start, count, point - 1)


@njit
def _plain(out: U8, o: Int, start: Int, count: Int, point: Int) -> Int:
    if point <= 0:
        out[o], out[o + 1] = 48, 46
        o += 2
        for _ in range(-point):
            out[o] = 48
            o += 1
    for k in range(count):
        if k == point and k > 0:
            out[o] = 46
            o += 1
        out[o] = out[start + k]
        o += 1
    for _ in range(count, point):
        out[o] = 48
        o += 1
    if count <= point:
        out[o], out[o + 1] = 46, 48
        o += 2
    return o


@njit
def mantissa(out: U8, o: Int, start: Int, count: Int) -> Int:
    """Move `count` digits from `start` to `o`, with a point after the first digit, and write an `e` after the
    digits."""
    out[o] = out[start]
    o += 1
    if count > 1:
        out[o] = 46
        o += 1
        for k in range(1, count):
            out[o] = out[start + k]
            o += 1
    out[o] = 101
    return o + 1


@njit
def _exponential(out: U8, o: Int, start: Int, count: Int, exponent: Int) -> Int:
    return signed(exponent, out, mantissa(out, o, start, count))


@njit
def decimal(data: U8, p: Int, size: Int, out: U8, o: Int) -> Int:
    """Write a DECIMAL of JSON: precision, scale, then the digits as a column stores them. Returns -1 for invalid bytes.
    Needs room for 84 bytes.

    Source: sql-common/json_dom.cc (Json_decimal::convert_from_binary).
    """
    if size < 3:
        return -1
    precision, scale = np.int64(data[p]), np.int64(data[p + 1])
    if precision < 1 or precision > 81 or scale > precision:
        return -1
    return decimal_digits(data, p + 2, p + size, precision, scale, out, o)


@njit
def decimal_digits(  # noqa: C901 - sign, groups, zeros and point are one walk over the digits
    data: U8, p: Int, stop: Int, precision: Int, scale: Int, out: U8, o: Int
) -> Int:
    """Write the DECIMAL stored in data[p:stop]. Returns -1 for invalid bytes.

    Source: strings/decimal.cc (bin2decimal).
    """
    whole = precision - scale
    negative = data[p] < 128
    if negative:
        out[o] = 45
        o += 1
    flip = np.int64(255) if negative else np.int64(0)
    first = np.int64(128)
    begun = False
    done = np.int64(0)
    while done < precision:
        # A group has nine digits, counted from the point. The first and the last group may have fewer digits.
        n: Int = (whole - done) % 9 if done < whole else min(precision - done, 9)
        if n == 0:
            n = np.int64(9)
        width = (n + 1) // 2 if n < 9 else np.int64(4)
        if p + width > stop:
            return -1
        group = np.int64(0)
        for _ in range(width):
            group = group << 8 | (np.int64(data[p]) ^ flip ^ first)
            first = np.int64(0)
            p += 1
        power = np.int64(1)
        for _ in range(n):
            power *= 10
        if group >= power:
            return -1
        if done == whole and not begun:
            out[o] = 48
            o += 1
        if done == whole:
            out[o] = 46
            o += 1
            begun = True
        for _ in range(n):
            power //= 10
            digit = group // power % 10
            begun = begun or digit != 0
            if begun:
                out[o] = np.uint8(48 + digit)
                o += 1
        done += n
    if not begun:
        out[o] = 48
        o += 1
    return o if p == stop else np.int64(-1)


@part
def times_plus(low: Int, high: Int, power: Int, more: Int) -> tuple[Int, Int]:
    """Return (low, high) * power + more, as two uint64. `power` and `more` are below 2^32."""
    bottom = (low & _MASK32) * power + more
    top = (low >> _32) * power + (bottom >> _32)
    return top << _32 | (bottom & _MASK32), high * power + (top >> _32)


@part
def negated(low: Int, high: Int) -> tuple[Int, Int]:
    """Return the negative of a 128-bit two's complement number, as two uint64."""
    low = ~low + _ONE
    return low, ~high + (_ONE if low == _U(0) else _U(0))


@njit
def decimal128(low: Int, high: Int, scale: Int, out: U8, o: Int) -> Int:
    """Write a 128-bit two's complement number, given as two uint64, with `scale` digits after the point: `-12.50`,
    `0.05`. Needs room for 42 bytes."""
    if high >> _U(63):
        low, high = negated(low, high)
        out[o] = 45
        o += 1
    if high == _U(0) and scale <= 18:
        power = _ONE
        for _ in range(scale):
            power *= _TEN
        whole = low // power
        o = unsigned(whole, out, o)
        if scale:
            out[o] = 46
            o = put_digits(low - whole * power, scale, out, o + 1)
        return np.int64(o)
    end = o + 40
    # The number of digits is known only after the last division. So write the digits backwards from the end of the
    # room, then move the digits to `o`.
    at = end
    digits = np.int64(0)
    while digits <= scale or high or low:
        if high:  # divide by ten in several steps, because a dividend has at most 64 bits
            rest = high % _TEN
            high //= _TEN
            upper = rest << _32 | low >> _32
            rest = upper % _TEN
            lower = rest << _32 | low & _MASK32
            low = (upper // _TEN) << _32 | lower // _TEN
            rest = lower % _TEN
        else:
            rest = low % _TEN
            low //= _TEN
        out[at] = np.uint8(_U(48) + rest)
        at -= 1
        digits += 1
        if digits == scale:
            out[at] = 46
            at -= 1
    for k in range(at + 1, end + 1):
        out[o] = out[k]
        o += 1
    return o


@njit
def _two(value: Int, out: U8, o: Int) -> Int:
    out[o], out[o + 1] = 48 + value // 10, 48 + value % 10
    return o + 2


@njit
def temporal(data: U8, p: Int, form: Int, out: U8, o: Int) -> Int:
    """Write a DATE, TIME or DATETIME of JSON: `2024-02-29`, `-838:59:59.000000`, `2024-02-29 10:00:00.000000`. Returns
    -1 for an invalid value. Needs room for 27 bytes.

    The 8 bytes are a signed number: fraction in µs (24 bits), second (6), minute (6), hour (5; of a TIME 10), day (5),
    year * 13 + month. Source: mysys/my_time.cc (TIME_from_longlong_packed, my_TIME_to_str).
    """
    packed = little(data, p, 8)
    if packed < 0:
        if form != TIME or packed == _LEAST:
            return -1
        out[o] = 45
        o += 1
        packed = -packed
    micros, clock = packed & 0xFFFFFF, packed >> 24
    second, minute = clock & 63, clock >> 6 & 63
    hour = clock >> 12 & (1023 if form == TIME else 31)
    if micros > 999_999 or second > 59 or minute > 59:
        return -1
    if form == TIME:
        if clock >> 22 or hour > 838:
            return -1
    else:
        day, month, year = clock >> 17 & 31, (clock >> 22) % 13, (clock >> 22) // 13
        if year > 9999 or hour > 23:
            return -1
        o = _two(year % 100, out, _two(year // 100, out, o))
        out[o] = 45
        o = _two(month, out, o + 1)
        out[o] = 45
        o = _two(day, out, o + 1)
        if form == DATE:
            return o
        out[o] = 32
        o += 1
    if hour > 99:
        out[o] = 48 + hour // 100
        o += 1
    o = _two(hour % 100, out, o)
    out[o] = 58
    o = _two(minute, out, o + 1)
    out[o] = 58
    o = _two(second, out, o + 1)
    out[o] = 46
    o = _two(micros // 10_000, out, o + 1)
    return _two(micros % 100, out, _two(micros // 100 % 100, out, o))


@part
def base64(data: U8, p: Int, size: Int, out: U8, o: Int) -> Int:
    """Write bytes as base64 (RFC 4648), with padding."""
    p, left = np.int64(p), np.int64(size)
    while left > 0:
        bits = np.int64(data[p]) << 16
        if left > 1:
            bits |= np.int64(data[p + 1]) << 8
        if left > 2:
            bits |= np.int64(data[p + 2])
        out[o] = _BASE64[bits >> 18]
        out[o + 1] = _BASE64[bits >> 12 & 63]
        out[o + 2] = _BASE64[bits >> 6 & 63] if left > 1 else 61
        out[o + 3] = _BASE64[bits & 63] if left > 2 else 61
        o += 4
        p += 3
        left -= 3
    return o
