// nn-add-dropout: random zeroes where a branch joins the residual stream.

#include "Boundary.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/Batch.h"

namespace cleave {
#define GEN_PASS_DEF_ADDDROPOUTPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

bool isParameter(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return false;
  auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return roleOf(func, argument.getArgNumber()) == "parameter";
}

/// A parameter repeated along other dimensions: a bias, not a stream.
bool isBias(Value value) {
  auto broadcast = value.getDefiningOp<nn::BroadcastOp>();
  return isParameter(value) || (broadcast && isParameter(broadcast.getInput()));
}

/// The result of a contraction with a parameter, with or without its bias.
bool isBranch(Value value) {
  if (auto add = value.getDefiningOp<arith::AddFOp>()) {
    if (isBias(add.getRhs()))
      value = add.getLhs();
    else if (isBias(add.getLhs()))
      value = add.getRhs();
    else
      return false;
  }
  auto einsum = value.getDefiningOp<nn::EinsumOp>();
  return einsum &&
         (isParameter(einsum.getLhs()) || isParameter(einsum.getRhs()));
}

/// Rows of a table that is a parameter.
bool isEmbedding(Value value) {
  auto gather = value.getDefiningOp<nn::GatherOp>();
  return gather && isParameter(gather.getTable());
}

struct AddDropoutPass : cleave::impl::AddDropoutPassBase<AddDropoutPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunc);
    if (!loss || loss.isExternal()) {
      module.emitError("has no function @loss to add dropout to");
      return signalPassFailure();
    }
    if (!(p >= 0 && p < 1)) {
      loss.emitError("dropout must be at least 0 and below 1, found ") << p;
      return signalPassFailure();
    }
    if (p == 0)
      return;
    func::FuncOp func = cloneAs(loss, nn::kLossTrainFunc);
    std::optional<int64_t> batch = batchOf(func);
    SmallVector<Value> places = findPlaces(func, batch);
    if (places.empty()) {
      func.erase();
      loss.emitError("no place for dropout was found: nothing that a parameter "
                     "computes joins a sum per sample; set train.dropout to 0");
      return signalPassFailure();
    }
    insert(func, *batch, places);
  }

  /// How many samples a call takes.
  std::optional<int64_t> batchOf(func::FuncOp func) {
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
      auto type = cast<RankedTensorType>(func.getArgumentTypes()[arg]);
      if (std::optional<int64_t> dim =
              nn::batchDimOf(func.getArgAttrDict(arg), type.getRank()))
        return type.getDimSize(*dim);
    }
    return std::nullopt;
  }

  static bool hasSamples(Value value, int64_t batch) {
    auto type = cast<RankedTensorType>(value.getType());
    return type.getRank() > 1 && type.getDimSize(0) == batch;
  }

  /// The addends of residual sums that branches compute, and sums with
  /// embeddings, in program order.
  SmallVector<Value> findPlaces(func::FuncOp func,
                                std::optional<int64_t> batch) {
    llvm::SetVector<Value> places;
    auto consider = [&](Value value) {
      // Everything belongs to a single sample, also without its dimension.
      if (batch && (*batch == 1 || hasSamples(value, *batch)))
        places.insert(value);
    };
    func.walk([&](arith::AddFOp add) {
      Value lhs = add.getLhs(), rhs = add.getRhs();
      if (isEmbedding(lhs) || isEmbedding(rhs)) {
        consider(add);
        return;
      }
      if (isBias(lhs) || isBias(rhs))
        return;
      for (Value addend : {lhs, rhs})
        if (isBranch(addend))
          consider(addend);
    });
    return places.takeVector();
  }

  void insert(func::FuncOp func, int64_t batch, ArrayRef<Value> places) {
    MLIRContext *context = &getContext();
    Builder types(context);
    auto addArgument = [&](ArrayRef<int64_t> shape, StringRef name) -> Value {
      unsigned index = func.getNumArguments();
      auto type = RankedTensorType::get(shape, types.getI64Type());
      (void)func.insertArgument(index, type, boundaryAttrs(context, name, name),
                                func.getLoc());
      return func.getArgument(index);
    };
    Value ids = addArgument({batch}, "sample_ids");
    Value seed = addArgument({}, "seed"), step = addArgument({}, "step");
    for (auto [index, place] : llvm::enumerate(places)) {
      Value old = place, value = place;
      OpBuilder b(context);
      b.setInsertionPointAfterValue(value);
      Location loc = value.getLoc();
      auto type = cast<RankedTensorType>(value.getType());
      SmallVector<int64_t> shape(type.getShape());
      if (!hasSamples(value, batch)) {
        shape.insert(shape.begin(), 1);
        value = nn::ReshapeOp::create(b, loc, type.clone(shape), value);
      }
      Value dropped = nn::DropoutOp::create(
          b, loc, value.getType(), value, seed, step, ids, ValueRange(),
          b.getF64FloatAttr(p), b.getI64IntegerAttr(index),
          b.getDenseI64ArrayAttr(shape));
      Operation *user =
          value == old ? dropped.getDefiningOp() : value.getDefiningOp();
      if (value != old)
        dropped = nn::ReshapeOp::create(b, loc, type, dropped);
      old.replaceAllUsesExcept(dropped, user);
    }
  }
};

} // namespace
