// Access to a node's attributes and operands.

#include "Node.h"

#include "Metadata.h"

#include <onnx/onnx_pb.h>

using llvm::ArrayRef;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

Node::Node(Model &model, const FlatNode &flat, ArrayRef<Operand> inputs,
           mlir::OpBuilder &builder,
           std::function<Expected<mlir::Value>(const TensorRef &)> argument)
    : Build(builder,
            locationOf(builder.getContext(), flat.name, sourceOf(*flat.proto)),
            std::move(argument)),
      model(model), flat(flat), inputs(inputs) {
  results.resize(flat.proto->output_size());
}

StringRef Node::opType() const { return proto().op_type(); }

bool Node::has(size_t index) const {
  return index < inputs.size() && !proto().input(index).empty();
}

size_t Node::numOutputs() const { return results.size(); }

bool Node::wants(size_t index) const {
  return index < results.size() && !proto().output(index).empty();
}

void Node::set(size_t index, Operand operand) {
  if (index < results.size())
    results[index] = std::move(operand);
}

const ::onnx::AttributeProto *Node::attribute(StringRef name) const {
  for (const ::onnx::AttributeProto &attribute : proto().attribute())
    if (attribute.name() == name)
      return &attribute;
  return nullptr;
}

const Subgraph *Node::subgraph(llvm::StringRef name) const {
  auto it = flat.subgraphs.find(name.str());
  return it == flat.subgraphs.end() ? nullptr : it->second.get();
}

int64_t Node::intAttr(StringRef name, int64_t otherwise) const {
  const ::onnx::AttributeProto *found = attribute(name);
  return found ? found->i() : otherwise;
}

double Node::floatAttr(StringRef name, double otherwise) const {
  const ::onnx::AttributeProto *found = attribute(name);
  return found ? found->f() : otherwise;
}

std::string Node::stringAttr(StringRef name, StringRef otherwise) const {
  const ::onnx::AttributeProto *found = attribute(name);
  return found ? found->s() : otherwise.str();
}

std::optional<Shape> Node::intsAttr(StringRef name) const {
  const ::onnx::AttributeProto *found = attribute(name);
  if (!found)
    return std::nullopt;
  return Shape(found->ints().begin(), found->ints().end());
}

Expected<Shape> Node::knownInts(size_t index, StringRef what) const {
  if (!has(index))
    return reason("its input '" + what + "' is missing");
  const Operand &operand = inputs[index];
  if (!operand.host)
    return reason("its input '" + what +
                  "' depends on data, so shapes would not be static");
  // The limit on the length of lists of axes, sizes and the like. It is larger
  // than any rank and any number of outputs.
  constexpr int64_t longest = 65536;
  if (!isInteger(operand.type) || operand.rank() > 1 ||
      product(operand.shape) > longest)
    return reason("its input '" + what + "' is " + nameOf(operand.type) +
                  spell(operand.shape) + ", expected a list of integers");
  llvm::SmallVector<int64_t> values = operand.host->ints();
  return Shape(values.begin(), values.end());
}

Expected<std::optional<Shape>> Node::axes(int64_t since, size_t index) const {
  if (opset() < since)
    return intsAttr("axes");
  if (!has(index))
    return std::nullopt;
  Expected<Shape> known = knownInts(index, "axes");
  if (!known)
    return known.takeError();
  return std::optional<Shape>(*known);
}

Expected<int64_t> Node::axisOf(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    return reason("axis " + Twine(axis) + " is out of range for rank " +
                  Twine(rank));
  return axis < 0 ? axis + rank : axis;
}

Expected<Shape> Node::axesOf(ArrayRef<int64_t> axes, int64_t rank) {
  Shape result;
  for (int64_t axis : axes) {
    Expected<int64_t> index = axisOf(axis, rank);
    if (!index)
      return index.takeError();
    result.push_back(*index);
  }
  llvm::sort(result);
  if (std::unique(result.begin(), result.end()) != result.end())
    return reason("axes occur twice");
  return result;
}

llvm::Error Node::expectAttr(StringRef name, int64_t supported,
                             int64_t otherwise) const {
  int64_t value = intAttr(name, otherwise);
  if (value != supported)
    return reason("attribute " + name + " = " + Twine(value) +
                  " is not supported, expected " + Twine(supported));
  return llvm::Error::success();
}

/// Reads the elements of a tensor that the ONNX file stores in typed fields of
/// the message, rather than as raw bytes.
static Expected<HostTensor> fromFields(const TensorRef &tensor) {
  const ::onnx::TensorProto &proto = *tensor.proto;
  HostTensor result(tensor.type, tensor.shape);
  auto fill = [&](const auto &values) -> llvm::Error {
    if (values.size() != tensor.numElements())
      return reason("it holds " + Twine(values.size()) +
                    " elements, expected " + Twine(tensor.numElements()));
    for (int64_t i = 0; i < values.size(); ++i) {
      if (isFloat(tensor.type))
        result.setFloat(i, values[i]);
      else
        result.setInt(i, values[i]);
    }
    return llvm::Error::success();
  };
  llvm::Error error = llvm::Error::success();
  switch (tensor.type) {
  case Element::F32:
    error = fill(proto.float_data());
    break;
  case Element::F64:
    error = fill(proto.double_data());
    break;
  case Element::I64:
    error = fill(proto.int64_data());
    break;
  case Element::U32:
  case Element::U64:
    error = fill(proto.uint64_data());
    break;
  case Element::BF16:
  case Element::F16: { // their bits
    std::string bits;
    for (int32_t value : proto.int32_data()) {
      bits.push_back(char(value));
      bits.push_back(char(value >> 8));
    }
    return HostTensor::fromBytes(tensor.type, tensor.shape, bits);
  }
  default:
    error = fill(proto.int32_data());
  }
  if (error)
    return std::move(error);
  return result;
}

Expected<HostTensor> Node::contents(Model &model, const TensorRef &tensor) {
  if (tensor.numElements() > HostTensor::kMaxStored)
    return reason("it has too many elements to evaluate (" +
                  Twine(tensor.numElements()) + ")");
  if (!tensor.missing.empty())
    return reason(tensor.missing);
  StringRef bytes;
  if (tensor.inFile) {
    Expected<StringRef> read = model.read(tensor.range);
    if (!read)
      return read.takeError();
    bytes = *read;
  } else if (tensor.proto->has_raw_data()) {
    bytes = tensor.proto->raw_data();
  } else {
    return fromFields(tensor);
  }
  return HostTensor::fromBytes(tensor.type, tensor.shape, bytes);
}

} // namespace cleave::importer
