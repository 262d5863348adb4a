// Derivatives of elementwise operations of arith and math. Integers have no
// cotangents, so casts from integers and comparisons need no rule.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::derivative;

namespace {

/// Builds elementwise expressions in the backward pass.
struct Expr {
  VJPContext &c;
  Value mul(Value a, Value b) {
    return arith::MulFOp::create(c.builder(), c.loc(), a, b);
  }
  Value add(Value a, Value b) {
    return arith::AddFOp::create(c.builder(), c.loc(), a, b);
  }
  Value sub(Value a, Value b) {
    return arith::SubFOp::create(c.builder(), c.loc(), a, b);
  }
  Value div(Value a, Value b) {
    return arith::DivFOp::create(c.builder(), c.loc(), a, b);
  }
  Value neg(Value a) { return arith::NegFOp::create(c.builder(), c.loc(), a); }
  Value splat(Value like, double value) {
    return nn::createSplat(c.builder(), c.loc(),
                           cast<RankedTensorType>(like.getType()), value);
  }
  Value select(Value condition, Value a, Value b) {
    return arith::SelectOp::create(c.builder(), c.loc(), condition, a, b);
  }
  template <typename Op> Value unary(Value a) {
    return Op::create(c.builder(), c.loc(), a);
  }
  Value greater(Value a, Value b) {
    return arith::CmpFOp::create(c.builder(), c.loc(),
                                 arith::CmpFPredicate::OGT, a, b);
  }
};

LogicalResult add(arith::AddFOp op, VJPContext &c) {
  c.set(0, c.cotangent(0));
  c.set(1, c.cotangent(0));
  return success();
}

LogicalResult sub(arith::SubFOp op, VJPContext &c) {
  c.set(0, c.cotangent(0));
  if (c.wanted(1))
    c.set(1, Expr{c}.neg(c.cotangent(0)));
  return success();
}

LogicalResult mul(arith::MulFOp op, VJPContext &c) {
  Expr e{c};
  if (c.wanted(0))
    c.set(0, e.mul(c.cotangent(0), c.residual(op.getRhs())));
  if (c.wanted(1))
    c.set(1, e.mul(c.cotangent(0), c.residual(op.getLhs())));
  return success();
}

LogicalResult div(arith::DivFOp op, VJPContext &c) {
  Expr e{c};
  Value scaled = e.div(c.cotangent(0), c.residual(op.getRhs()));
  if (c.wanted(0))
    c.set(0, scaled);
  if (c.wanted(1))
    c.set(1, e.neg(e.mul(scaled, c.residual(op.getResult()))));
  return success();
}

/// The remainder is x - n y, with the integer n = (x - remainder) / y. So its
/// derivative with respect to y is -n.
LogicalResult rem(arith::RemFOp op, VJPContext &c) {
  Expr e{c};
  if (c.wanted(0))
    c.set(0, c.cotangent(0));
  if (c.wanted(1)) {
    Value part = e.sub(c.residual(op.getLhs()), c.residual(op.getResult()));
    Value times = e.div(part, c.residual(op.getRhs()));
    c.set(1, e.neg(e.mul(c.cotangent(0), times)));
  }
  return success();
}

LogicalResult neg(arith::NegFOp op, VJPContext &c) {
  c.set(0, Expr{c}.neg(c.cotangent(0)));
  return success();
}

/// The derivative of a maximum (minimum) gives the cotangent to the larger
/// (smaller) operand. If both are equal, the right operand gets it, so that
/// max(x, 0) has the derivative 0 at 0.
template <typename Op, bool larger>
LogicalResult extremum(Op op, VJPContext &c) {
  Expr e{c};
  Value lhs = c.residual(op.getLhs()), rhs = c.residual(op.getRhs());
  Value left = larger ? e.greater(lhs, rhs) : e.greater(rhs, lhs);
  Value zero = e.splat(c.cotangent(0), 0.0);
  if (c.wanted(0))
    c.set(0, e.select(left, c.cotangent(0), zero));
  if (c.wanted(1))
    c.set(1, e.select(left, zero, c.cotangent(0)));
  return success();
}

LogicalResult select(arith::SelectOp op, VJPContext &c) {
  Expr e{c};
  Value condition = c.residual(op.getCondition());
  Value zero = e.splat(c.cotangent(0), 0.0);
  if (c.wanted(1))
    c.set(1, e.select(condition, c.cotangent(0), zero));
  if (c.wanted(2))
    c.set(2, e.select(condition, zero, c.cotangent(0)));
  return success();
}

template <typename Op> LogicalResult cast(Op op, VJPContext &c) {
  Type type = op.getIn().getType();
  Value cotangent = c.cotangent(0);
  if (std::is_same_v<Op, arith::ExtFOp>)
    c.set(0, arith::TruncFOp::create(c.builder(), c.loc(), type, cotangent));
  else
    c.set(0, arith::ExtFOp::create(c.builder(), c.loc(), type, cotangent));
  return success();
}

LogicalResult exp(math::ExpOp op, VJPContext &c) {
  c.set(0, Expr{c}.mul(c.cotangent(0), c.residual(op.getResult())));
  return success();
}

LogicalResult log(math::LogOp op, VJPContext &c) {
  c.set(0, Expr{c}.div(c.cotangent(0), c.residual(op.getOperand())));
  return success();
}

LogicalResult tanh(math::TanhOp op, VJPContext &c) {
  Expr e{c};
  Value y = c.residual(op.getResult());
  c.set(0, e.mul(c.cotangent(0), e.sub(e.splat(y, 1.0), e.mul(y, y))));
  return success();
}

LogicalResult erf(math::ErfOp op, VJPContext &c) {
  Expr e{c}; // 2/sqrt(pi) exp(-x^2)
  Value x = c.residual(op.getOperand());
  Value bell = e.unary<math::ExpOp>(e.neg(e.mul(x, x)));
  c.set(0, e.mul(c.cotangent(0), e.mul(bell, e.splat(x, 1.1283791670955126))));
  return success();
}

LogicalResult sqrt(math::SqrtOp op, VJPContext &c) {
  Expr e{c};
  Value y = c.residual(op.getResult());
  c.set(0, e.div(c.cotangent(0), e.add(y, y)));
  return success();
}

LogicalResult rsqrt(math::RsqrtOp op, VJPContext &c) {
  Expr e{c}; // -y^3 / 2
  Value y = c.residual(op.getResult());
  Value cube = e.mul(y, e.mul(y, y));
  c.set(0, e.mul(c.cotangent(0), e.mul(cube, e.splat(y, -0.5))));
  return success();
}

LogicalResult sin(math::SinOp op, VJPContext &c) {
  Expr e{c};
  Value x = c.residual(op.getOperand());
  c.set(0, e.mul(c.cotangent(0), e.unary<math::CosOp>(x)));
  return success();
}

LogicalResult cos(math::CosOp op, VJPContext &c) {
  Expr e{c};
  Value x = c.residual(op.getOperand());
  c.set(0, e.neg(e.mul(c.cotangent(0), e.unary<math::SinOp>(x))));
  return success();
}

LogicalResult abs(math::AbsFOp op, VJPContext &c) {
  Expr e{c}; // the sign of x, and 0 at 0
  Value x = c.residual(op.getOperand()), g = c.cotangent(0);
  Value zero = e.splat(x, 0.0);
  Value below = e.select(e.greater(zero, x), e.neg(g), zero);
  c.set(0, e.select(e.greater(x, zero), g, below));
  return success();
}

LogicalResult pow(math::PowFOp op, VJPContext &c) {
  Expr e{c};
  Value x = c.residual(op.getLhs()), y = c.residual(op.getRhs());
  if (c.wanted(0)) {
    Value less = math::PowFOp::create(c.builder(), c.loc(), x,
                                      e.sub(y, e.splat(y, 1.0)));
    c.set(0, e.mul(c.cotangent(0), e.mul(y, less)));
  }
  if (c.wanted(1)) {
    Value log = e.unary<math::LogOp>(x);
    c.set(1, e.mul(c.cotangent(0), e.mul(c.residual(op.getResult()), log)));
  }
  return success();
}

LogicalResult gelu(nn::GeluOp op, VJPContext &c) {
  c.set(0,
        nn::GeluGradOp::create(c.builder(), c.loc(), op.getType(), op.getKind(),
                               c.cotangent(0), c.residual(op.getInput())));
  return success();
}

LogicalResult sigmoid(nn::SigmoidOp op, VJPContext &c) {
  Expr e{c};
  Value y = c.residual(op.getResult());
  Value slope = e.mul(y, e.sub(e.splat(y, 1.0), y));
  c.set(0, e.mul(c.cotangent(0), slope));
  return success();
}

LogicalResult save(nn::SaveOp op, VJPContext &c) {
  c.set(0, c.cotangent(0));
  return success();
}

LogicalResult rematerialize(nn::RematerializeOp op, VJPContext &c) {
  c.set(0, c.cotangent(0));
  return success();
}

/// Piecewise constant functions: no cotangent flows back.
template <typename Op> LogicalResult zero(Op, VJPContext &) {
  return success();
}

} // namespace

