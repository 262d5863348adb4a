// Verifiers of attention and rotary positions.

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/IR/Positions.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::nn;

LogicalResult RotaryOp::verify() {
  ArrayRef<int64_t> input = shapeOf(getInput()), table = shapeOf(getCos());
  if (input.size() < 3 || input.back() % 2) // (R1)
    return emitOpError("input type ")
           << getInput().getType() << " is not [b, s, ..., d] with even d";
  SmallVector<int64_t> shared = {input[1], input.back() / 2};
  SmallVector<int64_t> perSample = {input[0], input[1], input.back() / 2};
  if (table != ArrayRef(shared) && table != ArrayRef(perSample)) // (R2)
    return emitOpError("cos and sin have type ")
           << getCos().getType() << ", expected sizes [" << shared << "] or ["
           << perSample << "]";
  return success();
}

bool cleave::nn::countsUp(Value positions) {
  auto isLast = [](int64_t dim, Value value) {
    return dim + 1 == cast<RankedTensorType>(value.getType()).getRank();
  };
  while (auto broadcast = positions.getDefiningOp<BroadcastOp>()) {
    ArrayRef<int64_t> dims = broadcast.getDims();
    if (dims.empty() || !isLast(dims.back(), positions))
      return false;
    positions = broadcast.getInput();
  }
  auto iota = positions.getDefiningOp<IotaOp>();
  return iota && isLast(iota.getDim(), positions);
}

namespace {
/// The operands and attributes that `attention` and `attention_grad` share.
struct Operands {
  Value query, key, value, result, lse, qPositions, kPositions, qSegments,
      kSegments, keyMask, bias, dropoutKeys, qIndex, kIndex;
  int64_t window;
  double softcap, dropout;
};
} // namespace

/// (A4)
static LogicalResult verifyDropout(Operation *op, const Operands &operands) {
  bool drops = bool(operands.dropoutKeys);
  if (drops != bool(operands.qIndex) || drops != bool(operands.kIndex))
    return op->emitOpError("has only some of dropout's keys, query indices and "
                           "key indices");
  double p = operands.dropout;
  if (drops ? !(p > 0 && p < 1) : p != 0)
    return op->emitOpError("has dropout p = ")
           << p << ", expected "
           << (drops ? "more than 0 and less than 1" : "0 without its keys");
  if (!drops)
    return success();
  ArrayRef<int64_t> query = shapeOf(operands.query);
  auto expect = [&](StringRef name, Value operand, ArrayRef<int64_t> want) {
    if (shapeOf(operand) == want)
      return success();
    return LogicalResult(op->emitOpError()
                         << name << " have sizes [" << shapeOf(operand)
                         << "], expected [" << want << "]");
  };
  return failure(
      failed(expect("dropout's keys", operands.dropoutKeys,
                    {query[0], query[2], query[3]})) ||
      failed(expect("dropout's query indices", operands.qIndex, {query[1]})) ||
      failed(expect("dropout's key indices", operands.kIndex,
                    {shapeOf(operands.key)[1]})));
}

/// (A1) to (A4)
static LogicalResult verifyAttention(Operation *op, const Operands &operands) {
  ArrayRef<int64_t> query = shapeOf(operands.query),
                    key = shapeOf(operands.key),
                    value = shapeOf(operands.value);
  if (query.size() != 5 || key.size() != 4 || value.size() != 4)
    return op->emitOpError("expected query of rank 5, key and value of rank 4, "
                           "found ")
           << query.size() << ", " << key.size() << ", " << value.size();
  int64_t b = query[0], s = query[1], n = query[2], g = query[3], d = query[4];
  int64_t t = key[1], e = value[3];
  auto expect = [&](StringRef name, Value operand,
                    ArrayRef<int64_t> want) -> LogicalResult {
    if (shapeOf(operand) == want)
      return success();
    return op->emitOpError() << name << " has sizes [" << shapeOf(operand)
                             << "], expected [" << want << "]";
  };
  if (failed(expect("key", operands.key, {b, t, n, d})) ||
      failed(expect("value", operands.value, {b, t, n, e})) ||
      failed(expect("result", operands.result, {b, s, n, g, e})) ||
      failed(expect("lse", operands.lse, {b, n, g, s})))
    return failure();
  if (!operands.qPositions != !operands.kPositions) // (A2)
    return op->emitOpError("has positions of only one of query and key");
  if (!operands.qSegments != !operands.kSegments)
    return op->emitOpError("has segments of only one of query and key");
  if (operands.window < 0) // (A3)
    return op->emitOpError("has window = ")
           << operands.window << ", expected at least 1, or 0 for none";
  if (!(operands.softcap >= 0))
    return op->emitOpError("has softcap = ")
           << operands.softcap << ", expected more than 0, or 0 for none";
  auto expectPositions = [&](StringRef name, Value positions,
                             int64_t length) -> LogicalResult {
    ArrayRef<int64_t> shape = shapeOf(positions);
    if (shape == ArrayRef<int64_t>({length}))
      return success();
    return expect(name, positions, {b, length});
  };
  if (operands.qPositions &&
      (failed(expectPositions("query positions", operands.qPositions, s)) ||
       failed(expectPositions("key positions", operands.kPositions, t))))
    return failure();
  if (operands.qSegments &&
      (failed(expectPositions("query segments", operands.qSegments, s)) ||
       failed(expectPositions("key segments", operands.kSegments, t))))
    return failure();
  if (operands.keyMask && failed(expect("key_mask", operands.keyMask, {b, t})))
    return failure();
  if (operands.bias) {
    ArrayRef<int64_t> bias = shapeOf(operands.bias);
    bool fits = bias.size() == 5 && bias[3] == s && bias[4] == t;
    for (auto [have, want] : llvm::zip(bias, SmallVector<int64_t>{b, n, g}))
      fits &= have == 1 || have == want;
    if (!fits)
      return op->emitOpError("bias has sizes [")
             << bias << "], expected [" << b << "|1, " << n << "|1, " << g
             << "|1, " << s << ", " << t << "]";
  }
  return verifyDropout(op, operands);
}

LogicalResult AttentionOp::verify() {
  return verifyAttention(
      *this,
      {getQuery(), getKey(), getValue(), getResult(), getLse(), getQPositions(),
       getKPositions(), getQSegments(), getKSegments(), getKeyMask(), getBias(),
       getDropoutKeys(), getQIndex(), getKIndex(), int64_t(getWindow()),
       getSoftcap().convertToDouble(), getDropout().convertToDouble()});
}

LogicalResult AttentionGradOp::verify() {
  auto expect = [&](StringRef name, Value found, Value like) -> LogicalResult {
    if (found.getType() == like.getType())
      return success();
    return emitOpError() << name << " has type " << found.getType()
                         << ", expected " << like.getType();
  };
  if (failed(expect("cotangent", getCotangent(), getOutput())) ||
      failed(expect("d_query", getDQuery(), getQuery())) ||
      failed(expect("d_key", getDKey(), getKey())) ||
      failed(expect("d_value", getDValue(), getValue())))
    return failure();
  return verifyAttention(
      *this,
      {getQuery(), getKey(), getValue(), getOutput(), getLse(), getQPositions(),
       getKPositions(), getQSegments(), getKSegments(), getKeyMask(), getBias(),
       getDropoutKeys(), getQIndex(), getKIndex(), int64_t(getWindow()),
       getSoftcap().convertToDouble(), getDropout().convertToDouble()});
}
