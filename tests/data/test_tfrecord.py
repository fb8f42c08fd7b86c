"""Records against TensorFlow, which reads what we write and writes what we read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxline.data.tfrecord import decode_example, encode_example, read_tfrecords, write_tfrecord
from voxline.errors import WorkError

VALUES = st.one_of(
    st.lists(st.binary(max_size=40), max_size=5),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), max_size=5),
)


def write_all(path: Path, records: Iterable[bytes]) -> Path:
    with open(path, "wb") as file:
        for record in records:
            write_tfrecord(file, record)
    return path


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=6))
def test_an_example_decodes_to_what_was_encoded(features: dict[str, list[bytes]]) -> None:
    assert decode_example(encode_example(features)) == features


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.text(min_size=3, max_size=3), VALUES, max_size=6))  # of one length: see below
def test_an_example_has_the_bytes_that_protobuf_gives_it(features: dict[str, list[Any]]) -> None:
    import tensorflow as tf

    kinds = {bytes: ("bytes_list", tf.train.BytesList), int: ("int64_list", tf.train.Int64List)}
    theirs = tf.train.Example()
    for name, values in features.items():
        feature = theirs.features.feature[name]
        if values:
            kind, message = kinds.get(type(values[0]), ("float_list", tf.train.FloatList))
            getattr(feature, kind).CopyFrom(message(value=values))
        else:
            feature.SetInParent()
    # Names are sorted, but protobuf's Python puts one that begins another behind it, unlike its C++.
    assert encode_example(features) == theirs.SerializeToString(deterministic=True)


@pytest.mark.parametrize("value", [1e300, -1e300, 3.4028235677973366e38, float("inf")])
def test_a_float_beyond_its_32_bits_is_what_protobuf_makes_of_it(value: float) -> None:
    import tensorflow as tf

    [theirs] = tf.train.FloatList(value=[value]).value
    assert decode_example(encode_example({"number": value})) == {"number": [theirs]}


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="9223372036854775808 is no number of 64 bits"):
        encode_example({"number": 2**63})


@settings(deadline=None, max_examples=20)
@given(records=st.lists(st.binary(max_size=300), max_size=8))
def test_records_come_back_in_order(records: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = write_all(tmp_path_factory.mktemp("records") / "some.tfrecord", records)
    assert list(read_tfrecords(path)) == records


def test_tensorflow_reads_what_we_write(tmp_path: Path) -> None:
    import tensorflow as tf

    numbers = np.arange(12, dtype=np.float32).reshape(4, 3)
    written: dict[str, Any] = {
        "id": "früh".encode(),
        "features": numbers.tobytes(),
        "frames": 4,
        "speed": 0.9,
        "labels": [1, -2, 3],
    }
    path = write_all(tmp_path / "ours.tfrecord", [encode_example(written), encode_example({"frames": 5})])
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    assert len(records) == 2
    parsed = tf.io.parse_single_example(
        records[0],
        {
            "id": tf.io.FixedLenFeature([], tf.string),
            "features": tf.io.FixedLenFeature([], tf.string),
            "frames": tf.io.FixedLenFeature([], tf.int64),
            "speed": tf.io.FixedLenFeature([], tf.float32),
            "labels": tf.io.VarLenFeature(tf.int64),
        },
    )
    assert parsed["id"].numpy().decode() == "früh"
    np.testing.assert_array_equal(tf.reshape(tf.io.decode_raw(parsed["features"], tf.float32), [4, 3]), numbers)
    assert parsed["frames"].numpy() == 4
    assert parsed["speed"].numpy() == np.float32(0.9)
    assert parsed["labels"].values.numpy().tolist() == [1, -2, 3]


def test_what_tensorflow_writes_is_read_in_the_same_process(tmp_path: Path) -> None:
    import tensorflow as tf

    theirs = tf.train.Example(
        features=tf.train.Features(
            feature={
                "id": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a", b""])),
                "frames": tf.train.Feature(int64_list=tf.train.Int64List(value=[-1])),
                "speed": tf.train.Feature(float_list=tf.train.FloatList(value=[1.5])),
                "nothing": tf.train.Feature(),
            }
        )
    )
    path = tmp_path / "theirs.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(theirs.SerializeToString())
    (record,) = read_tfrecords(path)
    assert decode_example(record) == {"frames": [-1], "id": [b"a", b""], "nothing": [], "speed": [1.5]}
    back = tf.train.Example.FromString(encode_example(decode_example(record)))
    assert back == theirs


def test_a_file_cut_anywhere_is_refused_naming_file_and_offset(tmp_path: Path) -> None:
    records = [b"first", b"second one"]
    whole = write_all(tmp_path / "whole.tfrecord", records).read_bytes()
    second = 16 + len(records[0])
    for length in range(1, len(whole)):
        if length == second:
            continue
        path = tmp_path / "cut.tfrecord"
        path.write_bytes(whole[:length])
        with pytest.raises(WorkError, match=rf"cut\.tfrecord: damaged at byte {0 if length < second else second}:"):
            list(read_tfrecords(path))


def test_a_bit_turned_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write_all(tmp_path / "whole.tfrecord", [b"first", b"second one"]).read_bytes()
    path = tmp_path / "turned.tfrecord"
    for place in range(len(whole)):
        turned = bytearray(whole)
        turned[place] ^= 1 << (place % 8)
        path.write_bytes(turned)
        with pytest.raises(WorkError, match="damaged at byte"):
            list(read_tfrecords(path))


def test_values_of_several_types_in_one_feature_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="'mixed' holds bytes, int"):
        encode_example({"mixed": [b"a", 1]})


def test_bytes_that_are_no_example_are_refused() -> None:
    with pytest.raises(ValueError, match=r"3 bytes that are not a tf\.train\.Example"):
        decode_example(b"\xff\xff\xff")
