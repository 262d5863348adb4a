// Derives the layouts of tensors from the mesh axes over which the factors of
// an operation are split, and builds the code that each rank runs for the
// operation. By default this is the same operation on the rank's tiles.
// LocalPlan also has helpers for operations that need other code, such as masks
// of padding and all-reduces.

#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Dialect/Dist/IR/Padding.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

Layout cleave::layoutOf(const TensorFactors &dims, ArrayRef<Axes> factorAxes) {
  Layout layout;
  for (const DimFactors &dim : dims) {
    Axes &axes = layout.dims.emplace_back();
    for (int64_t factor : dim)
      llvm::append_range(axes, factorAxes[factor]);
  }
  return layout;
}

bool cleave::isExpressible(const DimFactors &dim, const ShardingRule &rule,
                           ArrayRef<Axes> factorAxes, const MeshAxes &mesh) {
  if (dim.size() < 2)
    return true;
  bool majorAreSingle = true;
  for (int64_t factor : dim) {
    int64_t ways = mesh.size(factorAxes[factor]),
            size = rule.factors[factor].size;
    if (ways == 1) {
      majorAreSingle &= size == 1;
      continue;
    }
    if (!majorAreSingle || size % ways != 0)
      return false;
    majorAreSingle = size == ways;
  }
  return true;
}

LocalPlan::LocalPlan(Operation *op, OpBuilder &builder, const MeshAxes &mesh,
                     const ShardingRule &rule, ArrayRef<Axes> factorAxes,
                     ArrayRef<Value> operands)
    : global(op), rewriter(builder), axes(mesh), factors(rule),
      factorAxes(factorAxes), operands(operands) {}

RankedTensorType LocalPlan::localType(RankedTensorType type,
                                      const TensorFactors &dims) const {
  return axes.tile(layoutOf(dims, factorAxes), type);
}

RankedTensorType LocalPlan::operandType(unsigned index) const {
  return localType(cast<RankedTensorType>(global->getOperand(index).getType()),
                   factors.operands[index]);
}

RankedTensorType LocalPlan::resultType(unsigned index) const {
  return localType(cast<RankedTensorType>(global->getResult(index).getType()),
                   factors.results[index]);
}

Value LocalPlan::offset(int64_t factor) {
  auto type = RankedTensorType::get({}, rewriter.getI64Type());
  return TileOffsetOp::create(rewriter, loc(), type,
                              rewriter.getI64IntegerAttr(tile(factor)),
                              axes.name(), axes.list(factorAxes[factor]));
}

Value LocalPlan::splat(Value scalar, RankedTensorType type) {
  if (type.getRank() == 0)
    return scalar;
  return nn::BroadcastOp::create(rewriter, loc(), type, scalar,
                                 ArrayRef<int64_t>());
}

Value LocalPlan::constant(RankedTensorType type, double value) {
  return nn::createSplat(rewriter, loc(), type, value);
}

Value LocalPlan::globalIndex(RankedTensorType type, int64_t dim,
                             int64_t factor) {
  Value index = nn::IotaOp::create(rewriter, loc(), type, dim);
  if (!isSplit(factor))
    return index;
  Value begin = offset(factor);
  auto scalar = RankedTensorType::get({}, type.getElementType());
  if (scalar != begin.getType())
    begin =
        isa<FloatType>(scalar.getElementType())
            ? Value(arith::SIToFPOp::create(rewriter, loc(), scalar, begin))
            : Value(arith::TruncIOp::create(rewriter, loc(), scalar, begin));
  Value spread = splat(begin, type);
  if (isa<FloatType>(type.getElementType()))
    return arith::AddFOp::create(rewriter, loc(), index, spread);
  return arith::AddIOp::create(rewriter, loc(), index, spread);
}

ReduceKind cleave::reduceKindOf(FactorCombiner combiner) {
  switch (combiner) {
  case FactorCombiner::Sum:
    return ReduceKind::Sum;
  case FactorCombiner::Max:
    return ReduceKind::Max;
  case FactorCombiner::Min:
    return ReduceKind::Min;
  case FactorCombiner::None:
    break;
  }
  llvm_unreachable("combines nothing");
}

TypedAttr cleave::identityOf(FactorCombiner combiner, RankedTensorType type) {
  Type element = type.getElementType();
  Builder builder(type.getContext());
  TypedAttr value;
  if (auto floating = dyn_cast<FloatType>(element)) {
    const llvm::fltSemantics &semantics = floating.getFloatSemantics();
    APFloat number = APFloat::getZero(semantics);
    if (combiner == FactorCombiner::Max)
      number = APFloat::getInf(semantics, /*Negative=*/true);
    if (combiner == FactorCombiner::Min)
      number = APFloat::getInf(semantics);
    value = FloatAttr::get(element, number);
  } else {
    unsigned width = element.getIntOrFloatBitWidth();
    APInt number = APInt::getZero(width);
    if (combiner == FactorCombiner::Max)
      number = width == 1 ? number : APInt::getSignedMinValue(width);
    if (combiner == FactorCombiner::Min)
      number = width == 1 ? APInt(1, 1) : APInt::getSignedMaxValue(width);
    value = IntegerAttr::get(element, number);
  }
  return DenseElementsAttr::get(type, cast<Attribute>(value));
}

