// nn-mixed-precision: values are stored and multiplied in bf16, and summed in
// f32. Each operation says which of its operands and results may be rounded to
// bf16 (LoweringInterface::getPrecision); this pass propagates the answers.

#include "BuildFunctions.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace cleave {
#define GEN_PASS_DEF_MIXEDPRECISIONPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

using Kind = PrecisionRule::Kind;

PrecisionRule ruleOf(Operation *op) {
  if (auto lowering = dyn_cast<LoweringInterface>(op))
    return lowering.getPrecision();
  return {};
}

/// Returns whether values of a type may be rounded to bf16. Scalars are counts,
/// losses and factors, and stay f32.
bool isRoundable(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() > 0 && tensor.getElementType().isF32();
}

bool isWideScalar(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 0 && tensor.getElementType().isF32();
}

Type narrowed(Type type) {
  return cast<RankedTensorType>(type).clone(
      BFloat16Type::get(type.getContext()));
}

/// Returns the value in bf16. The conversion is marked nn.storage: it only
/// rounds for storage, so a kernel that computes the value itself may read it
/// unrounded.
Value roundedForStorage(OpBuilder &builder, Location loc, Value value) {
  auto trunc =
      arith::TruncFOp::create(builder, loc, narrowed(value.getType()), value);
  trunc->setDiscardableAttr(nn::kStorageAttr, builder.getUnitAttr());
  return trunc;
}

/// Returns whether a value with this role is sent from one pipeline stage to
/// another. Such a value is always bf16, so that both stages derive the same
/// type independently.
bool crossesStages(std::optional<nn::Role> role) {
  return isOneOf(role, {nn::Role::Activation, nn::Role::Cotangent});
}

/// Returns whether a function result with this role is a sum over samples,
/// which stays f32. Sets `loss` to true if it is the loss or its weight: then
/// the values that are summed up must be f32, too.
bool isSum(std::optional<nn::Role> role, bool &loss) {
  loss = isOneOf(role, {nn::Role::Loss, nn::Role::Weight});
  return loss || isOneOf(role, {nn::Role::Gradient, nn::Role::Accumulator,
                                nn::Role::Buffer});
}

/// Finds the values that must be f32 because of the operations that read them,
/// such as sums. If a value must be f32, the operands of the operation that
/// computes it may have to be f32, too. So the search proceeds backwards from
/// the readers.
class Demand {
public:
  explicit Demand(func::FuncOp func) {
    Block &body = func.getBody().front();
    for (OpOperand &result : body.getTerminator()->getOpOperands()) {
      bool loss = false;
      if (isSum(resultRoleOf(func, result.getOperandNumber()), loss))
        add(result.get(), loss);
    }
    visit(body);
  }

  /// The demand in the body of a loop, given that of the code around it.
  Demand(nn::ScanOp scan, const Demand &outside) {
    for (auto [yielded, result] :
         llvm::zip_equal(scan.getYieldedStacked(), scan.getStacked()))
      if (outside.contains(result))
        add(yielded, outside.strict.contains(result));
    visit(*scan.getBody());
  }

  bool contains(Value value) const { return wide.contains(value); }

private:
  /// Requires that a value is f32. If `beyond` is true, the operands of the
  /// operation that computes the value must be f32, too. Otherwise this holds
  /// only if the operation is elementwise or a move.
  void add(Value value, bool beyond) {
    wide.insert(value);
    if (beyond)
      strict.insert(value);
  }

  void visit(Block &body) {
    for (Operation &op : llvm::reverse(body.without_terminator()))
      if (auto scan = dyn_cast<nn::ScanOp>(op))
        visitScan(scan);
      else
        visit(&op);
  }

  /// The operands of a loop must be f32 where its body demands it. Carried
  /// values are f32 in any case.
  void visitScan(nn::ScanOp scan) {
    Demand inside(scan, *this);
    for (auto [operand, argument] :
         llvm::zip_equal(scan.getOperands(), scan.getBody()->getArguments()))
      if (inside.contains(argument))
        add(operand, inside.strict.contains(argument));
  }

