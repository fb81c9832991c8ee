"""Every value lies in one bucket, and buckets are as narrow as they say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchserver.stats.logbuckets import bucket_of, lower_end, upper_end


@settings(max_examples=200)
@given(value=st.integers(0, 1 << 60), bits=st.integers(1, 8))
def test_a_value_lies_between_the_ends_of_its_bucket(value: int, bits: int) -> None:
    bucket = bucket_of(value, bits)
    assert lower_end(bucket, bits) <= value <= upper_end(bucket, bits)
    assert upper_end(bucket, bits) - lower_end(bucket, bits) <= value / (1 << bits)


def test_buckets_follow_one_another() -> None:
    assert [bucket_of(value, 1) for value in range(12)] == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6]
    assert [lower_end(bucket, 1) for bucket in range(8)] == [0, 1, 2, 3, 4, 6, 8, 12]