Value LocalPlan::masked(Value value, const TensorFactors &dims, int64_t factor,
                        FactorCombiner combiner) {
  Value result =
      filled(value, dims, factor,
             identityOf(combiner, cast<RankedTensorType>(value.getType())));
  for (Value at = result; at != value; at = at.getDefiningOp()->getOperand(1))
    at.getDefiningOp()->setAttr(kPadMaskAttrName, rewriter.getUnitAttr());
  return result;
}

Value LocalPlan::filled(Value value, const TensorFactors &dims, int64_t factor,
                        TypedAttr filler) {
  if (!isPadded(factor))
    return value;
  auto type = cast<RankedTensorType>(value.getType());
  for (auto [dim, made] : llvm::enumerate(dims)) {
    if (!llvm::is_contained(made, factor))
      continue;
    // A padded factor is the only factor of its dimension (isExpressible), so
    // an index along the dimension is also one along the factor. An element of
    // the tile is valid if its index is less than (size of the factor) -
    // (offset of the tile).
    auto i64 = rewriter.getI64Type();
    auto scalar = RankedTensorType::get({}, i64);
    Value count = arith::SubIOp::create(
        rewriter, loc(), constant(scalar, factors.factors[factor].size),
        offset(factor));
    auto indexType = type.clone(i64);
    Value valid = arith::CmpIOp::create(
        rewriter, loc(), arith::CmpIPredicate::slt,
        nn::IotaOp::create(rewriter, loc(), indexType, dim),
        splat(count, indexType));
    value = arith::SelectOp::create(
        rewriter, loc(), valid, value,
        arith::ConstantOp::create(rewriter, loc(), filler));
  }
  return value;
}

Value LocalPlan::allReduce(Value value, ReduceKind kind, int64_t factor,
                           Purpose purpose) {
  if (!isSplit(factor))
    return value;
  MLIRContext *context = rewriter.getContext();
  auto reduce = AllReduceOp::create(
      rewriter, loc(), TypeRange{value.getType()},
      ReduceKindAttr::get(context, kind), ValueRange{value}, axes.name(),
      axes.list(factorAxes[factor]), PurposeAttr::get(context, purpose));
  // The global shape of the reduced value is not known here. It is taken from
  // the result or operand whose shape on each rank equals the shape of the
  // value.
  auto type = cast<RankedTensorType>(value.getType());
  auto note = [&](Type whole, const TensorFactors &dims) {
    auto tensor = cast<RankedTensorType>(whole);
    if (localType(tensor, dims).getShape() != type.getShape())
      return false;
    notePadding(reduce, axes, layoutOf(dims, factorAxes),
                type.clone(tensor.getShape()), type);
    return true;
  };
  for (auto [index, result] : llvm::enumerate(global->getResults()))
    if (note(result.getType(), factors.results[index]))
      return reduce->getResult(0);
  for (auto [index, operand] : llvm::enumerate(global->getOperands()))
    if (note(operand.getType(), factors.operands[index]))
      break;
  return reduce->getResult(0);
}

void LocalPlan::noteGather(unsigned operand, int64_t dim, int64_t factor,
                           Value value, std::string why) {
  noted.push_back(
      {operand, dim, factor, bytesOf(value.getType()), std::move(why)});
}

Value LocalPlan::window(Value value, int64_t dim, int64_t factor, int64_t size,
                        int64_t base, int64_t step, int64_t stride,
                        int64_t length, int64_t whole) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = length;
  auto i64 = [&](int64_t number) { return rewriter.getI64IntegerAttr(number); };
  return WindowOp::create(
             rewriter, loc(), TypeRange{type.clone(shape)}, ValueRange{value},
             i64(dim), i64(size), i64(base), i64(step), i64(stride), i64(whole),
             axes.name(), axes.list(factorAxes[factor]),
             PurposeAttr::get(rewriter.getContext(), Purpose::Activation))
      ->getResult(0);
}

Operation *LocalPlan::cloneLocal() {
  // The operands are set one by one, and not by a map from value to value: the
  // operation may read one value twice, in two layouts.
  Operation *local = rewriter.clone(*global);
  local->setOperands(operands);
  for (unsigned i = 0; i < local->getNumResults(); ++i)
    local->getResult(i).setType(resultType(i));
  local->removeAttr(kShardingAttrName);
  local->removeAttr(kPlanAttrName);
  return local;
}

LogicalResult cleave::planLocalByCloning(Operation *op, LocalPlan &plan) {
  // If some result lacks a factor, the operation reduces over this factor.
  // Padding along the factor must then be masked.
  const ShardingRule &rule = plan.rule();
  for (auto [factor, info] : llvm::enumerate(rule.factors)) {
    bool combined = llvm::any_of(
        rule.results, [&, f = int64_t(factor)](const TensorFactors &dims) {
          return llvm::none_of(dims, [&](const DimFactors &made) {
            return llvm::is_contained(made, f);
          });
        });
    if (!combined || info.combiner == FactorCombiner::None ||
        !plan.isPadded(factor))
      continue;
    for (auto [index, dims] : llvm::enumerate(rule.operands))
      plan.setOperand(
          index, plan.masked(plan.operand(index), dims, factor, info.combiner));
  }
  plan.setResults(plan.cloneLocal()->getResults());
  return success();
}
