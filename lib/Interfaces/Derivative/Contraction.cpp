// Derivatives of contractions and reductions.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::derivative;

static LogicalResult einsum(nn::EinsumOp op, VJPContext &c) {
  // An operand's cotangent is the einsum of the result's cotangent and the
  // other operand, with the same labels.
  nn::EinsumOp::Labels labels = op.getLabels();
  if (c.wanted(0)) {
    std::string equation = labels.result + "," + labels.rhs + "->" + labels.lhs;
    c.set(0, nn::EinsumOp::create(c.builder(), c.loc(), equation,
                                  c.cotangent(0), c.residual(op.getRhs())));
  }
  if (c.wanted(1)) {
    std::string equation = labels.lhs + "," + labels.result + "->" + labels.rhs;
    c.set(1, nn::EinsumOp::create(c.builder(), c.loc(), equation,
                                  c.residual(op.getLhs()), c.cotangent(0)));
  }
  return success();
}

static LogicalResult reduce(nn::ReduceOp op, VJPContext &c) {
  auto type = cast<RankedTensorType>(op.getInput().getType());
  SmallVector<int64_t> kept;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (!llvm::is_contained(op.getDims(), dim))
      kept.push_back(dim);
  OpBuilder &b = c.builder();
  auto spread = [&](Value value) -> Value {
    return nn::BroadcastOp::create(b, c.loc(), type, value, kept);
  };
  if (op.getCombiner() == nn::Combiner::Sum) {
    c.set(0, spread(c.cotangent(0)));
    return success();
  }
  // All extreme elements share the cotangent evenly.
  Value input = c.residual(op.getInput());
  Value extreme = spread(c.residual(op.getResult()));
  Value hit = arith::CmpFOp::create(b, c.loc(), arith::CmpFPredicate::OEQ,
                                    input, extreme);
  Value ones = arith::UIToFPOp::create(b, c.loc(), type, hit);
  Value count =
      nn::ReduceOp::create(b, c.loc(), nn::Combiner::Sum, ones, op.getDims());
  Value share = arith::DivFOp::create(b, c.loc(), c.cotangent(0), count);
  c.set(0, arith::MulFOp::create(b, c.loc(), ones, spread(share)));
  return success();
}

void cleave::derivative::attachContraction(MLIRContext *context) {
  attach<nn::EinsumOp, einsum>(context);
  attach<nn::ReduceOp, reduce>(context);
}
