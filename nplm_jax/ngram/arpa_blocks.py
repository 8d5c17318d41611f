"""Vectorized parser for blocks of ARPA lines.

The parser handles the common form, in which single tabs or spaces separate known words and numbers. `arpa` parses all
other blocks line by line and reports errors by line.

Words and digits are compared eight bytes at a time, as little-endian 64-bit integers.

Dims: I n-grams of a block, K words of an n-gram, T words, S fields.
"""

import contextlib
import re
import secrets
from collections.abc import Mapping

import numpy as np

_NUMBER = re.compile(rb'[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|-inf')
_LANE = 8  # bytes per integer
_MASKS = np.array([256**i - 1 for i in range(_LANE + 1)], np.uint64)  # mask i keeps the first i bytes
_DIGITS = np.uint64(0x3030303030303030)  # eight zeros in ASCII
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIX = np.uint64(0x0606060606060606)
# Three rounds combine adjacent digits in pairs.
_JOINS = ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0xFFFFFFFF))
_POWERS = 10 ** np.arange(2 * _LANE + 1, dtype=np.uint64)
_FLOAT_POWERS = _POWERS.astype(np.float64)
_EXACT = 2**53  # integers below this limit, divided by at most 10**16, give the nearest float64
_SEPARATORS = np.isin(np.arange(ord(' ') + 1), [*b'\t\n '])

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


