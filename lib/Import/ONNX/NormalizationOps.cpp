// Layer and root-mean-square normalisation.

#include "Families.h"

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

namespace {

/// The input of a norm, reshaped so that all normalized dimensions are merged
/// into the last one, as nn operations need it.
struct Rows {
  Operand input;
  Shape whole; // the input's shape
  Shape outer; // dimensions before the axis
};

Expected<Rows> toRows(Node &node) {
  const Operand &input = node.input(0);
  if (!isFloat(input.type))
    return reason("its input has type " + nameOf(input.type) +
                  ", expected floats");
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", -1), input.rank()));
  ArrayRef<int64_t> shape = input.shape;
  Rows rows;
  rows.whole = input.shape;
  rows.outer.assign(shape.begin(), shape.begin() + axis);
  Shape flat = rows.outer;
  flat.push_back(product(shape.drop_front(axis)));
  CLEAVE_TRY(flattened, node.reshape(input, flat));
  rows.input = flattened;
  return rows;
}

/// Returns the scale or shift of a norm, reshaped to a vector over the merged,
/// normalized dimensions.
Expected<Value> features(Node &node, size_t index, const Rows &rows,
                         double otherwise) {
  int64_t size = rows.input.shape.back();
  if (!node.has(index))
    return node.value(node.splat(rows.input.type, {size}, otherwise));
  ArrayRef<int64_t> inner =
      ArrayRef<int64_t>(rows.whole).drop_front(rows.outer.size());
  // A scale of ones or a shift of zeros may have been expanded to the whole
  // input's shape by the exporter. It becomes a vector again.
  if (std::optional<double> number = node.input(index).splatValue();
      number && node.input(index).type == rows.input.type) {
    CLEAVE_TRY(all, broadcastShapes(node.input(index).shape, rows.whole));
    if (all == rows.whole)
      return node.value(node.splat(rows.input.type, {size}, *number));
  }
  CLEAVE_TRY(shape, broadcastShapes(node.input(index).shape, inner));
  if (shape != Shape(inner) || node.input(index).type != rows.input.type)
    return reason("input " + Twine(index) + " has type " +
                  nameOf(node.input(index).type) +
                  spell(node.input(index).shape) + ", expected " +
                  nameOf(rows.input.type) + spell(inner));
  CLEAVE_TRY(wide, node.broadcast(node.input(index), shape));
  CLEAVE_TRY(flat, node.reshape(wide, {size}));
  return node.value(flat);
}

/// Sets a result of the node that is a statistic of a norm (the mean, or the
/// reciprocal of the standard deviation). In ONNX, a statistic keeps the
/// normalized dimensions with size 1.
Error setStatistics(Node &node, size_t output, Value value, const Rows &rows) {
  if (!node.wants(output))
    return Error::success();
  Shape shape = rows.outer;
  shape.resize(rows.whole.size(), 1);
  CLEAVE_TRY(wide, node.reshape(Operand(value), shape));
  node.set(output, wide);
  return Error::success();
}

RankedTensorType rowType(Value input) {
  auto type = cast<RankedTensorType>(input.getType());
  return type.clone(type.getShape().drop_back());
}

Error lowerLayerNorm(Node &node) {
  CLEAVE_TRY(rows, toRows(node));
  CLEAVE_TRY(scale, features(node, 1, rows, 1));
  CLEAVE_TRY(shift, features(node, 2, rows, 0));
  CLEAVE_TRY(input, node.value(rows.input));
  auto norm = nn::LayerNormOp::create(
      node.builder, node.loc, input.getType(), rowType(input), rowType(input),
      input, scale, shift, llvm::APFloat(node.floatAttr("epsilon", 1e-5f)));
  CLEAVE_TRY(result, node.reshape(Operand(norm.getResult()), rows.whole));
  node.set(0, result);
  if (Error error = setStatistics(node, 1, norm.getMean(), rows))
    return error;
  return setStatistics(node, 2, norm.getRstd(), rows);
}

Error lowerRmsNorm(Node &node) {
  CLEAVE_TRY(rows, toRows(node));
  CLEAVE_TRY(scale, features(node, 1, rows, 1));
  CLEAVE_TRY(input, node.value(rows.input));
  auto norm = nn::RmsNormOp::create(
      node.builder, node.loc, input.getType(), rowType(input), input, scale,
      llvm::APFloat(node.floatAttr("epsilon", 1e-5f)));
  CLEAVE_TRY(result, node.reshape(Operand(norm.getResult()), rows.whole));
  node.set(0, result);
  return Error::success();
}

} // namespace

void addNormalizationOps(std::vector<OnnxOp> &table) {
  // Graph optimizers fuse nodes to LayerNormalization even in files whose
  // operator set does not define this operator yet. So it is accepted in all
  // supported versions.
  table.push_back({"LayerNormalization", kOldest, kNewest, 1, "nn.layer_norm",
                   lowerLayerNorm, /*weightsFrom=*/1});
  table.push_back({"RMSNormalization", 23, kNewest, 1, "nn.rms_norm",
                   lowerRmsNorm, /*weightsFrom=*/1});
}

} // namespace cleave::importer
