"""The messages of an ONNX file that hold tensors or nodes, read without the package onnx.

Fields have the numbers of onnx.proto (onnx 1.19), which decide the bytes. What is left out holds neither tensors nor
nodes, and is skipped; a test compares this with onnx's own messages.
"""

import functools
from typing import Any

_MESSAGES = """
Model: 7 graph Graph, 20 training_info TrainingInfo*, 25 functions Function*
TrainingInfo: 1 initialization Graph, 2 algorithm Graph
Function: 7 node Node*, 10 domain string, 11 attribute_proto Attribute*
Graph: 1 node Node*, 5 initializer Tensor*, 15 sparse_initializer SparseTensor*
Node: 4 op_type string, 5 attribute Attribute*, 7 domain string
Attribute: 5 t Tensor, 6 g Graph, 10 tensors Tensor*, 11 graphs Graph*, 22 sparse_tensor SparseTensor, 23 sparse_tensors SparseTensor*
SparseTensor: 1 values Tensor, 2 indices Tensor
Tensor: 8 name string, 13 external_data Entry*, 14 data_location int32
Entry: 1 key string, 2 value string
"""  # noqa: E501 - a message a line
"""Message: number, name and type of its fields; * repeats."""

EXTERNAL = 1
"""`data_location` of a tensor in another file."""


@functools.cache
def model_class() -> Any:
    """The class of `ModelProto`, in a descriptor pool of its own: the package onnx has another in the default one."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    # Syntax 2, as onnx: texts need not be UTF-8.
    file = descriptor_pb2.FileDescriptorProto(name="onnx_messages.proto", package="voxline", syntax="proto2")
    for line in _MESSAGES.strip().splitlines():
        name, _, fields = line.partition(":")
        message = file.message_type.add(name=name)
        for field in fields.split(","):
            number, field_name, kind = field.split()
            label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field_name, number=int(number), label=label)
            added.type = {"string": kinds.TYPE_STRING, "int32": kinds.TYPE_INT32}.get(kind, kinds.TYPE_MESSAGE)
            if added.type == kinds.TYPE_MESSAGE:
                added.type_name = f".voxline.{kind.removesuffix('*')}"

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("voxline.Model"))
