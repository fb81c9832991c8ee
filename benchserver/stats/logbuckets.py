"""Whole numbers in buckets of a bounded relative width: each power of two is divided evenly.

With `bits` bits a bucket is at most a share of 1 / 2**bits of its value wide, and numbers below
2**(bits + 1) have a bucket each.
"""

from __future__ import annotations


def bucket_of(value: int, bits: int) -> int:
    """Return the number of the bucket that a value of 0 or more lies in; larger values, larger."""
    shift = value.bit_length() - bits - 1
    return (shift << bits) + (value >> shift) if shift > 0 else value


def lower_end(bucket: int, bits: int) -> int:
    """Return the least value that lies in a bucket."""
    step = 1 << bits
    if bucket < 2 * step:
        return bucket
    return (step + bucket % step) << (bucket // step - 1)


def upper_end(bucket: int, bits: int) -> int:
    """Return the largest value that lies in a bucket."""
    return lower_end(bucket + 1, bits) - 1
