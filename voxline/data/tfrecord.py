"""Reads and writes TFRecord files and `tf.train.Example` without TensorFlow, whose import takes seven seconds.

A TFRecord file is records one after the other (tensorflow/core/lib/io/record_writer.h):
  uint64  length of the data, little-endian
  uint32  masked CRC-32C of the eight bytes before
  bytes   the data
  uint32  masked CRC-32C of the data
A masked checksum is `rotate_right(crc, 15) + 0xa282ead8`, since the checksum
of data that contains its own checksum is weak. Files are not compressed: ZLIB writes sixty times slower.
"""

import array
import functools
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import google_crc32c

from voxline.errors import WorkError

FeatureValues = list[bytes] | list[float] | list[int]

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
RECORD_OVERHEAD = _LENGTH.size + 2 * _CHECKSUM.size
"""Bytes of a record besides its data."""


class DamagedRecordError(WorkError):
    """A record was cut short or altered.

    Attributes:
      what: which record, and how.
    """

    def __init__(self, path: Path, part: str) -> None:
        super().__init__(f"{path}: damaged {part}; delete the file and run the step that wrote it again")
        self.what = part


class SupportsWrite(Protocol):
    """A file open for writing bytes, or a wrapper of one."""

    def write(self, data: bytes, /) -> int: ...


def write_tfrecord(file: SupportsWrite, data: bytes) -> int:
    """Appends one record. Returns its bytes."""
    length = _LENGTH.pack(len(data))
    file.write(length + _CHECKSUM.pack(_masked(length)))
    file.write(data)
    file.write(_CHECKSUM.pack(_masked(data)))
    return len(data) + RECORD_OVERHEAD


def read_tfrecords(path: Path) -> Iterator[bytes]:
    """Yields the data of each record and verifies the checksums.

    Raises:
      WorkError: a record was cut short or altered.
    """
    size = path.stat().st_size
    offset = 0
    with open(path, "rb") as file:
        while offset < size:
            head = file.read(_LENGTH.size + _CHECKSUM.size)
            if len(head) < _LENGTH.size + _CHECKSUM.size:
                raise _damaged(path, offset, f"the file ends {len(head)} bytes into a record")

            # The length is verified before it is used: a damaged one could ask for terabytes.
            (length,) = _LENGTH.unpack_from(head)
            if _CHECKSUM.unpack_from(head, _LENGTH.size) != (_masked(head[: _LENGTH.size]),):
                raise _damaged(path, offset, "the checksum of a record's length does not match")
            if offset + length + RECORD_OVERHEAD > size:
                raise _damaged(
                    path, offset, f"a record of {length:,} bytes, and {size - offset - RECORD_OVERHEAD:,} are there"
                )
            data = file.read(length)
            if _CHECKSUM.unpack(file.read(_CHECKSUM.size)) != (_masked(data),):
                raise _damaged(path, offset, "the checksum of a record's data does not match")
            yield data
            offset += length + RECORD_OVERHEAD


def read_record_at(file: int, offset: int, length: int, path: Path, *, verify: bool = True) -> bytes:
    """Reads the data of a record, as `view_record_at`."""
    return bytes(view_record_at(file, offset, length, path, verify=verify))


def view_record_at(file: int, offset: int, length: int, path: Path, *, verify: bool = True) -> memoryview:
    """Reads the data of the record at an offset of an open file. Threads may share the file.

    Args:
      file: descriptor.
      length: of the data.
      path: of the file, for the message.
      verify: whether to compare its checksums, which costs a tenth of a read from memory.

    Raises:
      WorkError: no such record begins there, or it was altered.
    """
    # One `pread` for the whole record; it does not move the position of the file, so threads need no lock.
    record = os.pread(file, length + RECORD_OVERHEAD, offset)
    if len(record) < length + RECORD_OVERHEAD:
        raise _damaged(
            path, offset, f"the file ends {len(record):,} bytes into a record of {length + RECORD_OVERHEAD:,}"
        )
    head = record[: _LENGTH.size]
    data = memoryview(record)[_LENGTH.size + _CHECKSUM.size : -_CHECKSUM.size]
    if verify:
        if _LENGTH.unpack(head) != (length,) or _CHECKSUM.unpack_from(record, _LENGTH.size) != (_masked(head),):
            raise _damaged(path, offset, f"no record of {length:,} bytes begins here")
        if _CHECKSUM.unpack_from(record, len(record) - _CHECKSUM.size) != (_masked(bytes(data)),):
            raise _damaged(path, offset, "the checksum of a record's data does not match")
    return data


def encode_example(features: Mapping[str, bytes | float | int | Iterable[bytes | float | int]]) -> bytes:
    """Serializes a `tf.train.Example`; equal features give equal bytes, those of protobuf.

    By hand, in the wire format (protobuf.dev/programming-guides/encoding): to import protobuf, and to describe the
    message to it, takes as long as the features of ten recordings.

    Args:
      features: by name, one value or several of one type: bytes; float (kept as float32); int (int64).

    >>> decode_example(encode_example({"id": b"a", "frames": 7, "speed": 0.5, "none": []}))
    {'frames': [7], 'id': [b'a'], 'none': [], 'speed': [0.5]}
    """
    # An Example has a message of Features, and that an entry of a key and a Feature for each name. A map has no order
    # in protobuf, which sorts it by name where equal bytes are wanted.
    entries = [
        _encode_field(1, _encode_field(1, name.encode()), _encode_field(2, _encode_feature(name, features[name])))
        for name in sorted(features)
    ]
    return _encode_field(1, *entries) if entries else b""


