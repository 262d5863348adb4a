// Verifiers of grouped products, which multiply rows by the matrices of their
// experts, and of nn.position_in_expert, which numbers the rows of each expert.

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::nn;

/// Checks that `rows` has the shape of `ids` followed by one more dimension, of
/// size `last`.
static LogicalResult expectRows(Operation *op, StringRef name, Value rows,
                                Value ids, int64_t last) {
  SmallVector<int64_t> want(shapeOf(ids));
  want.push_back(last);
  if (shapeOf(rows) == ArrayRef(want))
    return success();
  return op->emitOpError() << name << " has sizes [" << shapeOf(rows)
                           << "], expected [" << want << "]";
}

static LogicalResult expectMatrices(Operation *op, StringRef name,
                                    ArrayRef<int64_t> sizes) {
  if (sizes.size() == 3)
    return success();
  return op->emitOpError() << name << " has rank " << sizes.size()
                           << ", expected 3: [matrices, rows, columns]";
}

/// Checks (GD2) and (GO2).
static LogicalResult expectProductType(Operation *op) {
  Type operand = getElementTypeOrSelf(op->getOperand(0)),
       result = getElementTypeOrSelf(op->getResult(0));
  if (isProductType(operand, result))
    return success();
  return op->emitOpError("result has element type ")
         << result << ", expected " << operand
         << (operand.isBF16() ? " or 'f32'" : "");
}

LogicalResult GroupedDotOp::verify() { // (GD1)
  if (failed(expectProductType(*this)))
    return failure();
  ArrayRef<int64_t> matrices = shapeOf(getMatrices());
  if (failed(expectMatrices(*this, "matrices", matrices)))
    return failure();
  int64_t k = matrices[getTransposed() ? 2 : 1],
          n = matrices[getTransposed() ? 1 : 2];
  if (failed(expectRows(*this, "input", getInput(), getIds(), k)))
    return failure();
  return expectRows(*this, "result", getResult(), getIds(), n);
}

LogicalResult GroupedOuterOp::verify() { // (GO1)
  if (failed(expectProductType(*this)))
    return failure();
  ArrayRef<int64_t> matrices = shapeOf(getResult());
  if (failed(expectMatrices(*this, "result", matrices)) ||
      failed(expectRows(*this, "left", getLeft(), getIds(), matrices[1])))
    return failure();
  return expectRows(*this, "right", getRight(), getIds(), matrices[2]);
}

LogicalResult PositionInExpertOp::verify() {
  ArrayRef<int64_t> ids = shapeOf(getIds());
  if (ids.size() != 2 && ids.size() != 3) // (PE1)
    return emitOpError("ids have sizes [")
           << ids << "], expected [b, s, k], or [b, s] of one slot each";
  auto expect = [&](StringRef name, Value value,
                    ArrayRef<int64_t> want) -> LogicalResult {
    if (shapeOf(value) == want)
      return success();
    return emitOpError() << name << " have sizes [" << shapeOf(value)
                         << "], expected [" << want << "]";
  };
  if (shapeOf(getPositions()) != ids.slice(1, 1) &&
      failed(expect("positions", getPositions(), ids.take_front(2))))
    return failure();
  if (!getLoads() != !getSamples()) // (PE2)
    return emitOpError("has only one of loads and samples");
  if (!getLoads())
    return success();
  ArrayRef<int64_t> loads = shapeOf(getLoads());
  int64_t experts = getExperts();
  if (loads.size() != 2 || loads[1] != experts)
    return emitOpError("loads have sizes [")
           << loads << "], expected [n, " << experts << "]";
  return expect("samples", getSamples(), ids.take_front(1));
}
