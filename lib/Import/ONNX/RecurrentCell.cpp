// One step of a recurrent layer.

#include "Recurrent.h"

using namespace mlir;
using llvm::ArrayRef;
using llvm::StringRef;

namespace cleave::importer {

namespace {

Value lower(TensorExpr &e, Value x, double bound) {
  return e.make<arith::MaximumFOp>(x, e.splat(x, bound));
}
Value upper(TensorExpr &e, Value x, double bound) {
  return e.make<arith::MinimumFOp>(x, e.splat(x, bound));
}
Value greater(TensorExpr &e, Value x, double than) {
  return e.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, x, e.splat(x, than));
}

Value affine(TensorExpr &e, Value x, const Activation &f) {
  return e.add(e.mul(x, f.alpha), f.beta);
}
Value elu(TensorExpr &e, Value x, const Activation &f) {
  Value below = e.mul(e.add(e.exp(upper(e, x, 0)), -1.0), f.alpha);
  return e.select(greater(e, x, 0), x, below);
}
Value hardSigmoid(TensorExpr &e, Value x, const Activation &f) {
  return upper(e, lower(e, affine(e, x, f), 0), 1);
}
Value leakyRelu(TensorExpr &e, Value x, const Activation &f) {
  return e.select(greater(e, x, 0), x, e.mul(x, f.alpha));
}
Value relu(TensorExpr &e, Value x, const Activation &) {
  return lower(e, x, 0);
}
Value scaledTanh(TensorExpr &e, Value x, const Activation &f) {
  return e.mul(e.make<math::TanhOp>(e.mul(x, f.beta)), f.alpha);
}
Value sigmoid(TensorExpr &e, Value x, const Activation &) {
  return e.make<nn::SigmoidOp>(x);
}
/// Returns log(1 + exp(x)), computed without overflow for large x.
Value softplus(TensorExpr &e, Value x, const Activation &) {
  Value small = e.exp(e.neg(e.make<math::AbsFOp>(x)));
  return e.add(lower(e, x, 0), e.make<math::Log1pOp>(small));
}
Value softsign(TensorExpr &e, Value x, const Activation &) {
  return e.div(x, e.add(e.make<math::AbsFOp>(x), 1.0));
}
Value tanh(TensorExpr &e, Value x, const Activation &) {
  return e.make<math::TanhOp>(x);
}
Value thresholdedRelu(TensorExpr &e, Value x, const Activation &f) {
  return e.select(greater(e, x, f.alpha), x, e.splat(x, 0.0));
}

// The defaults are those of ONNX Runtime where the specification has none.
const ActivationRule kRules[] = {
    {"Affine", 1.0, 0.0, affine},
    {"Elu", 1.0, {}, elu},
    {"HardSigmoid", 0.2, 0.5, hardSigmoid},
    {"LeakyRelu", 0.01, {}, leakyRelu},
    {"Relu", {}, {}, relu},
    {"ScaledTanh", 1.0, 1.0, scaledTanh},
    {"Sigmoid", {}, {}, sigmoid},
    {"Softplus", {}, {}, softplus},
    {"Softsign", {}, {}, softsign},
    {"Tanh", {}, {}, tanh},
    {"ThresholdedRelu", 1.0, {}, thresholdedRelu},
};

} // namespace

const ActivationRule *ruleOf(StringRef name) {
  for (const ActivationRule &rule : kRules)
    if (rule.name.equals_insensitive(name))
      return &rule;
  return nullptr;
}

std::string activationNames() {
  std::string names;
  for (const ActivationRule &rule : kRules)
    names += (names.empty() ? "" : ", ") + rule.name.str();
  return names;
}

Value Cell::product(Value state, Value matrices) {
  return make<nn::EinsumOp>("bh,gkh->bgk", state, matrices);
}

Value Cell::gate(Value gates, int64_t index) {
  ArrayRef<int64_t> shape = typeOf(gates).getShape();
  Value part = make<nn::SliceOp>(gates, ArrayRef<int64_t>{0, index, 0},
                                 ArrayRef<int64_t>{shape[0], 1, hidden},
                                 ArrayRef<int64_t>{1, 1, 1});
  return make<nn::ReshapeOp>(typeOf(gates).clone({shape[0], hidden}), part);
}

Value Cell::alongSamples(Value rows, int64_t index, Value state) {
  Value row =
      make<nn::SliceOp>(rows, ArrayRef<int64_t>{index, 0},
                        ArrayRef<int64_t>{1, hidden}, ArrayRef<int64_t>{1, 1});
  row = make<nn::ReshapeOp>(typeOf(rows).clone({hidden}), row);
  return broadcast(row, typeOf(state), {1});
}

Value Cell::apply(size_t index, Value value, bool clips) {
  if (clips && clip > 0)
    value = upper(*this, lower(*this, value, -clip), clip);
  const Activation &function = activations[index];
  return ruleOf(function.name)->emit(*this, value, function);
}

} // namespace cleave::importer