  void visit(Operation *op) {
    PrecisionRule rule = ruleOf(op);
    for (unsigned operand : rule.exact)
      add(op->getOperand(operand), /*beyond=*/true);
    // The backward search for f32 values ends at products, and at operations
    // with an additional result that is always f32, such as the log-sum-exp of
    // an attention. The operands of these operations may be bf16.
    if (rule.kind == Kind::Multiplies ||
        (op->getNumResults() > 1 && !rule.wideResults.empty()))
      return;
    auto has = [&](const DenseSet<Value> &set) {
      return llvm::any_of(op->getResults(),
                          [&](Value value) { return set.contains(value); });
    };
    bool beyond = has(strict);
    if (!beyond && !(has(wide) && isPlain(op)))
      return;
    for (Value operand : op->getOperands())
      if (isRoundable(operand.getType()))
        add(operand, beyond);
  }

  /// Returns whether the operation is elementwise or only moves elements. Such
  /// an operation sums no elements.
  static bool isPlain(Operation *op) {
    auto lowering = dyn_cast<LoweringInterface>(op);
    if (!lowering)
      return false;
    KernelClass kind = lowering.getKernelClass();
    return kind == KernelClass::Elementwise || kind == KernelClass::View ||
           kind == KernelClass::Identity;
  }

  DenseSet<Value> wide, strict;
};

/// Narrows the values of a function's body or of a loop's body.
class Narrower {
public:
  Narrower(Block &body, Demand demand)
      : body(body), demand(std::move(demand)),
        builder(body.getParentOp()->getContext()) {}