void cleave::derivative::attachElementwise(MLIRContext *context) {
  attach<arith::AddFOp, add>(context);
  attach<arith::SubFOp, sub>(context);
  attach<arith::MulFOp, mul>(context);
  attach<arith::DivFOp, div>(context);
  attach<arith::NegFOp, neg>(context);
  attach<arith::MaximumFOp, extremum<arith::MaximumFOp, true>>(context);
  attach<arith::MinimumFOp, extremum<arith::MinimumFOp, false>>(context);
  attach<arith::SelectOp, select>(context);
  attach<arith::ExtFOp, cast<arith::ExtFOp>>(context);
  attach<arith::TruncFOp, cast<arith::TruncFOp>>(context);
  attach<math::ExpOp, exp>(context);
  attach<math::LogOp, log>(context);
  attach<math::TanhOp, tanh>(context);
  attach<math::ErfOp, erf>(context);
  attach<math::SqrtOp, sqrt>(context);
  attach<math::RsqrtOp, rsqrt>(context);
  attach<math::SinOp, sin>(context);
  attach<math::CosOp, cos>(context);
  attach<math::AbsFOp, abs>(context);
  attach<math::PowFOp, pow>(context);
  attach<arith::RemFOp, rem>(context);
  attach<math::FloorOp, zero<math::FloorOp>>(context);
  attach<math::CeilOp, zero<math::CeilOp>>(context);
  attach<math::RoundEvenOp, zero<math::RoundEvenOp>>(context);
  attach<nn::GeluOp, gelu>(context);
  attach<nn::SigmoidOp, sigmoid>(context);
  attach<nn::SaveOp, save>(context);
  attach<nn::RematerializeOp, rematerialize>(context);
}
