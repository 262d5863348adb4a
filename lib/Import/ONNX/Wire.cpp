// Walks and rewrites protobuf messages without parsing them entirely.

#include "Wire.h"

#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace cleave::importer {

bool WireReader::readVarint(uint64_t &value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    uint8_t byte = rest.front();
    rest = rest.drop_front();
    value |= uint64_t(byte & 0x7f) << shift;
    if (!(byte & 0x80))
      return true;
  }
  broken = true;
  return false;
}

bool WireReader::next(WireField &field) {
  if (rest.empty() || broken)
    return false;
  const char *begin = rest.data();
  uint64_t tag;
  if (!readVarint(tag))
    return false;
  field.number = tag >> 3;
  field.type = tag & 7;
  field.payload = {};
  field.varint = 0;
  uint64_t length = 0;
  switch (field.type) {
  case 0:
    if (!readVarint(field.varint))
      return false;
    break;
  case 1:
    length = 8;
    break;
  case 2:
    if (!readVarint(length))
      return false;
    break;
  case 5:
    length = 4;
    break;
  default: // groups are not used by ONNX
    broken = true;
    return false;
  }
  if (length > rest.size() || field.number == 0) {
    broken = true;
    return false;
  }
  field.payload = rest.take_front(length);
  rest = rest.drop_front(length);
  field.raw = StringRef(begin, rest.data() - begin);
  return true;
}

void appendVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(char(value | 0x80));
  out.push_back(char(value));
}

void appendBytesField(std::string &out, uint32_t number, StringRef bytes) {
  appendVarint(out, uint64_t(number) << 3 | 2);
  appendVarint(out, bytes.size());
  out.append(bytes.data(), bytes.size());
}

void appendVarintField(std::string &out, uint32_t number, uint64_t value) {
  appendVarint(out, uint64_t(number) << 3);
  appendVarint(out, value);
}

namespace {
/// Field numbers of onnx.proto.
enum : uint32_t {
  ModelGraph = 7,
  ModelFunctions = 25,
  GraphNode = 1,
  GraphInitializer = 5,
  NodeAttribute = 5,
  FunctionNode = 7,
  AttributeTensor = 5,
  AttributeGraph = 6,
  TensorDataType = 2,
  TensorFloatData = 4,
  TensorRawData = 9,
  TensorDoubleData = 10,
  TensorExternalData = 13,
  TensorDataLocation = 14,
  EntryKey = 1,
  EntryValue = 2,
};

/// A tensor that does not hold floats stays in the parsed protobuf message if
/// it has at most this many bytes. The data of larger tensors and of all float
/// tensors is replaced by a reference to its bytes in the ONNX file.
constexpr size_t kInlineBytes = 4096;

class Stripper {
public:
  explicit Stripper(StringRef file) : file(file) {}

  bool model(StringRef bytes, std::string &out) {
    return rewrite(bytes, out, [&](const WireField &field, std::string &inner) {
      if (field.number == ModelGraph)
        return graph(field.payload, inner);
      if (field.number == ModelFunctions)
        return nodes(field.payload, inner, FunctionNode);
      return Keep;
    });
  }

private:
  enum Outcome { Keep, Replaced, Broken };

  template <class Body>
  bool rewrite(StringRef bytes, std::string &out, Body body) {
    WireReader reader(bytes);
    WireField field;
    std::string inner;
    while (reader.next(field)) {
      inner.clear();
      Outcome outcome = field.type == 2 ? body(field, inner) : Keep;
      if (outcome == Broken)
        return false;
      if (outcome == Keep)
        out.append(field.raw.data(), field.raw.size());
      else
        appendBytesField(out, field.number, inner);
    }
    return !reader.failed();
  }
  static Outcome result(bool good) { return good ? Replaced : Broken; }

  Outcome graph(StringRef bytes, std::string &out) {
    return result(
        rewrite(bytes, out, [&](const WireField &field, std::string &inner) {
          if (field.number == GraphInitializer)
            return tensor(field.payload, inner);
          if (field.number == GraphNode)
            return node(field.payload, inner);
          return Keep;
        }));
  }
  Outcome nodes(StringRef bytes, std::string &out, uint32_t number) {
    return result(
        rewrite(bytes, out, [&](const WireField &field, std::string &inner) {
          return field.number == number ? node(field.payload, inner) : Keep;
        }));
  }
  Outcome node(StringRef bytes, std::string &out) {
    return result(
        rewrite(bytes, out, [&](const WireField &field, std::string &inner) {
          return field.number == NodeAttribute ? attribute(field.payload, inner)
                                               : Keep;
        }));
  }
  Outcome attribute(StringRef bytes, std::string &out) {
    return result(
        rewrite(bytes, out, [&](const WireField &field, std::string &inner) {
          if (field.number == AttributeTensor)
            return tensor(field.payload, inner);
          if (field.number == AttributeGraph)
            return graph(field.payload, inner);
          return Keep;
        }));
  }

  /// Replaces the data of a tensor by an external data entry. Leaves the tensor
  /// unchanged unless it has exactly one contiguous data field that is large or
  /// holds floats.
  Outcome tensor(StringRef bytes, std::string &out) {
    WireReader reader(bytes);
    WireField field;
    uint64_t type = 0;
    StringRef data;
    unsigned dataFields = 0;
    while (reader.next(field)) {
      if (field.number == TensorDataType)
        type = field.varint;
      bool packed = field.type == 2 && (field.number == TensorRawData ||
                                        field.number == TensorFloatData ||
                                        field.number == TensorDoubleData);
      if (packed && !field.payload.empty()) {
        data = field.payload;
        ++dataFields;
      }
    }
    if (reader.failed())
      return Broken;
    // f32, f16, f64, bf16
    bool isFloat = type == 1 || type == 10 || type == 11 || type == 16;
    if (dataFields != 1 || (!isFloat && data.size() <= kInlineBytes))
      return Keep;
    WireReader again(bytes);
    while (again.next(field))
      if (field.payload.data() != data.data() || field.type != 2)
        out.append(field.raw.data(), field.raw.size());
    auto entry = [&](StringRef key, const std::string &value) {
      std::string message;
      appendBytesField(message, EntryKey, key);
      appendBytesField(message, EntryValue, value);
      appendBytesField(out, TensorExternalData, message);
    };
    entry("location", kSelfLocation.str());
    entry("offset", utostr(data.data() - file.data()));
    entry("length", utostr(data.size()));
    appendVarintField(out, TensorDataLocation, 1);
    return Replaced;
  }

  StringRef file;
};
} // namespace

bool stripTensors(StringRef model, std::string &stripped) {
  return Stripper(model).model(model, stripped);
}

} // namespace cleave::importer
