//===- ExpertValues.cpp - values of tokens at the expert ranks ------------===//
//
// Finds which values of tokens are at the expert ranks already or can be
// computed there elementwise, and which are saved there for the backward pass.
//
//===----------------------------------------------------------------------===//

#include "ExpertRows.h"

#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// Returns the value that `value` saves or rematerializes, or `value` itself.
Value cleave::partition::kept(Value value) {
  while (Operation *def = value.getDefiningOp()) {
    if (!isa<nn::SaveOp, nn::RematerializeOp>(def))
      break;
    value = def->getOperand(0);
  }
  return value;
}

/// Returns whether two values are equal. A saved or rematerialized value counts
/// as equal to the original.
static bool isSame(Value a, Value b) {
  a = kept(a), b = kept(b);
  if (a == b)
    return true;
  auto x = a.getDefiningOp<nn::BroadcastOp>(),
       y = b.getDefiningOp<nn::BroadcastOp>();
  return x && y && x.getType() == y.getType() && x.getDims() == y.getDims() &&
         isSame(x.getInput(), y.getInput());
}

bool cleave::partition::isElementwise(Operation *op) {
  auto lowering = dyn_cast<LoweringInterface>(op);
  // Extending bf16 to f32 is a view for kernels, but it is still an elementwise
  // operation.
  if (!lowering ||
      (lowering.getKernelClass() != KernelClass::Elementwise &&
       (lowering.getKernelClass() != KernelClass::View ||
        !op->hasTrait<OpTrait::Elementwise>())) ||
      op->getNumResults() != 1 || op->getNumRegions() != 0 ||
      op->getNumOperands() == 0)
    return false;
  auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return result &&
         llvm::all_of(op->getOperands(),
                      [&](Value operand) {
                        auto type =
                            dyn_cast<RankedTensorType>(operand.getType());
                        return type && type.getShape() == result.getShape();
                      }) &&
         llvm::none_of(ShardingRule::of(op).factors,
                       [](const Factor &factor) { return factor.indexed; });
}

/// Returns whether the elements of a value of tokens depend only on the index
/// in the last dimension. The value is then the same for every token, so it
/// need not be sent.
static bool isOfColumn(Value value) {
  DenseElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return constant.isSplat();
  int64_t last = typeOf(value).getRank() - 1;
  if (auto iota = value.getDefiningOp<nn::IotaOp>())
    return int64_t(iota.getDim()) == last;
  if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
    return llvm::all_of(broadcast.getDims(),
                        [&](int64_t dim) { return dim == last; });
  Operation *def = value.getDefiningOp();
  return def && isElementwise(def) &&
         llvm::all_of(def->getOperands(), isOfColumn);
}

RankedTensorType ExpertRows::widened(const Round &in, Value value) const {
  SmallVector<int64_t> sizes(typeOf(in.ids).getShape());
  sizes.push_back(typeOf(value).getShape().back());
  return typeOf(value).clone(sizes);
}

/// Emits a value whose elements depend only on the index in the last dimension,
/// in the shape that tokens have at the expert ranks.
Value ExpertRows::ofColumn(const Round &in, Value value) {
  RankedTensorType type = widened(in, value);
  DenseElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)))
    return make<arith::ConstantOp>(
        DenseElementsAttr::get(type, constant.getSplatValue<Attribute>()));
  int64_t last = type.getRank() - 1;
  if (value.getDefiningOp<nn::IotaOp>())
    return make<nn::IotaOp>(type, uint64_t(last));
  if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
    return make<nn::BroadcastOp>(
        type, broadcast.getInput(),
        SmallVector<int64_t>(broadcast.getDims().size(), last));
  Operation *def = value.getDefiningOp();
  SmallVector<Value> operands;
  for (Value operand : def->getOperands())
    operands.push_back(ofColumn(in, operand));
  Operation *copy = builder.clone(*def);
  copy->setOperands(operands);
  copy->getResult(0).setType(type);
  mark(copy);
  return copy->getResult(0);
}

Value ExpertRows::unmasked(const Choice &choice, Value rows) const {
  while (auto select = rows.getDefiningOp<arith::SelectOp>()) {
    std::optional<PadMask> mask = PadMask::of(select);
    if (!mask || llvm::none_of(choice.masks, [&](const PadMask &known) {
          return known.isAlike(*mask);
        }))
      break;
    rows = select.getTrueValue();
  }
  return rows;
}