def _encode_feature(name: str, feature: bytes | float | int | Iterable[bytes | float | int]) -> bytes:
    """A message of one of three lists, numbered 1 to 3."""
    values = [feature] if isinstance(feature, bytes | float | int) else list(feature)
    texts = [value for value in values if isinstance(value, bytes)]
    integers = [value for value in values if isinstance(value, int)]  # bool is an int, and is kept as one
    floats = [value for value in values if isinstance(value, float)]

    # An empty list has no type: the feature exists, with no kind set.
    if not values:
        return b""
    if len(texts) == len(values):
        return _encode_field(1, *[_encode_field(1, text) for text in texts])
    # Numbers follow each other in one field.
    if len(floats) == len(values):
        numbers = array.array("f", floats)  # beyond float32 is infinity, as in protobuf
        if sys.byteorder == "big":
            numbers.byteswap()
        return _encode_field(2, _encode_field(1, numbers.tobytes()))
    if len(integers) == len(values):
        return _encode_field(3, _encode_field(1, *map(_encode_int64, integers)))
    types = ", ".join(sorted({type(value).__name__ for value in values}))
    raise TypeError(f"feature {name!r} holds {types}; bytes, float or int is accepted, all of one type")


def _encode_field(number: int, *parts: bytes) -> bytes:
    """A field of a length and as many bytes."""
    size = sum(map(len, parts))
    return b"".join((_encode_varint(number << 3 | 2), _encode_varint(size), *parts))


def _encode_int64(value: int) -> bytes:
    """
    Raises:
      ValueError: it has more than 64 bits.
    """
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} is no number of 64 bits")
    return _encode_varint(value % (1 << 64))


def _encode_varint(value: int) -> bytes:
    """A number of seven bits a byte, the lowest first; all but the last byte have the eighth bit."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def find_bytes(data: memoryview, name: str) -> memoryview:
    """The one value, of bytes, of a feature of a `tf.train.Example`: a view, where a parser makes two copies.

    It walks the wire format: fields of a key, `number << 3 | 2`, a length and as many bytes. An Example has nothing
    else around its features.

    >>> bytes(find_bytes(memoryview(encode_example({"frames": 7, "id": b"a"})), "id"))
    b'a'

    Raises:
      ValueError: no feature has the name, it has another type or number of values, or the bytes are no Example.
    """
    for number, features in _fields(data):
        for entry_number, entry in _fields(features) if number == 1 else ():
            # The key and the value of an entry of the map.
            parts = dict(_fields(entry)) if entry_number == 1 else {}
            if 2 in parts and bytes(parts.get(1, b"")) == name.encode():
                # Feature, its list of bytes, and that list's values.
                values = [list(_fields(kind)) for kind_number, kind in _fields(parts[2]) if kind_number == 1]
                if len(values) == 1 and len(values[0]) == 1:
                    return values[0][0][1]
    raise ValueError(f"no feature {name!r} of one value of bytes")


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The numbers and contents of the fields of a message whose fields all have a length."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        size, position = _varint(data, position)
        if key & 7 != 2 or position + size > len(data):
            raise ValueError(f"{len(data):,} bytes that are not a tf.train.Example")
        yield key >> 3, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the position behind it."""
    value = 0
    for shift in range(0, 64, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError("a number without an end")


def decode_example(data: bytes) -> dict[str, FeatureValues]:
    """Parses a `tf.train.Example`: its features by name, in alphabetical order.

    Raises:
      ValueError: the bytes are not one.
    """
    from google.protobuf.message import DecodeError

    example = _example_class()()
    try:
        example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"{len(data):,} bytes that are not a tf.train.Example: {error}") from None
    named = example.features.feature
    return {name: _values(named[name]) for name in sorted(named)}


def _values(feature: Any) -> FeatureValues:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def _masked(data: bytes) -> int:
    checksum: int = google_crc32c.value(data)
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _damaged(path: Path, offset: int, part: str) -> DamagedRecordError:
    return DamagedRecordError(path, f"at byte {offset:,}: {part}")


@functools.cache
def _example_class() -> Any:
    """The message class of tensorflow/core/example/{example,feature}.proto.

    It is in a descriptor pool of its own, since TensorFlow registers the same names in the default one.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def add(message: Any, name: str, number: int, kind: int, *, type_name: str = "", repeated: bool = False) -> Any:
        label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        return message.field.add(name=name, number=number, type=kind, type_name=type_name or None, label=label)

    # Numbers and types of fields are those of TensorFlow's files: they decide the bytes.
    for name, kind in (
        ("BytesList", field.TYPE_BYTES),
        ("FloatList", field.TYPE_FLOAT),
        ("Int64List", field.TYPE_INT64),
    ):
        add(file.message_type.add(name=name), "value", 1, kind, repeated=True)
    feature = file.message_type.add(name="Feature")

    # `oneof kind`: a feature is a list of bytes, of floats or of integers.
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), start=1):
        type_name = ".tensorflow." + name.title().replace("_", "")
        add(feature, name, number, field.TYPE_MESSAGE, type_name=type_name).oneof_index = 0
    features = file.message_type.add(name="Features")

    # A map is a repeated entry of key and value on the wire.
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, field.TYPE_STRING)
    add(entry, "value", 2, field.TYPE_MESSAGE, type_name=".tensorflow.Feature")
    entry_name = ".tensorflow.Features.FeatureEntry"
    add(features, "feature", 1, field.TYPE_MESSAGE, type_name=entry_name, repeated=True)
    example = file.message_type.add(name="Example")
    add(example, "features", 1, field.TYPE_MESSAGE, type_name=".tensorflow.Features")

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