class BlockParser:
    """A parser for n-grams of known words."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        """Builds a hash table from words to ids."""
        self._factor = np.uint64(secrets.randbits(64) | 1)  # random, so that a crafted file cannot force collisions
        data = '\n'.join(ids).encode() + bytes(_LANE)
        stops_V = np.flatnonzero(np.frombuffer(data, np.uint8, len(data) - _LANE) == ord('\n'))
        stops_V = np.append(stops_V, len(data) - _LANE)
        starts_V = np.append(0, stops_V[:-1] + 1)
        hashes_V = self._hash(_lanes(data), starts_V, stops_V - starts_V)
        order_V = np.argsort(hashes_V)
        self._hashes_V = np.append(hashes_V[order_V], np.uint64(2**64 - 1))
        self._ids_V = np.append(np.fromiter(ids.values(), np.int32)[order_V], np.int32(-1))
        bits = len(ids).bit_length() + 1
        self._shift = np.uint64(64 - bits)
        self._firsts = np.searchsorted(hashes_V[order_V], np.arange(2**bits, dtype=np.uint64) << self._shift)
        self._firsts = self._firsts.astype(np.int32)

    def parse(self, data: bytes, order: int) -> Arrays | None:
        """Parses lines with n-grams of one order.

        Returns:
            Three arrays: the word ids, K x I, int32; log10 P of each n-gram; and its log10 back-off weight, which is 0
            if the line has no weight. If any line does not have the common form, the result is None.
        """
        padded = data + bytes(3 * _LANE)
        bytes_L, lanes = np.frombuffer(padded, np.uint8), _lanes(padded)
        stops_S = np.flatnonzero(bytes_L[: len(data)] <= ord(' '))
        if not data.endswith(b'\n') or not _SEPARATORS[bytes_L[stops_S]].all():
            return None
        starts_S = np.append(0, stops_S[:-1] + 1)
        lengths_S = stops_S - starts_S
        ends_I = np.flatnonzero(bytes_L[stops_S] == ord('\n'))
        fields_I = np.diff(ends_I, prepend=-1)
        has_weight_I = fields_I == order + 2
        if not lengths_S.all() or not (has_weight_I | (fields_I == order + 1)).all():
            return None
        first_I = ends_I - fields_I + 1
        words_T = (first_I + np.arange(1, order + 1)[:, None]).reshape(-1)
        ids_T = self._find(self._hash(lanes, starts_S[words_T], lengths_S[words_T]))
        log_p_I = _floats(bytes_L, lanes, starts_S[first_I], lengths_S[first_I])
        weights_I = ends_I[has_weight_I]
        log_b = _floats(bytes_L, lanes, starts_S[weights_I], lengths_S[weights_I])
        if log_p_I is None or log_b is None or (ids_T < 0).any() or not (log_p_I <= 0).all():
            return None
        log_b_I = np.zeros(len(ends_I))
        log_b_I[has_weight_I] = log_b
        return ids_T.reshape(order, -1), log_p_I, log_b_I

    def _hash(self, lanes: np.ndarray, starts_T: np.ndarray, lengths_T: np.ndarray) -> np.ndarray:
        """Returns a 64-bit hash of each word; different words of at most eight bytes have different hashes."""
        hashes_T = self._mix(lanes[starts_T] & _MASKS[np.minimum(lengths_T, _LANE)])
        longer, done = np.flatnonzero(lengths_T > _LANE), _LANE
        while len(longer):
            rest = np.minimum(lengths_T[longer] - done, _LANE)
            hashes_T[longer] = self._mix(hashes_T[longer] + (lanes[starts_T[longer] + done] & _MASKS[rest]))
            done += _LANE
            longer = longer[lengths_T[longer] > done]
        return hashes_T

    def _mix(self, numbers: np.ndarray) -> np.ndarray:
        """Applies a one-to-one mixing function to 64-bit integers."""
        numbers = numbers * self._factor
        numbers ^= numbers >> np.uint64(32)
        return numbers * self._factor

    def _find(self, hashes_T: np.ndarray) -> np.ndarray:
        """Returns the id of each word, or -1 if it is unknown."""
        places_T = self._firsts[hashes_T >> self._shift]
        smaller = np.flatnonzero(self._hashes_V[places_T] < hashes_T)
        while len(smaller):
            places_T[smaller] += 1
            smaller = smaller[self._hashes_V[places_T[smaller]] < hashes_T[smaller]]
        return np.where(self._hashes_V[places_T] == hashes_T, self._ids_V[places_T], -1)


def parse_number(field: bytes) -> float:
    """Parses a number in a form that KenLM reads. Raises ValueError for any other field."""
    if not _NUMBER.fullmatch(field):  # Python's `float` also accepts underscores, nan, infinity and surrounding spaces
        raise ValueError(f'not a number: {field!r}')
    return float(field)


def _lanes(data: bytes) -> np.ndarray:
    """Returns, for each byte, the integer formed by this byte and the seven bytes after it."""
    return np.ndarray((len(data) - _LANE + 1,), '<u8', data, strides=(1,))


def _floats(bytes_L: np.ndarray, lanes: np.ndarray, starts_I: np.ndarray, lengths_I: np.ndarray) -> np.ndarray | None:
    """Parses fields with the same results as `parse_number`. Returns None if a field is not a number.

    A field such as -12.3456 is read as an integer divided by a power of ten. `parse_number` reads all other fields.
    """
    is_negative_I = bytes_L[starts_I] == ord('-')
    first_I, size_I = starts_I + is_negative_I, lengths_I - is_negative_I
    whole_I = np.minimum(size_I, 4)  # digits before the point
    for i in (3, 2, 1):
        whole_I[(bytes_L[first_I + i] == ord('.')) & (size_I > i)] = i
    decimals_I = np.maximum(size_I - whole_I - 1, 0)
    after_I, some_I = first_I + whole_I + 1, np.minimum(decimals_I, _LANE)
    whole, is_plain_I = _integers(lanes[first_I], whole_I)
    digits, is_number_I = _integers(lanes[after_I], some_I)
    is_plain_I &= is_number_I & (whole_I >= 1) & (whole_I <= 3) & (decimals_I <= 2 * _LANE)
    numbers = whole * _POWERS[some_I] + digits
    longer = np.flatnonzero(is_plain_I & (decimals_I > _LANE))
    if len(longer):
        rest = decimals_I[longer] - _LANE
        digits, is_number = _integers(lanes[after_I[longer] + _LANE], rest)
        numbers[longer] = numbers[longer] * _POWERS[rest] + digits
        is_plain_I[longer] = is_number & (numbers[longer] < _EXACT)
    values_I = numbers / _FLOAT_POWERS[np.minimum(decimals_I, 2 * _LANE)]
    np.negative(values_I, out=values_I, where=is_negative_I)
    with contextlib.suppress(ValueError):
        for row in np.flatnonzero(~is_plain_I):
            values_I[row] = parse_number(bytes_L[starts_I[row] : starts_I[row] + lengths_I[row]].tobytes())
        return values_I
    return None


def _integers(lanes_I: np.ndarray, lengths_I: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the integers written in the first 0 to 8 bytes of `lanes_I`, and whether all these bytes are digits."""
    unused_I = _LANE - lengths_I
    masks_I = _MASKS[unused_I]
    digits_I = (lanes_I << (unused_I * 8).astype(np.uint64)) | (_DIGITS & masks_I)  # leading zeros
    are_digits_I = ((digits_I & _HIGH) == _DIGITS) & (((digits_I + _SIX) & _HIGH) == _DIGITS)
    numbers_I = digits_I - _DIGITS
    for factor, shift, mask in _JOINS:
        numbers_I = (numbers_I * np.uint64(factor) + (numbers_I >> np.uint64(shift))) & np.uint64(mask)
    return numbers_I, are_digits_I
