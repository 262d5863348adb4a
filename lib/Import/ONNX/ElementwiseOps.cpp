// Elementwise operators: arithmetic, comparison, logic, casts and activations.

#include "Families.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;

namespace cleave::importer {

namespace {

bool onFloats(ArrayRef<Value> v) {
  return isa<FloatType>(getElementTypeOrSelf(v.back().getType()));
}

template <class FloatOp, class IntOp>
Value emitBinary(OpBuilder &b, Location loc, ArrayRef<Value> v) {
  if (onFloats(v))
    return FloatOp::create(b, loc, v[0], v[1]);
  return IntOp::create(b, loc, v[0], v[1]);
}

template <class FloatOp>
Value emitUnary(OpBuilder &b, Location loc, ArrayRef<Value> v) {
  return onFloats(v) ? Value(FloatOp::create(b, loc, v[0])) : Value();
}

Value splatLike(OpBuilder &b, Location loc, Value like, double value) {
  return nn::createSplat(b, loc, cast<RankedTensorType>(like.getType()), value);
}

template <arith::CmpFPredicate onFloat, arith::CmpIPredicate onInt>
Value emitCompare(OpBuilder &b, Location loc, ArrayRef<Value> v) {
  if (onFloats(v))
    return arith::CmpFOp::create(b, loc, onFloat, v[0], v[1]);
  return arith::CmpIOp::create(b, loc, onInt, v[0], v[1]);
}

int64_t negate(int64_t a) { return int64_t(-uint64_t(a)); }
/// Integer division truncates towards zero, as in ONNX. Division by zero gives
/// 0, as at run time.
int64_t divideInts(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? negate(a) : a / b;
}
/// The remainder has the sign of the dividend. A remainder by zero is 0.
int64_t remainder(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}

const Elementwise kAdd = {
    [](const double *v) { return v[0] + v[1]; },
    [](const int64_t *v) { return int64_t(uint64_t(v[0]) + uint64_t(v[1])); },
    emitBinary<arith::AddFOp, arith::AddIOp>};
const Elementwise kSub = {
    [](const double *v) { return v[0] - v[1]; },
    [](const int64_t *v) { return int64_t(uint64_t(v[0]) - uint64_t(v[1])); },
    emitBinary<arith::SubFOp, arith::SubIOp>};
const Elementwise kMul = {
    [](const double *v) { return v[0] * v[1]; },
    [](const int64_t *v) { return int64_t(uint64_t(v[0]) * uint64_t(v[1])); },
    emitBinary<arith::MulFOp, arith::MulIOp>};
const Elementwise kDiv = {
    [](const double *v) { return v[0] / v[1]; },
    [](const int64_t *v) { return divideInts(v[0], v[1]); },
    emitBinary<arith::DivFOp, arith::DivSIOp>,
    [](const uint64_t *v) { return v[1] == 0 ? 0 : v[0] / v[1]; }};
const Elementwise kMax = {
    [](const double *v) {
      return std::isnan(v[0])                  ? v[0]
             : v[1] > v[0] || std::isnan(v[1]) ? v[1]
                                               : v[0];
    },
    [](const int64_t *v) { return std::max(v[0], v[1]); },
    emitBinary<arith::MaximumFOp, arith::MaxSIOp>,
    [](const uint64_t *v) { return std::max(v[0], v[1]); }};
const Elementwise kMin = {
    [](const double *v) {
      return std::isnan(v[0])                  ? v[0]
             : v[1] < v[0] || std::isnan(v[1]) ? v[1]
                                               : v[0];
    },
    [](const int64_t *v) { return std::min(v[0], v[1]); },
    emitBinary<arith::MinimumFOp, arith::MinSIOp>,
    [](const uint64_t *v) { return std::min(v[0], v[1]); }};

const Elementwise kNeg = {
    [](const double *v) { return -v[0]; },
    [](const int64_t *v) { return negate(v[0]); },
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      if (onFloats(v))
        return arith::NegFOp::create(b, loc, v[0]);
      return arith::SubIOp::create(b, loc, splatLike(b, loc, v[0], 0), v[0]);
    }};
const Elementwise kAbs = {
    [](const double *v) { return std::abs(v[0]); },
    [](const int64_t *v) { return v[0] < 0 ? negate(v[0]) : v[0]; },
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      if (onFloats(v))
        return math::AbsFOp::create(b, loc, v[0]);
      return math::AbsIOp::create(b, loc, v[0]);
    },
    [](const uint64_t *v) { return v[0]; }};