/// See ExpertRows.h.
Value ExpertRows::atExperts(Choice &choice, unsigned round, Value rows) {
  Round &in = choice.rounds[round];
  if (Value result = in.atExperts.lookup(rows))
    return result;
  Value result;
  if (const Combined *back = combinedOf(rows); back && back->choice == &choice)
    return back->atExperts[round];
  for (auto [local, arrived] : choice.rounds[0].atExperts)
    if (isSame(local, rows) &&
        (round == 0 || choice.sentRows.contains(local))) {
      // The backward pass needs the dispatched tokens again. The tokens of the
      // first exchange round are saved at the expert ranks. Further exchange
      // rounds are usually empty; their tokens are dispatched again.
      result = round == 0 ? keep(arrived) : send(choice, round, rows);
      break;
    }
  Operation *def = rows.getDefiningOp();
  if (auto save = dyn_cast_if_present<nn::SaveOp>(def); save && !result) {
    result = round == 0 ? atExperts(choice, round, save.getInput())
                        : recomputed(choice, round, save.getInput());
    if (result && round == 0)
      result = keep(result);
  }
  if (!result)
    result = rowwise(choice, round, def, [&](Value operand) {
      return atExperts(choice, round, operand);
    });
  if (result)
    in.atExperts[rows] = result;
  return result;
}

Value ExpertRows::recomputed(Choice &choice, unsigned round, Value rows) {
  Round &in = choice.rounds[round];
  if (Value result = in.recomputed.lookup(rows))
    return result;
  Value result;
  if (const Combined *back = combinedOf(rows); back && back->choice == &choice)
    result = back->recompute(round);
  else if (llvm::any_of(choice.sentRows,
                        [&](Value sent) { return isSame(sent, rows); }))
    result = send(choice, round, saved(rows));
  else
    result = rowwise(choice, round, rows.getDefiningOp(), [&](Value operand) {
      return recomputed(choice, round, operand);
    });
  if (result)
    in.recomputed[rows] = result;
  return result;
}

bool ExpertRows::ofExperts(const Choice &choice, Value rows) {
  auto gather = rows.getDefiningOp<nn::GatherOp>();
  if (!gather || gather.getDim() != 0 ||
      typeOf(gather.getTable()).getRank() != 2)
    return false;
  std::optional<Tile> table = gathered(gather.getTable());
  return table && knownChoice(gather.getIndices(), *table) == &choice;
}

/// Emits `op` for the tokens of one exchange round at the expert ranks.
/// `atExpertsOf` returns an operand at the expert ranks, or null. Returns null
/// if `op` is not elementwise, or if `atExpertsOf` returns null.
Value ExpertRows::rowwise(Choice &choice, unsigned round, Operation *op,
                          llvm::function_ref<Value(Value)> atExpertsOf) {
  if (!op)
    return {};
  Round &in = choice.rounds[round];
  if (Value value = op->getNumResults() == 1 ? op->getResult(0) : Value();
      value && unmasked(choice, value) != value)
    return atExpertsOf(unmasked(choice, value));
  if (auto gather = dyn_cast<nn::GatherOp>(op))
    return ofExperts(choice, gather.getResult())
               ? make<nn::GatherOp>(widened(in, gather.getResult()),
                                    gathered(gather.getTable())->value, in.ids,
                                    uint64_t(0))
               : Value();
  if (!isElementwise(op))
    return {};
  // All operands are looked up first, so that nothing is emitted if one of them
  // is not at the expert ranks.
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    operands.push_back(isOfColumn(operand) ? Value() : atExpertsOf(operand));
    if (!operands.back() && !isOfColumn(operand))
      return {};
  }
  if (llvm::none_of(operands, [](Value operand) { return bool(operand); }))
    return {};
  for (auto [index, operand] : llvm::enumerate(operands))
    if (!operand)
      operand = ofColumn(in, op->getOperand(index));
  Operation *copy = builder.clone(*op);
  copy->setOperands(operands);
  copy->getResult(0).setType(widened(in, op->getResult(0)));
  mark(copy);
  return copy->getResult(0);
}

//===----------------------------------------------------------------------===//
// Residuals of the forward pass
//===----------------------------------------------------------------------===//

Value ExpertRows::keep(Value value) {
  Operation *def = value.getDefiningOp();
  if (!def || isa<nn::SaveOp>(def))
    return value;
  for (Operation *user : value.getUsers())
    if (isa<nn::SaveOp>(user))
      return user->getResult(0);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfter(def);
  auto save = nn::SaveOp::create(builder, value.getLoc(), value);
  for (NamedAttribute attribute : def->getDiscardableAttrs())
    save->setAttr(attribute.getName(), attribute.getValue());
  return save;
}

/// Saves a value for the backward pass. A broadcast is not saved, but repeated
/// where it is read.
Value ExpertRows::saved(Value value) {
  if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
    return make<nn::BroadcastOp>(
        broadcast.getType(), saved(broadcast.getInput()), broadcast.getDims());
  return keep(value);
}
