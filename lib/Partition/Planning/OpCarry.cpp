//===- OpCarry.cpp - results that stay partial ----------------------------===//

#include "OpPlanner.h"

#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// The largest number of operations through which the search follows a value to
/// the reader that decides whether it is reduced.
constexpr unsigned kMaxSteps = 8;

/// Returns whether a reduce-scatter leads from the layout `have` to `need`:
/// each dimension of `need` is split as in `have`, and possibly further by axes
/// over which `have` is partial.
static bool isScattered(const Layout &have, const Layout &need) {
  for (auto [had, wanted] : llvm::zip_equal(have.dims, need.dims))
    if (wanted.size() < had.size() ||
        !std::equal(had.begin(), had.end(), wanted.begin()) ||
        setOf(ArrayRef<Axis>(wanted).drop_front(had.size())) & ~have.partial)
      return false;
  return true;
}

bool OpPlanner::isReducedLater(Value value, const Layout &kept,
                               const Layout &asked) {
  if (!kept.partial || !isScattered(kept, asked))
    return false;

  const int64_t bytes = bytesOf(value.getType());
  for (unsigned step = 0; step < kMaxSteps && value.hasOneUse(); ++step) {
    OpOperand &use = *value.use_begin();
    Operation *user = use.getOwner();
    ShardingRule rule = ruleOf(user);
    if (rule.isTerm(use.getOperandNumber()))
      return true;
    if (rule.groupOf(use.getOperandNumber()).empty() ||
        user->getNumOperands() != 1 || user->getNumResults() != 1 ||
        rule.operands[0] != rule.results[0])
      return false;
    value = user->getResult(0);
    if (bytesOf(value.getType()) < bytes)
      return true;
  }
  return false;
}

bool OpPlanner::isSummedLater(Operation *op, AxisSet axes) const {
  auto has = [&](const Layout &layout) {
    return (layout.partial & axes) == axes && layout.kind == ReduceKind::Sum;
  };
  for (unsigned step = 0; step < kMaxSteps; ++step) {
    if (op->getNumResults() != 1 || !op->hasOneUse())
      return false;
    OpOperand &use = *op->use_begin();
    unsigned number = use.getOperandNumber();
    op = use.getOwner();
    if (auto func = dyn_cast<func::FuncOp>(op->getParentOp());
        func && op->hasTrait<OpTrait::IsTerminator>()) {
      auto sharding =
          func.getResultAttrOfType<ShardingAttr>(number, kShardingAttrName);
      return sharding && has(mesh.layout(sharding));
    }
    if (auto constrain = dyn_cast<ConstrainOp>(op))
      return has(mesh.layout(constrain.getSharding()));
    if (op->getNumRegions() != 0)
      return false;
    ShardingRule rule = ShardingRule::of(op);
    ArrayRef<unsigned> group = rule.groupOf(number);
    if (group.empty())
      return false;
    for (unsigned other : group)
      if (Value origin =
              other == number ? Value() : originOf(op->getOperand(other)))
        return has(layoutOf(origin));
  }
  return false;
}

Value OpPlanner::originOf(Value value) const {
  for (unsigned step = 0; step < kMaxSteps && !hasLayout(value); ++step) {
    Operation *op = value.getDefiningOp();
    if (!op || !value.hasOneUse() || op->getNumOperands() != 1 ||
        ShardingRule::of(op).groupOf(0).size() != 1)
      return {};
    value = op->getOperand(0);
    if (!value.hasOneUse())
      return {};
  }
  return hasLayout(value) ? value : Value();
}

void OpPlanner::addCarry(Operation *op, const ShardingRule &rule,
                         OpChoice &choice) const {
  if (isa<ConstrainOp>(op))
    return;
  for (ArrayRef<unsigned> group : rule.linear) {
    AxisSet all = 0, common = ~AxisSet(0);
    ReduceKind kind = ReduceKind::Sum;
    bool fits = true, scalar = true;
    int64_t bytes = 0;
    for (unsigned index : group) {
      Value operand = op->getOperand(index);
      if (isZeroConstant(operand))
        continue;
      if (!hasLayout(operand)) {
        common = 0;
        continue;
      }
      const Layout &have = layoutOf(operand);
      // If a partial operand has other readers, it is reduced for them anyway,
      // and this operation reads the reduced value as well.
      fits &= have.partial == 0 || operand.hasOneUse();
      fits &= have.partial == 0 ||
              isScattered(
                  have, cleave::layoutOf(rule.operands[index], choice.factors));
      if (have.partial) {
        fits &= all == 0 || have.kind == kind;
        kind = have.kind;
      }
      scalar &= typeOf(operand).getRank() == 0;
      all |= have.partial;
      common &= have.partial;
      bytes += bytesOf(operand.getType());
    }
    if (!all || !fits)
      continue;
    if (kind != ReduceKind::Sum && !rule.movement)
      continue;
    // Operands outside of the linear group (ShardingRule::linear) must not be
    // partial over these axes.
    for (auto [index, operand] : llvm::enumerate(op->getOperands()))
      if (!llvm::is_contained(group, unsigned(index)) && hasLayout(operand) &&
          layoutOf(operand).partial & all)
        fits = false;
    if (!fits)
      continue;
    // `carry` has the axes over which partial operands are not reduced, so that
    // the result is partial too. If all operands of the linear group are
    // scalars (such as the two terms of an addition), these are all axes over
    // which any operand is partial, since a complete scalar becomes a partial
    // sum without communication. Otherwise, these are the axes over which all
    // operands of the group are partial.
    AxisSet carry = scalar && kind == ReduceKind::Sum ? all : common & all;
    for (const Axes &list : choice.factors)
      carry &= ~setOf(list);
    if (!carry)
      continue;
    int64_t resultBytes = 0;
    for (Type type : op->getResultTypes())
      resultBytes += bytesOf(type);
    if (resultBytes > bytes && !isSummedLater(op, carry))
      continue;
    choice.carry = carry;
    choice.carryKind = kind;
    choice.group = group;
    // A result can be partial by one kind of reduction only. If the operation
    // itself makes a result partial by another kind than the operands are, the
    // operands must be reduced first.
    for (unsigned index = 0; index < op->getNumResults(); ++index) {
      OpChoice without = choice;
      without.carry = 0;
      Layout own = produced(rule, without, index);
      if (own.partial && own.kind != kind) {
        choice.carry = 0;
        choice.group = {};
      }
    }
    if (choice.carry)
      return;
  }
}