  LogicalResult run(func::FuncOp func) {
    WalkResult nested = func.walk([&](Operation *op) {
      if (op == func.getOperation() || op->getNumRegions() == 0 ||
          isa<nn::ScanOp>(op))
        return WalkResult::advance();
      op->emitOpError("is not yet supported in bf16: loops and branches "
                      "compute in f32 alone (train.precision = \"fp32\")");
      return WalkResult::interrupt();
    });
    if (nested.wasInterrupted())
      return failure();
    for (BlockArgument argument : body.getArguments())
      enter(func, argument);
    visitBody();
    leave(func);
    func.setType(builder.getFunctionType(
        body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
    return success();
  }

private:
  void visitBody() {
    for (Operation &op : llvm::make_early_inc_range(body.without_terminator()))
      if (auto scan = dyn_cast<nn::ScanOp>(op))
        visitScan(scan);
      else
        visit(&op);
  }

  void enter(func::FuncOp func, BlockArgument argument) {
    std::optional<nn::Role> role = nn::roleOf(argument);
    if (!isRoundable(argument.getType()))
      return;
    if (crossesStages(role) || role == nn::Role::Parameter) {
      argument.setType(narrowed(argument.getType()));
      rounded[argument] = argument;
    } else if (func.getArgAttr(argument.getArgNumber(), nn::kFrozenAttr)) {
      frozen.insert(argument);
    }
  }

  /// Returns whether the value has a bf16 version or, as a frozen parameter,
  /// may get one.
  bool isNarrow(Value value) const {
    return rounded.contains(value) || frozen.contains(value);
  }

  /// Returns the bf16 version of the value, and creates it if necessary.
  Value narrow(Value value) {
    Value &known = rounded[value];
    if (known)
      return known;
    OpBuilder::InsertionGuard guard(builder);
    // A frozen parameter is an argument; its conversion is inserted at its
    // first reader.
    if (!frozen.contains(value))
      builder.setInsertionPointAfterValue(value);
    return known = roundedForStorage(builder, value.getLoc(), value);
  }

  /// Returns the value in f32. If it exists in bf16, each reader gets its own
  /// conversion back to f32, inserted at the reader.
  Value wide(Value value) {
    if (!isNarrow(value))
      return value;
    Value from = narrow(value);
    auto type = typeOf(from);
    return arith::ExtFOp::create(builder, value.getLoc(),
                                 type.clone(builder.getF32Type()), from);
  }

  /// If the model itself rounds a value to bf16, the pass uses this conversion
  /// instead of one of its own (roundedForStorage). The conversion is then not
  /// marked nn.storage, because the model demands that its readers read the
  /// rounded value.
  void keepOwnRounding(Operation *op) {
    auto own = dyn_cast<arith::TruncFOp>(op);
    if (!own || !getElementTypeOrSelf(own.getType()).isBF16())
      return;
    if (auto stored = narrow(own.getIn()).getDefiningOp<arith::TruncFOp>())
      stored->removeDiscardableAttr(nn::kStorageAttr);
  }

  void visit(Operation *op) {
    builder.setInsertionPoint(op);
    PrecisionRule rule = ruleOf(op);
    bool anyNarrow = llvm::any_of(op->getOperands(),
                                  [&](Value value) { return isNarrow(value); });
    if (!anyNarrow)
      return;
    keepOwnRounding(op);
    auto isPlaced = [&](unsigned operand) {
      return rule.narrow.empty() || llvm::is_contained(rule.narrow, operand);
    };
    auto staysWide = [&](OpResult result) {
      return !isRoundable(result.getType()) || demand.contains(result) ||
             llvm::is_contained(rule.wideResults, result.getResultNumber());
    };
    // Scalars stay f32, and so do the other operands that must have the same
    // type as a scalar operand.
    bool hasScalar = llvm::any_of(op->getOpOperands(), [&](OpOperand &operand) {
      return isPlaced(operand.getOperandNumber()) &&
             isWideScalar(operand.get().getType());
    });
    bool readsNarrow =
        !hasScalar && (rule.kind == Kind::Multiplies ||
                       (rule.kind == Kind::Moves &&
                        llvm::none_of(op->getResults(), [&](OpResult result) {
                          return demand.contains(result) ||
                                 isWideScalar(result.getType());
                        })));
    // An operation that computes in f32 reads frozen parameters without
    // rounding.
    bool allWide = llvm::all_of(op->getResults(), staysWide);
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      if (readsNarrow && isPlaced(operand.getOperandNumber()) &&
          (isNarrow(value) || isRoundable(value.getType())))
        operand.set(narrow(value));
      else if (!(allWide && demand.contains(value) && frozen.contains(value)))
        operand.set(wide(value));
    }
    for (OpResult result : op->getResults()) {
      bool keepsWide = staysWide(result);
      if (rule.kind == Kind::Multiplies && op->getNumResults() > 1 &&
          isRoundable(result.getType()))
        keepsWide =
            llvm::is_contained(rule.wideResults, result.getResultNumber());
      if (keepsWide)
        continue;
      if (readsNarrow) {
        result.setType(narrowed(result.getType()));
        rounded[result] = result;
        continue;
      }
      builder.setInsertionPointAfter(op);
      rounded[result] = roundedForStorage(builder, op->getLoc(), result);
    }
  }

  /// Whether all readers of a value are products, which read bf16.
  static bool isOnlyMultiplied(Value value) {
    return !value.use_empty() &&
           llvm::all_of(value.getUses(), [](OpOperand &use) {
             PrecisionRule rule = ruleOf(use.getOwner());
             return rule.kind == Kind::Multiplies &&
                    (rule.narrow.empty() ||
                     llvm::is_contained(rule.narrow, use.getOperandNumber()));
           });
  }

  /// Narrows a loop and its body. Carried values stay f32: a rounding in each
  /// iteration would add up. Sliced and captured values are passed in bf16
  /// where they exist in bf16, and captured matrices of products are rounded
  /// once, before the loop. Stacked results are rounded for storage.
  void visitScan(nn::ScanOp scan) {
    if (llvm::none_of(scan.getOperands(),
                      [&](Value value) { return isNarrow(value); }))
      return;
    builder.setInsertionPoint(scan);
    Narrower inside(*scan.getBody(), Demand(scan, demand));
    size_t inits = scan.getInits().size(), slices = scan.getSlices().size();
    for (auto [index, argument] :
         llvm::enumerate(scan.getBody()->getArguments())) {
      OpOperand &operand = scan->getOpOperand(index);
      Value value = operand.get();
      bool isNarrowed =
          index >= inits && isRoundable(argument.getType()) &&
          ((isNarrow(value) && !demand.contains(value)) ||
           (index >= inits + slices && isOnlyMultiplied(argument)));
      if (!isNarrowed) {
        // Readers that need f32 read frozen parameters without rounding.
        if (!frozen.contains(value) || !demand.contains(value))
          operand.set(wide(value));
        continue;
      }
      operand.set(narrow(value));
      argument.setType(narrowed(argument.getType()));
      inside.rounded[argument] = argument;
    }
    inside.visitBody();
    inside.leaveScan(scan, rounded, demand);
    for (Value result : scan.getResults()) {
      if (rounded.contains(result) || !isRoundable(result.getType()) ||
          demand.contains(result))
        continue;
      builder.setInsertionPointAfter(scan);
      rounded[result] = roundedForStorage(builder, scan->getLoc(), result);
    }
  }

  /// Yields carried values in f32 without a rounding, and stacked values in
  /// bf16 unless the code around the loop demands f32.
  void leaveScan(nn::ScanOp scan, DenseMap<Value, Value> &roundedOutside,
                 const Demand &outside) {
    Operation *end = body.getTerminator();
    builder.setInsertionPoint(end);
    for (auto [operand, result] :
         llvm::zip_equal(end->getOpOperands(), scan.getResults())) {
      Value value = operand.get();
      bool isStacked = operand.getOperandNumber() >= scan.getInits().size();
      bool isNarrowed = isStacked && !outside.contains(result) &&
                        (isNarrow(value) || isRoundable(value.getType()));
      if (isNarrowed) {
        operand.set(narrow(value));
        result.setType(narrowed(result.getType()));
        roundedOutside[result] = result;
      } else if (getElementTypeOrSelf(value.getType()).isBF16() &&
                 getElementTypeOrSelf(result.getType()).isF32()) {
        operand.set(wide(value));
      }
    }
  }

  void leave(func::FuncOp func) {
    Operation *end = body.getTerminator();
    builder.setInsertionPoint(end);
    for (OpOperand &result : end->getOpOperands()) {
      Value value = result.get();
      bool crosses =
          crossesStages(resultRoleOf(func, result.getOperandNumber()));
      if (crosses && (isNarrow(value) || isRoundable(value.getType())))
        result.set(narrow(value));
      else if (!frozen.contains(value))
        result.set(wide(value));
    }
  }

  Block &body;
  Demand demand;
  OpBuilder builder;
  DenseSet<Value> frozen;         // f32 parameters that are not trained
  DenseMap<Value, Value> rounded; // bf16 versions of values
};

/// Turns the parameters that @update reads into f32 master weights. A master
/// weight is optimizer state and gets the attributes of the parameter's other
/// optimizer state. @update returns the new master weights and, rounded to
/// bf16, the new parameters.
void keepMasterWeights(func::FuncOp update) {
  Block &body = update.getBody().front();
  Operation *end = body.getTerminator();
  OpBuilder builder(end);
  auto values = llvm::to_vector(end->getOperands());
  SmallVector<DictionaryAttr> attrs;
  for (unsigned result = 0; result < update.getNumResults(); ++result)
    attrs.push_back(update.getResultAttrDict(result));
  llvm::StringMap<DictionaryAttr> masters; // by parameter name
  for (unsigned arg = 0; arg < update.getNumArguments(); ++arg) {
    StringRef name = nameOf(update, arg);
    if (roleOf(update, arg) != nn::Role::Parameter ||
        !isRoundable(body.getArgument(arg).getType()))
      continue;
    NamedAttrList list(portAttrs(update.getContext(), name + nn::kMasterSuffix,
                                 nn::Role::State));
    for (unsigned other = 0; other < update.getNumArguments(); ++other)
      if (roleOf(update, other) == nn::Role::State &&
          nameOf(update, other).rsplit('.').first == name)
        for (NamedAttribute attr : update.getArgAttrDict(other))
          if (!list.get(attr.getName()))
            list.append(attr);
    DictionaryAttr master = list.getDictionary(update.getContext());
    masters[name] = master;
    update.setArgAttrs(arg, master);
  }
  for (unsigned result = 0, count = values.size(); result < count; ++result) {
    StringRef name = nn::nameOf(attrs[result]);
    if (resultRoleOf(update, result) != nn::Role::Parameter ||
        !masters.contains(name))
      continue;
    Value exact = values[result];
    values.push_back(exact);
    attrs.push_back(masters[name]);
    values[result] = roundedForStorage(builder, exact.getLoc(), exact);
  }
  setResults(update, values, attrs);
}

struct MixedPrecisionPass
    : cleave::impl::MixedPrecisionPassBase<MixedPrecisionPass> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      if (func.isExternal() || func.getName() == nn::kInitStateFunc)
        continue;
      if (func.getName() == nn::kUpdateFunc)
        keepMasterWeights(func);
      else if (failed(Narrower(func.getBody().front(), Demand(func)).run(func)))
        return signalPassFailure();
    }
  }
};

} // namespace
