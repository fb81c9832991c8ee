"""The stack machine: wrong streams, any opcodes, and malice, as inline tensor lists."""

from __future__ import annotations

import pickletools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.inline.streams import (
    BLOB,
    BLOB_PARTS,
    HOOKS,
    LOAD,
    REBUILD,
    list_or_refusal,
    listed,
    refused,
    storage_of,
    tensor_of,
)


@pytest.mark.parametrize(
    ("stream", "match"),
    [
        (b"", "1 more bytes"),
        (b"\x80\x01](e.", "protocol 2 to 5"),
        (b"\x80\x06](e.", "protocol 2 to 5"),
        (b"\x80\x04N.", "a list"),
        (b"\x80\x04)." + b"", "a list"),
        (b"\x80\x04.", "a value to use"),
        (b"\x80\x04]].", "one value"),
        (b"\x80\x04](.", "a value to use"),
        (b"\x80\x04]e.", "MARK"),
        (b"\x80\x04](u.", "a dict"),
        (b"\x80\x04}(X\x01\x00\x00\x00au.", "even number"),
        (b"\x80\x04}(]Nu.", "text as dict key"),
        (b"\x80\x04NNa.", "a list to append"),
        (b"\x80\x04(\x85.", "a value to use"),
        (b"\x80\x04h\x00.", "memo"),
        (b"\x80\x04]\x94a.", "a value to use"),
        (listed(b"N"), "a tensor"),
        (listed(storage_of()), "a tensor"),
        (listed(HOOKS + b")R"), "a tensor"),
        (listed(REBUILD), "a tensor"),
        (b"\x80\x04]\x95\xff\xff\xff\xff\xff\xff\xff\xff.", "within the stream"),
        (listed(tensor_of(hooks=b"}")), "empty OrderedDict"),
        (listed(tensor_of(hooks=HOOKS + b"]\x85R")), "no arguments"),
        (listed(tensor_of(hooks=HOOKS + b")R}")), "six arguments"),
        (listed(tensor_of(grad=b"K\x00")), "boolean"),
        (listed(tensor_of(storage=b"N")), "a storage"),
        (listed(tensor_of(offset=b"\x88")), "storage offset"),
        (listed(tensor_of(offset=b"\x8a\x0c" + b"\x7f" * 12)), "storage offset"),
        (listed(tensor_of(offset=b"\x8a\x11" + bytes(17))), "at most 16 bytes"),
        (listed(tensor_of(view=b"](K\x03t")), "shape"),
        (listed(LOAD + b")R"), "one argument"),
        (listed(LOAD + b"X\x01\x00\x00\x00a\x85R"), "one argument"),
        (listed(LOAD + b"]R"), "tuple of arguments"),
        (listed(b"\x8c\x02\xff\xfe"), "UTF-8"),
        (listed(b"\x8c\x03\xed\xa0\x80"), "UTF-8"),
        (listed(b"X\x01\x01\x00\x00" + b"a" * 257), "at most 256 bytes"),
        (listed(b"ctorch" + b"h" * 300 + b"\nx\n"), "a line of"),
        (listed(b"c\xff\nx\n"), "UTF-8"),
        (listed(b"K\x01X\x01\x00\x00\x00a\x93"), "name as text"),
        (listed(b"X\x01\x00\x00\x00aN\x93"), "name as text"),
    ],
)
def test_wrong_lists(stream: bytes, match: str) -> None:
    refused(stream, match)


_OPCODE_BYTES = st.sampled_from([op.code.encode("latin1") for op in pickletools.opcodes])


_PIECES = st.sampled_from([REBUILD, LOAD, HOOKS, storage_of(), tensor_of(), b"K\x02", b"(K\x03t"])


@given(st.lists(_OPCODE_BYTES | _PIECES | st.binary(max_size=3), max_size=40).map(b"".join))
@settings(deadline=None, max_examples=300)
def test_any_opcodes_are_a_list_or_refused(stream: bytes) -> None:
    list_or_refusal(stream)
    list_or_refusal(listed(stream))
    list_or_refusal(listed(tensor_of(storage_of(stream))))