const Elementwise kSqrt = {[](const double *v) { return std::sqrt(v[0]); },
                           nullptr, emitUnary<math::SqrtOp>};
const Elementwise kExp = {[](const double *v) { return std::exp(v[0]); },
                          nullptr, emitUnary<math::ExpOp>};
const Elementwise kLog = {[](const double *v) { return std::log(v[0]); },
                          nullptr, emitUnary<math::LogOp>};
const Elementwise kSin = {[](const double *v) { return std::sin(v[0]); },
                          nullptr, emitUnary<math::SinOp>};
const Elementwise kCos = {[](const double *v) { return std::cos(v[0]); },
                          nullptr, emitUnary<math::CosOp>};
const Elementwise kErf = {[](const double *v) { return std::erf(v[0]); },
                          nullptr, emitUnary<math::ErfOp>};
const Elementwise kTanh = {[](const double *v) { return std::tanh(v[0]); },
                           nullptr, emitUnary<math::TanhOp>};
const Elementwise kFloor = {[](const double *v) { return std::floor(v[0]); },
                            nullptr, emitUnary<math::FloorOp>};
const Elementwise kCeil = {[](const double *v) { return std::ceil(v[0]); },
                           nullptr, emitUnary<math::CeilOp>};
const Elementwise kSigmoid = {
    [](const double *v) { return 1 / (1 + std::exp(-v[0])); }, nullptr,
    emitUnary<nn::SigmoidOp>};
const Elementwise kReciprocal = {
    [](const double *v) { return 1 / v[0]; }, nullptr,
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      if (!onFloats(v))
        return {};
      return arith::DivFOp::create(b, loc, splatLike(b, loc, v[0], 1), v[0]);
    }};
const Elementwise kRelu = {
    [](const double *v) { return v[0] < 0 ? 0 : v[0]; },
    [](const int64_t *v) { return std::max<int64_t>(v[0], 0); },
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      Value zero = splatLike(b, loc, v[0], 0);
      if (onFloats(v))
        return arith::MaximumFOp::create(b, loc, v[0], zero);
      return arith::MaxSIOp::create(b, loc, v[0], zero);
    }};
/// The remainder for Mod, which has the sign of the divisor.
const Elementwise kMod = {
    nullptr,
    [](const int64_t *v) {
      int64_t rest = remainder(v[0], v[1]);
      return rest != 0 && (rest < 0) != (v[1] < 0) ? rest + v[1] : rest;
    },
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      if (onFloats(v))
        return {};
      using Predicate = arith::CmpIPredicate;
      auto compare = [&](Predicate predicate, Value x, Value y) -> Value {
        return arith::CmpIOp::create(b, loc, predicate, x, y);
      };
      Value zero = splatLike(b, loc, v[0], 0);
      Value rest = arith::RemSIOp::create(b, loc, v[0], v[1]);
      Value differs =
          arith::XOrIOp::create(b, loc, compare(Predicate::slt, rest, zero),
                                compare(Predicate::slt, v[1], zero));
      Value moves = arith::AndIOp::create(
          b, loc, compare(Predicate::ne, rest, zero), differs);
      return arith::SelectOp::create(
          b, loc, moves, arith::AddIOp::create(b, loc, rest, v[1]), rest);
    },
    [](const uint64_t *v) { return v[1] == 0 ? 0 : v[0] % v[1]; }};
/// The remainder for Mod with fmod = 1, which has the sign of the dividend.
const Elementwise kFMod = {
    [](const double *v) { return std::fmod(v[0], v[1]); },
    [](const int64_t *v) { return remainder(v[0], v[1]); },
    emitBinary<arith::RemFOp, arith::RemSIOp>,
    [](const uint64_t *v) { return v[1] == 0 ? 0 : v[0] % v[1]; }};

const Elementwise kEqual = {
    [](const double *v) { return double(v[0] == v[1]); },
    [](const int64_t *v) { return int64_t(v[0] == v[1]); },
    emitCompare<arith::CmpFPredicate::OEQ, arith::CmpIPredicate::eq>};
const Elementwise kLess = {
    [](const double *v) { return double(v[0] < v[1]); },
    [](const int64_t *v) { return int64_t(v[0] < v[1]); },
    emitCompare<arith::CmpFPredicate::OLT, arith::CmpIPredicate::slt>,
    [](const uint64_t *v) { return uint64_t(v[0] < v[1]); }};
