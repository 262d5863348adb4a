// Verifiers of dropout and of operations on rows: norms, softmax,
// cross-entropy.

#include "cleave/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace cleave::nn;

/// Returns the type without its last dimension: [b, s, h] -> [b, s].
static RankedTensorType rowType(RankedTensorType type) {
  return RankedTensorType::get(type.getShape().drop_back(),
                               type.getElementType());
}

static LogicalResult expectType(Operation *op, StringRef name, Type found,
                                Type expected) {
  if (found == expected)
    return success();
  return op->emitOpError() << name << " has type " << found << ", expected "
                           << expected;
}

/// Checks the types of an operation that works along rows, that is, along the
/// last dimension of the input. Each of `features` must be a vector of the size
/// of that dimension, each of `statistics` must have one element per row, and
/// each of `whole` must have the shape of the input.
static LogicalResult
verifyRows(Operation *op, Value input,
           ArrayRef<std::pair<StringRef, Value>> features,
           ArrayRef<std::pair<StringRef, Value>> statistics,
           ArrayRef<std::pair<StringRef, Value>> whole) {
  auto type = cast<RankedTensorType>(input.getType());
  if (type.getRank() == 0)
    return op->emitOpError("input has no dimension to work along");
  auto feature =
      RankedTensorType::get(type.getShape().take_back(), type.getElementType());
  for (auto [name, value] : features)
    if (failed(expectType(op, name, value.getType(), feature)))
      return failure();
  for (auto [name, value] : statistics)
    if (failed(expectType(op, name, value.getType(), rowType(type))))
      return failure();
  for (auto [name, value] : whole)
    if (failed(expectType(op, name, value.getType(), type)))
      return failure();
  return success();
}

LogicalResult SoftmaxOp::verify() { // (S1)
  return verifyRows(*this, getInput(), {}, {}, {});
}

LogicalResult LayerNormOp::verify() { // (L1) (L2)
  return verifyRows(
      *this, getInput(), {{"scale", getScale()}, {"shift", getShift()}},
      {{"mean", getMean()}, {"rstd", getRstd()}}, {{"result", getResult()}});
}

LogicalResult LayerNormGradOp::verify() { // (L1)
  return verifyRows(*this, getInput(), {{"scale", getScale()}},
                    {{"mean", getMean()}, {"rstd", getRstd()}},
                    {{"cotangent", getCotangent()}, {"result", getResult()}});
}

LogicalResult RmsNormOp::verify() { // (R1) (R2)
  return verifyRows(*this, getInput(), {{"scale", getScale()}},
                    {{"rstd", getRstd()}}, {{"result", getResult()}});
}

LogicalResult RmsNormGradOp::verify() { // (R1)
  return verifyRows(*this, getInput(), {{"scale", getScale()}},
                    {{"rstd", getRstd()}},
                    {{"cotangent", getCotangent()}, {"result", getResult()}});
}

/// Checks constraint (X1) of nn.cross_entropy: the shape of the labels is that
/// of the logits without the last dimension (classes).
static LogicalResult verifyLabels(Operation *op, Value logits, Value labels) {
  auto type = cast<RankedTensorType>(labels.getType());
  ArrayRef<int64_t> want =
      cast<RankedTensorType>(logits.getType()).getShape().drop_back();
  return expectType(op, "labels", type, type.clone(want));
}

LogicalResult CrossEntropyOp::verify() { // (X1)
  if (failed(verifyRows(*this, getLogits(), {},
                        {{"loss", getLoss()}, {"lse", getLse()}}, {})))
    return failure();
  return verifyLabels(*this, getLogits(), getLabels());
}

LogicalResult CrossEntropyGradOp::verify() { // (X1)
  if (failed(verifyRows(*this, getLogits(), {},
                        {{"cotangent", getCotangent()}, {"lse", getLse()}},
                        {{"result", getResult()}})))
    return failure();
  return verifyLabels(*this, getLogits(), getLabels());
}

LogicalResult DropoutOp::verify() {
  auto type = cast<RankedTensorType>(getInput().getType());
  double p = getP().convertToDouble();
  if (!(p >= 0 && p < 1)) // (D1)
    return emitOpError("p is ") << p << ", expected 0 <= p < 1";
  auto ids = cast<RankedTensorType>(getSampleIds().getType());
  if (type.getRank() == 0 || ids.getShape() != type.getShape().take_front())
    return emitOpError("sample ids have type ")
           << ids << ", expected one per sample of " << type; // (D1)
  ArrayRef<int64_t> global = getGlobalShape();
  if (static_cast<int64_t>(global.size()) != type.getRank()) // (D2)
    return emitOpError("global_shape has ")
           << global.size() << " entries for a rank-" << type.getRank()
           << " input";
  int64_t sample = 1;
  for (int64_t size : global.drop_front())
    if (size < 1 || (sample *= size) >= (int64_t(1) << 32)) // (D2)
      return emitOpError("global_shape must have positive sizes and fewer than "
                         "2^32 elements in a sample");
  if (size_t count = getOffsets().size();
      count && count != global.size() - 1) // (D3)
    return emitOpError("has ")
           << count << " offsets, expected none or " << global.size() - 1;
  return success();
}
