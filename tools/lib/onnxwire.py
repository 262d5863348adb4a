"""Reads and writes ONNX files at the level of protobuf's wire format.

For tools and tests that must run with Python and NumPy alone. A message is a
list of fields in file order; what this module does not know (newer fields,
other extensions) is kept byte for byte. Only little-endian machines.

    model = load("m.onnx")
    for node in model.graph.nodes:
        node.name = "n_" + node.name
    save(model, "renamed.onnx")
"""

import struct

import numpy as np

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# TensorProto.DataType -> NumPy, for the types that NumPy has.
DTYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32,
          7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32,
          13: np.uint64}
DTYPE_CODES = {np.dtype(v): k for k, v in DTYPES.items()}


class WireError(ValueError):
    """The bytes are no protobuf message, or no ONNX model."""


def read_varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError(f"bad varint at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def write_varint(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Message:
    """A list of [number, wire type, value]; a value may be a Message in turn."""

    def __init__(self, data=b""):
        self.fields = []
        view, at = memoryview(data), 0
        while at < len(view):
            key, at = read_varint(view, at)
            number, wire = key >> 3, key & 7
            if number == 0:
                raise WireError(f"field number 0 at byte {at}")
            if wire == VARINT:
                value, at = read_varint(view, at)
            elif wire == BYTES:
                size, at = read_varint(view, at)
                value, at = view[at:at + size], at + size
            elif wire in (FIXED32, FIXED64):
                size = 4 if wire == FIXED32 else 8
                value, at = bytes(view[at:at + size]), at + size
            else:
                raise WireError(f"unknown wire type {wire} at byte {at}")
            if at > len(view):
                raise WireError(f"field {number} runs past the end")
            self.fields.append([number, wire, value])

    def bytes(self):
        out = []
        for number, wire, value in self.fields:
            out.append(write_varint(number << 3 | wire))
            if wire == VARINT:
                out.append(write_varint(value))
            elif wire == BYTES:
                data = value.bytes() if isinstance(value, Message) else value
                out.append(write_varint(len(data)))
                out.append(data)
            else:
                out.append(value)
        return b"".join(out)

    def all(self, number):
        return [f[2] for f in self.fields if f[0] == number]

    def integer(self, number, default=0):
        values = self.all(number)
        if not values:
            return default
        return values[-1] - (1 << 64) if values[-1] >> 63 else values[-1]

    def integers(self, number):
        """A repeated int64, packed or not."""
        out = []
        for number_, wire, value in self.fields:
            if number_ != number:
                continue
            if wire == VARINT:
                out.append(value)
                continue
            at = 0
            while at < len(value):
                item, at = read_varint(value, at)
                out.append(item)
        return [v - (1 << 64) if v >> 63 else v for v in out]

    def text(self, number, default=""):
        values = self.all(number)
        return bytes(values[-1]).decode("utf-8", "surrogateescape") if values else default

    def texts(self, number):
        return [bytes(v).decode("utf-8", "surrogateescape") for v in self.all(number)]

    def messages(self, number, kind=None):
        """The sub-messages of a field, parsed in place so that edits are kept."""
        kind = kind or Message
        out = []
        for field in self.fields:
            if field[0] == number:
                if not isinstance(field[2], Message):
                    field[2] = kind(field[2])
                out.append(field[2])
        return out

    def drop(self, number):
        self.fields = [f for f in self.fields if f[0] != number]

    def add(self, number, value):
        """Appends an int, string, bytes, float (fixed 32) or Message field."""
        if isinstance(value, Message):
            self.fields.append([number, BYTES, value])
        elif isinstance(value, str):
            self.fields.append([number, BYTES, value.encode("utf-8", "surrogateescape")])
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self.fields.append([number, BYTES, value])
        elif isinstance(value, float):
            self.fields.append([number, FIXED32, struct.pack("<f", value)])
        else:
            self.fields.append([number, VARINT, int(value) & ((1 << 64) - 1)])
        return self

    def set_texts(self, number, values):
        """Replaces the values of a repeated string that keeps its length."""
        places = [f for f in self.fields if f[0] == number]
        assert len(places) == len(values)
        for place, value in zip(places, values):
            place[2] = value.encode("utf-8", "surrogateescape")

    def set_text(self, number, value):
        self.drop(number)
        self.add(number, value)


def text_field(number):
    return property(lambda self: self.text(number),
                    lambda self, value: self.set_text(number, value))


class Tensor(Message):
    name = text_field(8)

    @property
    def dims(self):
        return self.integers(1)

    @property
    def data_type(self):
        return self.integer(2)

    @property
    def is_external(self):
        return self.integer(14) == 1

    @property
    def external(self):
        return {e.text(1): e.text(2) for e in self.messages(13)}

    def array(self):
        """The contents; external data is not followed."""
        if self.is_external or self.data_type not in DTYPES:
            raise WireError(f"tensor {self.name!r}: contents are not in this file")
        dtype = np.dtype(DTYPES[self.data_type])
        raw = self.all(9)
        if raw:
            flat = np.frombuffer(raw[-1], dtype=dtype)
        elif self.data_type == 1:
            flat = np.frombuffer(b"".join(bytes(v) for v in self.all(4)), dtype=np.float32)
        elif self.data_type == 11:
            flat = np.frombuffer(b"".join(bytes(v) for v in self.all(10)), dtype=np.float64)
        elif self.data_type == 7:
            flat = np.array(self.integers(7), dtype=np.int64)
        elif self.data_type in (12, 13):
            flat = np.array(self.integers(11), dtype=np.uint64).astype(dtype)
        else:
            flat = np.array(self.integers(5), dtype=np.int64)
            flat = (flat.astype(np.uint16).view(np.float16) if self.data_type == 10
                    else flat.astype(dtype))
        return flat.reshape(self.dims)


class Attribute(Message):
    name = text_field(1)

    @property
    def subgraphs(self):
        return self.messages(6, Graph) + self.messages(11, Graph)


class Node(Message):
    name = text_field(3)
    op_type = text_field(4)
    domain = text_field(7)

    inputs = property(lambda self: self.texts(1), lambda self, v: self.set_texts(1, v))
    outputs = property(lambda self: self.texts(2), lambda self, v: self.set_texts(2, v))

    @property
    def attributes(self):
        return self.messages(5, Attribute)

    @property
    def subgraphs(self):
        return [g for a in self.attributes for g in a.subgraphs]


class ValueInfo(Message):
    name = text_field(1)

    @property
    def shape(self):
        """A list of int, string or None, or None where the rank is unknown."""
        for type_ in self.messages(2):
            for tensor in type_.messages(1):
                for shape in tensor.messages(2):
                    return [self._dimension(d) for d in shape.messages(1)]
        return None

    @staticmethod
    def _dimension(dimension):
        if dimension.all(1):
            return dimension.integer(1)
        return dimension.text(2) or None


class Graph(Message):
    name = text_field(2)

    @property
    def nodes(self):
        return self.messages(1, Node)

    @property
    def initializers(self):
        return self.messages(5, Tensor)

    @property
    def inputs(self):
        return self.messages(11, ValueInfo)

    @property
    def outputs(self):
        return self.messages(12, ValueInfo)

    @property
    def value_infos(self):
        return self.messages(13, ValueInfo)


class Function(Message):
    name = text_field(1)
    inputs = property(lambda self: self.texts(4), lambda self, v: self.set_texts(4, v))
    outputs = property(lambda self: self.texts(5), lambda self, v: self.set_texts(5, v))

    @property
    def nodes(self):
        return self.messages(7, Node)

    @property
    def value_infos(self):
        return self.messages(12, ValueInfo)


class Model(Message):
    @property
    def graph(self):
        return self.messages(7, Graph)[0]

    @property
    def functions(self):
        return self.messages(25, Function)

    @property
    def opset(self):
        for entry in self.messages(8):
            if entry.text(1) in ("", "ai.onnx"):
                return entry.integer(2)
        return 0

    @property
    def metadata(self):
        return {e.text(1): e.text(2) for e in self.messages(14)}


def parse(data):
    model = Model(data)
    if not model.messages(7, Graph):
        raise WireError("no graph: not an ONNX model")
    return model


def load(path):
    with open(path, "rb") as file:
        try:
            return parse(file.read())
        except WireError as error:
            raise WireError(f"{path}: {error}") from None


def save(model, path):
    data = model.bytes()
    with open(path, "wb") as file:
        file.write(data)
