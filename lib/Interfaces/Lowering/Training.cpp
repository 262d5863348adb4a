// Dropout and optimizers.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::lowering;

namespace {

/// Returns the first word of Philox-4x32-10 (Salmon et al., 2011) for each
/// element of i32 tensors.
Value philoxFirstWord(TensorExpr &e, Value counter[4], Value key[2]) {
  RankedTensorType type = e.typeOf(counter[0]);
  Value multiplier0 = e.splatInt(type, int32_t(0xD2511F53u)),
        multiplier1 = e.splatInt(type, int32_t(0xCD9E8D57u)),
        weyl0 = e.splatInt(type, int32_t(0x9E3779B9u)),
        weyl1 = e.splatInt(type, int32_t(0xBB67AE85u));
  Value c[4] = {counter[0], counter[1], counter[2], counter[3]};
  Value k[2] = {key[0], key[1]};
  auto exclusiveOr = [&](Value a, Value b) {
    return e.make<arith::XOrIOp>(a, b);
  };
  for (int round = 0; round < 10; ++round) {
    auto product0 =
        arith::MulUIExtendedOp::create(e.builder, e.loc, multiplier0, c[0]);
    auto product1 =
        arith::MulUIExtendedOp::create(e.builder, e.loc, multiplier1, c[2]);
    Value next0 = exclusiveOr(exclusiveOr(product1.getHigh(), c[1]), k[0]);
    Value next2 = exclusiveOr(exclusiveOr(product0.getHigh(), c[3]), k[1]);
    c[0] = next0;
    c[1] = product1.getLow();
    c[2] = next2;
    c[3] = product0.getLow();
    k[0] = e.make<arith::AddIOp>(k[0], weyl0);
    k[1] = e.make<arith::AddIOp>(k[1], weyl1);
  }
  return c[0];
}

/// The low or high 32-bit word of integers of any width.
Value word(TensorExpr &e, Value value, bool high = false) {
  RankedTensorType type = e.typeOf(value);
  RankedTensorType words = type.clone(e.builder.getI32Type());
  if (type.getElementTypeBitWidth() == 32)
    return high ? e.make<arith::ShRSIOp>(value, e.splatInt(type, 31)) : value;
  if (high)
    value = e.make<arith::ShRUIOp>(value, e.splatInt(type, 32));
  return e.make<arith::TruncIOp>(words, value);
}

Decomposed dropout(nn::DropoutOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  RankedTensorType words = type.clone(e.builder.getI32Type());
  double p = op.getP().convertToDouble();

  // The row-major index of each element in its sample, modulo 2^32, computed
  // from indices of the unsharded tensor.
  ArrayRef<int64_t> global = op.getGlobalShape();
  Value index = e.splatInt(words, 0);
  int64_t stride = 1;
  for (int64_t dim = type.getRank() - 1; dim > 0; --dim) {
    Value position = e.make<nn::IotaOp>(words, dim);
    if (!op.getOffsets().empty()) {
      Value offset = word(e, op.getOffsets()[dim - 1]);
      position = e.make<arith::AddIOp>(position, e.everywhere(offset, words));
    }
    Value scaled = e.make<arith::MulIOp>(
        position, e.splatInt(words, static_cast<int32_t>(stride)));
    index = e.make<arith::AddIOp>(index, scaled);
    stride *= global[dim];
  }
  Value sample = e.broadcast(word(e, op.getSampleIds()), words, {0});
  Value step = e.everywhere(word(e, op.getStep()), words);
  Value opId = e.splatInt(words, static_cast<int32_t>(op.getOpId()));
  Value counter[4] = {index, sample, step, opId};
  Value key[2] = {e.everywhere(word(e, op.getSeed()), words),
                  e.everywhere(word(e, op.getSeed(), true), words)};
  Value bits = philoxFirstWord(e, counter, key);

  // The condition bits / 2^32 >= p in integers is bits >= ceil(p * 2^32). For p
  // close to 1 the right side may be 2^32; then all elements are dropped.
  uint64_t threshold = static_cast<uint64_t>(std::ceil(p * 4294967296.0));
  if (threshold > 0xFFFFFFFFull)
    return SmallVector<Value>{e.splat(x, 0.0)};
  Value keep = e.compare(arith::CmpIPredicate::uge, bits,
                         e.splatInt(words, static_cast<int32_t>(threshold)));
  Value scaled = e.mul(x, 1.0 / (1.0 - p));
  return SmallVector<Value>{e.select(keep, scaled, e.splat(x, 0.0))};
}

/// Returns 1 - beta^step, computed in double and rounded to `type`. In the
/// first training steps the difference is small and would lose half of its
/// digits in single precision.
Value biasCorrection(TensorExpr &e, double beta, Value step, Type type) {
  auto scalar = RankedTensorType::get({}, e.builder.getF64Type());
  if (beta == 0.0)
    return e.splat(RankedTensorType::get({}, type), 1.0);
  Value count = e.make<arith::SIToFPOp>(scalar, step);
  Value power = e.exp(e.mul(count, std::log(beta)));
  Value correction = e.sub(e.splat(scalar, 1.0), power);
  if (type.isF64())
    return correction;
  return e.make<arith::TruncFOp>(RankedTensorType::get({}, type), correction);
}

Decomposed adamW(nn::AdamWOp op, TensorExpr &e) {
  Value p = op.getParameter();
  RankedTensorType type = e.typeOf(p);
  Type element = type.getElementType();
  // Scalars, such as the learning rate, may have a wider type than the
  // parameters and are then converted.
  auto scalar = [&](Value value) {
    Type have = e.typeOf(value).getElementType();
    auto wanted = RankedTensorType::get({}, element);
    if (have == element)
      return value;
    if (have.getIntOrFloatBitWidth() > element.getIntOrFloatBitWidth())
      return e.make<arith::TruncFOp>(wanted, value);
    return e.make<arith::ExtFOp>(wanted, value);
  };
  double beta1 = op.getBeta1().convertToDouble(),
         beta2 = op.getBeta2().convertToDouble(),
         epsilon = op.getEpsilon().convertToDouble(),
         decay = op.getWeightDecay().convertToDouble();
  Value lr = scalar(op.getLr());
  Value correction1 = biasCorrection(e, beta1, op.getStep(), element);
  Value correction2 = biasCorrection(e, beta2, op.getStep(), element);
  Value stepSize = e.div(lr, correction1);
  Value root2 = e.make<math::SqrtOp>(correction2);
  Value keep = e.sub(e.splat(lr, 1.0), e.mul(lr, decay));

  Value g = e.mul(op.getGradient(), e.everywhere(scalar(op.getScale()), type));
  p = e.mul(p, e.everywhere(keep, type));
  Value m = e.add(e.mul(op.getM(), beta1), e.mul(g, 1.0 - beta1));
  Value v = e.add(e.mul(op.getV(), beta2), e.mul(e.mul(g, g), 1.0 - beta2));
  Value root = e.div(e.make<math::SqrtOp>(v), e.everywhere(root2, type));
  Value update = e.div(m, e.add(root, epsilon));
  p = e.sub(p, e.mul(e.everywhere(stepSize, type), update));
  return SmallVector<Value>{p, m, v};
}

Decomposed sgd(nn::SgdOp op, TensorExpr &e) {
  Value p = op.getParameter();
  RankedTensorType type = e.typeOf(p);
  Type element = type.getElementType();
  auto everywhere = [&](Value value) {
    Type have = e.typeOf(value).getElementType();
    auto wanted = RankedTensorType::get({}, element);
    if (have.getIntOrFloatBitWidth() > element.getIntOrFloatBitWidth())
      value = e.make<arith::TruncFOp>(wanted, value);
    else if (have != element)
      value = e.make<arith::ExtFOp>(wanted, value);
    return e.everywhere(value, type);
  };
  Value g = e.mul(op.getGradient(), everywhere(op.getScale()));
  if (double decay = op.getWeightDecay().convertToDouble(); decay != 0.0)
    g = e.add(g, e.mul(p, decay));
  Value velocity =
      e.add(e.mul(op.getVelocity(), op.getMomentum().convertToDouble()), g);
  p = e.sub(p, e.mul(everywhere(op.getLr()), velocity));
  return SmallVector<Value>{p, velocity};
}

} // namespace

void cleave::lowering::attachTraining(MLIRContext *context) {
  constexpr KernelClass elementwise = KernelClass::Elementwise;
  attach<nn::DropoutOp, elementwise, dropout>(context);
  attach<nn::AdamWOp, elementwise, adamW>(context);
  attach<nn::SgdOp, elementwise, sgd>(context);
}
