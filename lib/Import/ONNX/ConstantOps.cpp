// Operators that create tensors from attributes and shapes.

#include "Families.h"

#include <onnx/onnx_pb.h>

#include <cmath>

using llvm::Error;
using llvm::Expected;

namespace cleave::importer {

namespace {

/// Reads the elements of a tensor that is an attribute of a node. Refuses float
/// tensors above 4096 bytes.
Expected<Operand> ofTensor(Node &node, const ::onnx::TensorProto &proto) {
  CLEAVE_TRY(tensor, node.model.describe(proto));
  if (isFloat(tensor.type) &&
      tensor.numElements() * byteSize(tensor.type) > 4096)
    return reason("it holds a float constant of " +
                  llvm::Twine(tensor.numElements()) +
                  " elements; export such tensors as initializers");
  CLEAVE_TRY(contents, Node::contents(node.model, tensor));
  return Operand(contents);
}

Error lowerConstant(Node &node) {
  for (const ::onnx::AttributeProto &attribute : node.proto().attribute()) {
    const std::string &name = attribute.name();
    if (name == "value") {
      CLEAVE_TRY(operand, ofTensor(node, attribute.t()));
      node.set(0, operand);
    } else if (name == "value_int") {
      node.set(0, Operand(HostTensor::ofInt(attribute.i())));
    } else if (name == "value_float") {
      node.set(0, node.splat(Element::F32, {}, attribute.f()));
    } else if (name == "value_ints") {
      node.set(0, Operand(HostTensor::ofInts(llvm::ArrayRef<int64_t>(
                      attribute.ints().data(), attribute.ints_size()))));
    } else if (name == "value_floats") {
      HostTensor tensor(Element::F32, {attribute.floats_size()});
      for (int i = 0; i < attribute.floats_size(); ++i)
        tensor.setFloat(i, attribute.floats(i));
      node.set(0, Operand(tensor));
    } else {
      return reason("attribute " + name + " is not supported");
    }
    return Error::success();
  }
  return reason("it has no value");
}

Error lowerConstantOfShape(Node &node) {
  CLEAVE_TRY(shape, node.knownInts(0, "shape"));
  for (int64_t size : shape)
    if (size < 0)
      return reason("its shape " + spell(shape) + " has a negative size");
  HostTensor value(Element::F32, {});
  if (const ::onnx::AttributeProto *attribute = node.attribute("value")) {
    CLEAVE_TRY(operand, ofTensor(node, attribute->t()));
    if (product(operand.shape) != 1)
      return reason("attribute value is not one element");
    value = operand.host->reshaped({});
  }
  node.set(0, Operand(value.broadcastTo(shape)));
  return Error::success();
}

Error lowerShape(Node &node) {
  llvm::ArrayRef<int64_t> shape = node.input(0).shape;
  int64_t rank = shape.size();
  auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  int64_t start = clamp(node.intAttr("start", 0));
  int64_t end = clamp(node.intAttr("end", rank));
  node.set(0, Operand(HostTensor::ofInts(
                  shape.slice(start, std::max<int64_t>(end - start, 0)))));
  return Error::success();
}

Error lowerSize(Node &node) {
  node.set(0, Operand(HostTensor::ofInt(product(node.input(0).shape))));
  return Error::success();
}

/// Evaluates Range for integers. Differences are computed exactly, in 128 bits,
/// because they may need 65 bits.
Error rangeOfInts(Node &node, int64_t from, int64_t to, int64_t step) {
  __int128 distance = __int128(to) - from, ahead = step;
  if (ahead < 0) {
    distance = -distance;
    ahead = -ahead;
  }
  __int128 count = distance > 0 ? (distance + ahead - 1) / ahead : 0;
  if (count > HostTensor::kMaxElements)
    return reason("it has too many elements");
  HostTensor result(node.input(0).type, {int64_t(count)});
  for (int64_t i = 0; i < int64_t(count); ++i)
    result.setInt(i, int64_t(__int128(from) + __int128(i) * step));
  node.set(0, Operand(result));
  return Error::success();
}

Error lowerRange(Node &node) {
  const Operand &start = node.input(0);
  std::optional<double> from = start.splatValue();
  std::optional<double> to = node.input(1).splatValue();
  std::optional<double> step = node.input(2).splatValue();
  if (!from || !to || !step)
    return reason("its bounds depend on data, so shapes would not be static");
  if (*step == 0)
    return reason("its step is 0");
  if (isInteger(start.type))
    return rangeOfInts(node, *start.splatInt(), *node.input(1).splatInt(),
                       *node.input(2).splatInt());
  double count = std::max(0.0, std::ceil((*to - *from) / *step));
  if (!(count <= double(HostTensor::kMaxElements)))
    return reason("it has too many elements");
  HostTensor result(start.type, {int64_t(count)});
  for (int64_t i = 0; i < int64_t(count); ++i)
    result.setFloat(i, *from + double(i) * *step);
  node.set(0, Operand(result));
  return Error::success();
}

Error lowerEyeLike(Node &node) {
  const Operand &like = node.input(0);
  if (like.rank() != 2)
    return reason("its input has rank " + llvm::Twine(like.rank()) +
                  ", expected 2");
  if (product(like.shape) > HostTensor::kMaxElements)
    return reason("a constant of shape " + spell(like.shape) +
                  " is too large to evaluate");
  int64_t offset = node.intAttr("k", 0);
  HostTensor result(
      static_cast<Element>(node.intAttr("dtype", int64_t(like.type))),
      like.shape);
  for (int64_t i = 0; i < like.shape[0]; ++i)
    if (i + offset >= 0 && i + offset < like.shape[1])
      result.setInt(i * like.shape[1] + i + offset, 1);
  node.set(0, Operand(result));
  return Error::success();
}

} // namespace

void addConstantOps(std::vector<OnnxOp> &table) {
  table.push_back(
      {"Constant", 11, kNewest, 1, "arith.constant", lowerConstant});
  table.push_back({"ConstantOfShape", kOldest, kNewest, 1, "arith.constant",
                   lowerConstantOfShape});
  table.push_back(
      {"EyeLike", kOldest, kNewest, 2, "arith.constant", lowerEyeLike});
  table.push_back({"Range", kOldest, kNewest, 1, "nn.iota", lowerRange});
  table.push_back({"Shape", kOldest, kNewest, 1, "", lowerShape});
  table.push_back({"Size", kOldest, kNewest, 1, "", lowerSize});
}

} // namespace cleave::importer