def _attacks() -> Iterator[tuple[str, bytes]]:
    command = b"X\x02\x00\x00\x00id"
    for module, name in (("os", "system"), ("builtins", "eval"), ("torch", "load")):
        global_ = f"c{module}\n{name}\n".encode()
        stacked = b"".join(b"\x8c" + bytes([len(p)]) + p.encode() for p in (module, name)) + b"\x93"
        yield f"GLOBAL {name}", global_ + command + b"\x85R"
        yield f"STACK_GLOBAL {name}", stacked + command + b"\x85R"
        yield f"bare GLOBAL {name}", global_
        yield f"INST {name}", b"(" + command + f"i{module}\n{name}\n".encode()
        yield f"OBJ {name}", b"(" + global_ + command + b"o"
        yield f"NEWOBJ {name}", global_ + command + b"\x85\x81"
        yield f"NEWOBJ_EX {name}", global_ + command + b"\x85}\x92"
    yield "OBJ of an allowed name", b"(ccollections\nOrderedDict\no"
    yield "NEWOBJ of an allowed name", HOOKS + b")\x81"
    yield "BUILD", tensor_of() + b"}b"
    yield "EXT1", b"\x82\x01"
    yield "PERSID", b"Pos.system\n"
    yield "BINPERSID outside a blob", b"NQ"
    yield "dotted name", b"\x8c\x05torch\x8c\x16_utils.sys.modules.get\x93"
    yield "storage class outside a blob", b"ctorch\nHalfStorage\n"
    yield "REDUCE of text", command + b")R"
    yield "REDUCE of a tensor", tensor_of() + b")R"
    yield "READONLY_BUFFER", b"\x97\x98"
    yield "FLOAT", b"F1\n"
    yield "LONG4 of 2 GiB", b"\x8b\xff\xff\xff\x7f\x00"
    yield "LONG4 negative", b"\x8b\xff\xff\xff\xff"
    yield "decimal LONG", b"L" + b"9" * 100_000 + b"L\n"
    yield "LONG1 of 255 bytes", b"\x8a\xff" + b"\x7f" * 255
    yield "BINBYTES of 4 GiB", b"B\xff\xff\xff\xff"
    yield "BINBYTES8 of 2**64", b"\x8e" + b"\xff" * 8
    yield "BINUNICODE of 4 GiB", b"X\xff\xff\xff\xff"
    yield "BYTEARRAY8", b"\x96" + b"\xff" * 8


@pytest.mark.parametrize(("name", "attack"), list(_attacks()))
def test_attacks_are_refused_outside_and_inside_a_blob(name: str, attack: bytes) -> None:
    refused(listed(attack))
    refused(listed(tensor_of(), attack))
    refused(listed(tensor_of(storage_of(b"\x80\x02" + attack + b"."))))
    for part in range(5):
        parts = list(BLOB_PARTS)
        parts[part] = b"\x80\x02" + attack + b"."
        refused(listed(tensor_of(storage_of(b"".join(parts)))))


def test_a_blob_within_a_blob_is_refused() -> None:
    blob = BLOB
    for _ in range(1000):
        blob = b"\x80\x04" + storage_of(blob) + b"."
    refused(listed(tensor_of(storage_of(blob))), "allow-list")


@pytest.mark.parametrize("name", [REBUILD, LOAD, HOOKS])
def test_a_blob_names_nothing_but_storages(name: bytes) -> None:
    refused(listed(tensor_of(storage_of(b"\x80\x02" + name + b"."))), "allow-list")


def test_billion_laughs_lists_are_refused_without_walking_them() -> None:
    level = b"](" + b"h%c" * 10 + b"e\x94"
    levels = [b"]\x94"] + [level.replace(b"%c", bytes([depth])) for depth in range(100)]
    refused(b"\x80\x04](" + b"".join(levels) + b"e.", "a list, expected a tensor")
    refused(listed(tensor_of(offset=b"(" + b"".join(levels) + b"t")), "got a tuple")


@pytest.mark.parametrize(
    "nested",
    [
        b"]" * 3000 + b"a" * 2999,
        b"N" + b"\x85" * 300_000,
        b"]" + b"\x94h\x00a" * 100,
        b"]\x94h\x00ah\x00\x85",
        b"(" * 3000 + b"t" * 3000,
    ],
    ids=["lists", "tuples", "itself", "itself in a tuple", "marks"],
)
def test_deep_nesting_is_refused(nested: bytes) -> None:
    refused(b"\x80\x04" + nested + b".")
    refused(listed(nested))
    refused(listed(tensor_of(offset=nested)))
    for part in range(5):
        parts = list(BLOB_PARTS)
        parts[part] = b"\x80\x02" + nested + b"."
        refused(listed(tensor_of(storage_of(b"".join(parts)))))


def test_limits_of_the_machine() -> None:
    refused(b"\x80\x04" + b"N" * 5000 + b".", "values on the stack")
    refused(b"\x80\x04" + b"(" * 5000 + b".", "open marks")
    refused(b"\x80\x04" + b"]\x94" + b"h\x00a" * 400_000 + b".", "opcodes")
    refused(b"\x80\x04]" + b"\x94" * 200_000 + b".", "memo entries")
    puts = b"".join(b"r" + index.to_bytes(4, "little") for index in range(0, 1 << 31, 1 << 13))
    refused(b"\x80\x04]" + puts + b".", "memo entries")
    refused(listed(tensor_of(storage_of(b"\x80\x02]" + b"\x94" * 70 + b"."))), "opcodes")
