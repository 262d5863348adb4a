// Sharding rules of elementwise operations of arith and math, of constants, and
// of elementwise nn operations.

#include "Model.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

template <typename Op> ShardingRule plain(Op op) { return elementwise(op); }

/// The sharding rule of additions and subtractions, which are linear in their
/// two operands jointly.
template <typename Op> ShardingRule additive(Op op) {
  ShardingRule rule = elementwise(op);
  rule.linear = {{0, 1}};
  return rule;
}

/// The sharding rule of products, which are linear in each operand.
template <typename Op> ShardingRule product(Op op) {
  ShardingRule rule = elementwise(op);
  rule.linear = {{0}, {1}};
  return rule;
}

/// Linear in the first operand.
template <typename Op> ShardingRule linear(Op op) {
  ShardingRule rule = elementwise(op);
  rule.linear = {{0}};
  return rule;
}

/// Returns whether a value is a sum whose terms were all rounded to `narrow`
/// and extended again. If such a sum is split into partial sums, rounding each
/// of them loses no more than the rounding of the terms did.
bool addsRounded(Value value, FloatType narrow, unsigned depth = 0) {
  constexpr unsigned kMaxDepth = 16;
  Operation *op = value.getDefiningOp();
  if (auto widen = dyn_cast_or_null<arith::ExtFOp>(op))
    return getElementTypeOrSelf(widen.getIn().getType()) == narrow;
  return isa_and_present<arith::AddFOp, arith::SubFOp, arith::NegFOp>(op) &&
         depth < kMaxDepth &&
         llvm::all_of(
             op->getOperands(),
             [&](Value operand) {
               return addsRounded(operand, narrow, depth + 1);
             });
}

/// The sharding rule of a rounding to a narrower float type. Rounding is not
/// linear: in general, a sum must be complete before it is rounded. But if a
/// value is rounded only for storage (kStorageAttr), and all terms of its sum
/// were already rounded to the narrower type, then each partial sum may be
/// rounded on its own: this loses no more than rounding the terms did. Only in
/// this case the rule is linear, so that partial sums pass through.
ShardingRule rounding(arith::TruncFOp op) {
  auto narrow = dyn_cast<FloatType>(getElementTypeOrSelf(op.getType()));
  bool isForStorage = op->hasAttr(nn::kStorageAttr);
  return narrow && isForStorage && addsRounded(op.getIn(), narrow)
             ? linear(op)
             : elementwise(op);
}

ShardingRule select(arith::SelectOp op) {
  ShardingRule rule = elementwise(op);
  rule.linear = {{1, 2}};
  rule.chooses = true;
  return rule;
}

ShardingRule constant(arith::ConstantOp op) {
  ShardingRule rule;
  auto type = dyn_cast<RankedTensorType>(op.getType());
  rule.results.push_back(type ? addFactors(rule, type.getShape())
                              : TensorFactors());
  return rule;
}

/// Emits the per-rank code of a constant. A splat becomes a splat of the tile's
/// shape. For any other constant, each rank has the whole constant and slices
/// its tile.
LogicalResult planConstant(arith::ConstantOp op, LocalPlan &plan) {
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!dense)
    return op.emitOpError(
        "cannot be partitioned: its value is no dense tensor");
  OpBuilder &builder = plan.builder();
  if (dense.isSplat()) {
    plan.setResults(
        arith::ConstantOp::create(builder, plan.loc(),
                                  dense.resizeSplat(plan.resultType(0)))
            ->getResults());
    return success();
  }
  Value value = arith::ConstantOp::create(builder, plan.loc(), dense);
  for (auto [dim, made] : llvm::enumerate(plan.rule().results[0])) {
    int64_t factor = made[0];
    if (!plan.isSplit(factor))
      continue;
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] = plan.tile(factor);
    value = dist::SliceOp::create(builder, plan.loc(), type.clone(shape), value,
                                  builder.getI64IntegerAttr(dim),
                                  plan.mesh().name(),
                                  plan.mesh().list(plan.axesOf(factor)));
  }
  plan.setResults(value);
  return success();
}

template <typename... Ops> void attachPlain(MLIRContext *context) {
  (attach<Ops, plain<Ops>>(context), ...);
}
template <typename... Ops> void attachAdditive(MLIRContext *context) {
  (attach<Ops, additive<Ops>>(context), ...);
}
template <typename... Ops> void attachProduct(MLIRContext *context) {
  (attach<Ops, product<Ops>>(context), ...);
}
template <typename... Ops> void attachLinear(MLIRContext *context) {
  (attach<Ops, linear<Ops>>(context), ...);
}

} // namespace

void cleave::sharding::attachElementwise(MLIRContext *context) {
  attach<arith::ConstantOp, constant, planConstant>(context);
  attach<arith::SelectOp, select>(context);
  attach<arith::TruncFOp, rounding>(context);
  attachAdditive<arith::AddFOp, arith::SubFOp, arith::AddIOp, arith::SubIOp>(
      context);
  attachProduct<arith::MulFOp, arith::MulIOp>(context);
  // Integer casts are excluded. They are not linear: a sum may overflow in the
  // narrower type and not in the wider one.
  attachLinear<arith::NegFOp, arith::DivFOp, arith::ExtFOp, nn::GeluGradOp>(
      context);
  attachPlain<arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
              arith::MinNumFOp, arith::RemFOp, arith::CmpFOp, arith::CmpIOp,
              arith::AndIOp, arith::OrIOp, arith::XOrIOp, arith::ShLIOp,
              arith::ShRSIOp, arith::ShRUIOp, arith::DivSIOp, arith::DivUIOp,
              arith::RemSIOp, arith::RemUIOp, arith::CeilDivSIOp,
              arith::FloorDivSIOp, arith::MaxSIOp, arith::MinSIOp,
              arith::MaxUIOp, arith::MinUIOp, arith::TruncIOp, arith::ExtSIOp,
              arith::ExtUIOp, arith::SIToFPOp, arith::UIToFPOp, arith::FPToSIOp,
              arith::FPToUIOp, arith::BitcastOp>(context);
  attachPlain<math::AbsFOp, math::AbsIOp, math::AcosOp, math::AcoshOp,
              math::AsinOp, math::AsinhOp, math::AtanOp, math::Atan2Op,
              math::AtanhOp, math::CbrtOp, math::CeilOp, math::CopySignOp,
              math::CosOp, math::CoshOp, math::SinOp, math::SinhOp, math::TanOp,
              math::TanhOp, math::ErfOp, math::ErfcOp, math::ExpOp,
              math::Exp2Op, math::ExpM1Op, math::FloorOp, math::FmaOp,
              math::FPowIOp, math::IPowIOp, math::LogOp, math::Log10Op,
              math::Log1pOp, math::Log2Op, math::PowFOp, math::RoundOp,
              math::RoundEvenOp, math::RsqrtOp, math::SqrtOp, math::TruncOp,
              math::IsFiniteOp, math::IsInfOp, math::IsNaNOp, math::IsNormalOp>(
      context);
  attachPlain<nn::GeluOp, nn::SigmoidOp>(context);
}