const Elementwise kLessOrEqual = {
    [](const double *v) { return double(v[0] <= v[1]); },
    [](const int64_t *v) { return int64_t(v[0] <= v[1]); },
    emitCompare<arith::CmpFPredicate::OLE, arith::CmpIPredicate::sle>,
    [](const uint64_t *v) { return uint64_t(v[0] <= v[1]); }};
const Elementwise kGreater = {
    [](const double *v) { return double(v[0] > v[1]); },
    [](const int64_t *v) { return int64_t(v[0] > v[1]); },
    emitCompare<arith::CmpFPredicate::OGT, arith::CmpIPredicate::sgt>,
    [](const uint64_t *v) { return uint64_t(v[0] > v[1]); }};
const Elementwise kGreaterOrEqual = {
    [](const double *v) { return double(v[0] >= v[1]); },
    [](const int64_t *v) { return int64_t(v[0] >= v[1]); },
    emitCompare<arith::CmpFPredicate::OGE, arith::CmpIPredicate::sge>,
    [](const uint64_t *v) { return uint64_t(v[0] >= v[1]); }};
const Elementwise kIsNaN = {
    [](const double *v) { return double(std::isnan(v[0])); }, nullptr,
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      if (!onFloats(v))
        return {};
      return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, v[0],
                                   v[0]);
    }};

const Elementwise kAnd = {
    nullptr, [](const int64_t *v) { return v[0] & v[1]; },
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      return arith::AndIOp::create(b, loc, v[0], v[1]);
    }};
const Elementwise kOr = {
    nullptr, [](const int64_t *v) { return v[0] | v[1]; },
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      return arith::OrIOp::create(b, loc, v[0], v[1]);
    }};
const Elementwise kXor = {
    nullptr, [](const int64_t *v) { return v[0] ^ v[1]; },
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      return arith::XOrIOp::create(b, loc, v[0], v[1]);
    }};

/// Whether the elements of the operand are known and all equal to `value`.
bool isSplat(const Operand &operand, double value) {
  std::optional<double> splat = operand.splatValue();
  return splat && *splat == value;
}

template <const Elementwise &function> Error unary(Node &node) {
  return one(node, node.map(function, node.input(0).type, {node.input(0)}));
}

template <const Elementwise &function> Error binary(Node &node) {
  return one(node, node.map(function, node.input(0).type,
                            {node.input(0), node.input(1)}));
}

template <const Elementwise &function> Error compare(Node &node) {
  return one(node,
             node.map(function, Element::Bool, {node.input(0), node.input(1)}));
}

/// Sum, Mean, Min and Max take any number of operands.
template <const Elementwise &function> Error variadic(Node &node) {
  Operand result = node.input(0);
  for (size_t i = 1; i < node.numInputs(); ++i) {
    CLEAVE_TRY(next, node.map(function, result.type, {result, node.input(i)}));
    result = next;
  }
  node.set(0, result);
  return Error::success();
}

Error mean(Node &node) {
  if (Error error = variadic<kAdd>(node))
    return error;
  Operand sum = node.results[0];
  return one(node, divide(node, sum,
                          node.splat(sum.type, {}, double(node.numInputs()))));
}

Error lowerDiv(Node &node) {
  return one(node, divide(node, node.input(0), node.input(1)));
}
Error lowerAdd(Node &node) {
  return one(node, add(node, node.input(0), node.input(1)));
}
Error lowerSub(Node &node) {
  return one(node, subtract(node, node.input(0), node.input(1)));
}
Error lowerMul(Node &node) {
  return one(node, multiply(node, node.input(0), node.input(1)));
}

Error lowerMod(Node &node) {
  if (node.intAttr("fmod", 0) == 0 && isFloat(node.input(0).type))
    return reason("Mod of floats needs fmod = 1");
  if (isInteger(node.input(0).type) && isSplat(node.input(1), 0))
    return reason("it divides integers by zero");
  return node.intAttr("fmod", 0) ? binary<kFMod>(node) : binary<kMod>(node);
}

Error lowerNot(Node &node) {
  static const Elementwise kNot = {
      nullptr, [](const int64_t *v) { return int64_t(!v[0]); },
      [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
        return arith::XOrIOp::create(b, loc, v[0], splatLike(b, loc, v[0], 1));
      }};
  return one(node, node.map(kNot, Element::Bool, {node.input(0)}));
}

