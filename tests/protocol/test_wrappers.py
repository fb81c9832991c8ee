import pickle
import pickletools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.dtypes import ITEM_BYTES
from protocol.errors import RemoteProtocolError
from protocol.wrappers import CPU_WRAPPER, FIELDS, read_wrapper, write_wrapper

counts = st.one_of(
    st.integers(0, 300),
    st.integers(65000, 66000),
    st.integers(2**31 - 5, 2**31 + 5),
    st.integers(0, 2**62),
)
values = st.fixed_dictionaries(
    {
        "shm_name": st.text("abc_/9", max_size=255),
        "nbytes": counts,
        "handle": st.none(),
        "dtype": st.sampled_from(sorted(ITEM_BYTES)),
        "shape": st.lists(counts, max_size=6).map(tuple),
        "stride": st.lists(counts, max_size=6).map(tuple),
        "storage_offset": counts,
        "device_uuid": st.just("cpu"),
    }
)


@given(values)
def test_what_is_written_is_read_back(wrapper: dict[str, Any]) -> None:
    assert read_wrapper(write_wrapper(wrapper)) == wrapper


class Stranger:
    """A class whose pickle has the shape of a wrapper's, under another name."""


@given(values.filter(lambda v: v["shape"] and v["stride"] and v["shape"] is not v["stride"]))
def test_the_bytes_are_those_of_pythons_pickler(wrapper: dict[str, Any]) -> None:
    stranger = Stranger()
    # The pickler writes a value that it has met before as a reference; here none has been.
    stranger.__dict__.update({**{name: wrapper[name] for name in FIELDS}, "dtype": None})
    theirs = pickle.dumps(stranger, protocol=4)
    name, module = b"Stranger", Stranger.__module__.encode()
    ours = write_wrapper(wrapper)
    for other, own in ((name, CPU_WRAPPER.name), (module, CPU_WRAPPER.module)):
        theirs = theirs.replace(
            b"\x8c" + bytes([len(other)]) + other, b"\x8c" + bytes([len(own)]) + own.encode()
        )
    torch = b"\x8c\x05torch\x94\x8c" + bytes([len(wrapper["dtype"])])
    torch += wrapper["dtype"].encode() + b"\x94\x93\x94"
    theirs = theirs.replace(b"\x8c\x05dtype\x94N", b"\x8c\x05dtype\x94" + torch)
    assert ours[11:] == theirs[11:]
    assert int.from_bytes(ours[3:11], "little") == len(ours) - 11


SOUND = {
    "shm_name": "/x",
    "nbytes": 64,
    "handle": None,
    "dtype": "float16",
    "shape": (2, 4),
    "stride": (4, 1),
    "storage_offset": 0,
    "device_uuid": "cpu",
}


def test_no_byte_names_code_to_run() -> None:
    stream = write_wrapper(SOUND)
    names = [arg for op, arg, _ in pickletools.genops(stream) if "UNICODE" in op.name]
    assert names[:2] == [CPU_WRAPPER.module, CPU_WRAPPER.name]
    assert not [op.name for op, _, _ in pickletools.genops(stream) if op.name == "REDUCE"]


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("owned",))


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (b"", "handle: before byte 0: got '0 bytes to the end', expected 1 more bytes"),
        (pickle.dumps(Evil()), "expected a name from the allow-list"),
        (pickle.dumps(Stranger()), "expected a name from the allow-list"),
        (pickle.dumps({}), r"expected one CpuShmTensorWrapper with its state"),
        (write_wrapper(SOUND) + b".", "expected one CpuShmTensorWrapper with its state"),
        (write_wrapper(SOUND)[:-2] + b"N.", "expected one value on the stack at the end"),
        (write_wrapper(SOUND)[:-2] + b"bNb.", "expected a new instance, and its state as a dict"),
        (b"x" * 5000, "handle: a wrapper of 5000 bytes, expected at most 4096"),
    ],
)
def test_a_pickle_of_anything_else_is_refused(
    stream: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        read_wrapper(stream)
    assert capsys.readouterr().out == ""


def test_a_wrapper_with_another_field_is_refused() -> None:
    stream = write_wrapper(SOUND).replace(b"\x06nbytes", b"\x06nbYtes")
    with pytest.raises(RemoteProtocolError, match=f"expected the fields {', '.join(FIELDS)}"):
        read_wrapper(stream)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_value_or_a_refusal(stream: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_wrapper(stream)


@given(st.data())
def test_a_damaged_wrapper_gives_a_value_or_a_refusal(data: st.DataObject) -> None:
    stream = bytearray(write_wrapper(SOUND))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] = data.draw(st.integers(0, 255))
    try:
        read_wrapper(bytes(stream))
    except RemoteProtocolError:
        return