Error lowerIsNaN(Node &node) {
  return one(node, node.map(kIsNaN, Element::Bool, {node.input(0)}));
}

Error lowerWhere(Node &node) {
  return one(node, node.select(node.input(0), node.input(1), node.input(2)));
}

Error lowerCast(Node &node) {
  return one(node, node.cast(node.input(0),
                             static_cast<Element>(node.intAttr("to", 0))));
}
Error lowerCastLike(Node &node) {
  return one(node, node.cast(node.input(0), node.input(1).type));
}
Error lowerIdentity(Node &node) {
  node.set(0, node.input(0));
  return Error::success();
}

/// Drops dropout, as at inference. Training adds dropout again if the
/// configuration asks for it.
Error lowerDropout(Node &node) {
  if (node.has(2) && !isSplat(node.input(2), 0))
    return reason("training_mode is not false; export the model in evaluation "
                  "mode and set train.dropout");
  if (node.wants(1))
    node.set(1, node.splat(Element::Bool, node.input(0).shape, 1));
  return lowerIdentity(node);
}

Error lowerClip(Node &node) {
  Operand result = node.input(0);
  if (node.has(1)) {
    CLEAVE_TRY(low, node.map(kMax, result.type, {result, node.input(1)}));
    result = low;
  }
  if (node.has(2)) {
    CLEAVE_TRY(high, node.map(kMin, result.type, {result, node.input(2)}));
    result = high;
  }
  node.set(0, result);
  return Error::success();
}

Error lowerGelu(Node &node) {
  std::string kind = node.stringAttr("approximate", "none");
  if (kind != "none" && kind != "tanh")
    return reason("attribute approximate = '" + kind + "' is not supported");
  CLEAVE_TRY(x, node.value(node.input(0)));
  node.set(0, Operand(nn::GeluOp::create(
                  node.builder, node.loc, x.getType(),
                  kind == "tanh" ? nn::GeluKind::Tanh : nn::GeluKind::Erf, x)));
  return Error::success();
}

/// x * sigmoid(alpha x).
Error lowerSwish(Node &node) {
  const Operand &x = node.input(0);
  CLEAVE_TRY(
      scaled,
      multiply(node, x, node.splat(x.type, {}, node.floatAttr("alpha", 1))));
  CLEAVE_TRY(gate, node.map(kSigmoid, x.type, {scaled}));
  return one(node, multiply(node, x, gate));
}

/// max(0, min(1, alpha x + beta)).
Expected<Operand> hardSigmoid(Node &node, double alpha, double beta) {
  const Operand &x = node.input(0);
  CLEAVE_TRY(scaled, multiply(node, x, node.splat(x.type, {}, alpha)));
  CLEAVE_TRY(shifted, add(node, scaled, node.splat(x.type, {}, beta)));
  CLEAVE_TRY(upper,
             node.map(kMin, x.type, {shifted, node.splat(x.type, {}, 1)}));
  return node.map(kMax, x.type, {upper, node.splat(x.type, {}, 0)});
}
Error lowerHardSigmoid(Node &node) {
  return one(node, hardSigmoid(node, node.floatAttr("alpha", 0.2f),
                               node.floatAttr("beta", 0.5)));
}
Error lowerHardSwish(Node &node) {
  CLEAVE_TRY(gate, hardSigmoid(node, 1.0 / 6, 0.5));
  return one(node, multiply(node, node.input(0), gate));
}

Error lowerLeakyRelu(Node &node) {
  const Operand &x = node.input(0);
  CLEAVE_TRY(zero, node.broadcast(node.splat(x.type, {}, 0), x.shape));
  CLEAVE_TRY(small,
             multiply(node, x,
                      node.splat(x.type, {}, node.floatAttr("alpha", 0.01f))));
  CLEAVE_TRY(negative, node.map(kLess, Element::Bool, {x, zero}));
  return one(node, node.select(negative, small, x));
}

} // namespace

Expected<Operand> add(Node &node, const Operand &a, const Operand &b) {
  return node.map(kAdd, a.type, {a, b});
}
Expected<Operand> subtract(Node &node, const Operand &a, const Operand &b) {
  return node.map(kSub, a.type, {a, b});
}
Expected<Operand> multiply(Node &node, const Operand &a, const Operand &b) {
  return node.map(kMul, a.type, {a, b});
}
Expected<Operand> divide(Node &node, const Operand &a, const Operand &b) {
  if (isInteger(a.type) && isSplat(b, 0))
    return reason("it divides integers by zero");
  return node.map(kDiv, a.type, {a, b});
}
Expected<Operand> tanh(Node &node, const Operand &x) {
  return node.map(kTanh, x.type, {x});
}
Expected<Operand> sqrt(Node &node, const Operand &x) {
  return node.map(kSqrt, x.type, {x});
}
Expected<Operand> exp(Node &node, const Operand &x) {
  return node.map(kExp, x.type, {x});
}
Expected<Operand> log(Node &node, const Operand &x) {
  return node.map(kLog, x.type, {x});
}
Expected<Operand> abs(Node &node, const Operand &x) {
  return node.map(kAbs, x.type, {x});
}
Expected<Operand> equal(Node &node, const Operand &a, const Operand &b) {
  return node.map(kEqual, Element::Bool, {a, b});
}

void addElementwiseOps(std::vector<OnnxOp> &table) {
  auto op = [&](llvm::StringRef name, int tier, llvm::StringRef becomes,
                LowerFunction lower, int64_t first = kOldest) {
    table.push_back({name, first, kNewest, tier, becomes, lower});
  };
  op("Abs", 1, "math.absf", unary<kAbs>);
  op("Add", 1, "arith.addf", lowerAdd);
  op("And", 1, "arith.andi", compare<kAnd>);
  op("Cast", 1, "arith.extf", lowerCast);
  op("CastLike", 1, "arith.extf", lowerCastLike, 15);
  op("Ceil", 2, "math.ceil", unary<kCeil>);
  op("Clip", 1, "arith.maximumf arith.minimumf", lowerClip);
  op("Cos", 1, "math.cos", unary<kCos>);
  op("Div", 1, "arith.divf", lowerDiv);
  op("Dropout", 1, "", lowerDropout);
  op("Equal", 1, "arith.cmpf", compare<kEqual>);
  op("Erf", 1, "math.erf", unary<kErf>);
  op("Exp", 1, "math.exp", unary<kExp>);
  op("Floor", 2, "math.floor", unary<kFloor>);
  op("Gelu", 1, "nn.gelu", lowerGelu, 20);
  op("Greater", 1, "arith.cmpf", compare<kGreater>);
  op("GreaterOrEqual", 1, "arith.cmpf", compare<kGreaterOrEqual>, 12);
  op("HardSigmoid", 2, "arith.maximumf arith.minimumf", lowerHardSigmoid);
  op("HardSwish", 2, "arith.maximumf arith.minimumf", lowerHardSwish, 14);
  op("Identity", 1, "", lowerIdentity);
  table.back().readsSequence = true;
  op("IsNaN", 1, "arith.cmpf", lowerIsNaN);
  op("LeakyRelu", 2, "arith.select", lowerLeakyRelu);
  op("Less", 1, "arith.cmpf", compare<kLess>);
  op("LessOrEqual", 1, "arith.cmpf", compare<kLessOrEqual>, 12);
  op("Log", 1, "math.log", unary<kLog>);
  op("Max", 1, "arith.maximumf", variadic<kMax>);
  op("Mean", 2, "arith.addf", mean);
  op("Min", 1, "arith.minimumf", variadic<kMin>);
  op("Mod", 2, "arith.remf arith.remsi", lowerMod);
  op("Mul", 1, "arith.mulf", lowerMul);
  op("Neg", 1, "arith.negf", unary<kNeg>);
  op("Not", 1, "arith.xori", lowerNot);
  op("Or", 1, "arith.ori", compare<kOr>);
  op("Reciprocal", 1, "arith.divf", unary<kReciprocal>);
  op("Relu", 1, "arith.maximumf", unary<kRelu>);
  op("Sigmoid", 1, "nn.sigmoid", unary<kSigmoid>);
  op("Sin", 1, "math.sin", unary<kSin>);
  op("Sqrt", 1, "math.sqrt", unary<kSqrt>);
  op("Sub", 1, "arith.subf", lowerSub);
  op("Sum", 2, "arith.addf", variadic<kAdd>);
  op("Swish", 2, "nn.sigmoid", lowerSwish, 24);
  op("Tanh", 1, "math.tanh", unary<kTanh>);
  op("Where", 1, "arith.select", lowerWhere);
  op("Xor", 2, "arith.xori", compare<kXor>);
}

} // namespace cleave::importer
