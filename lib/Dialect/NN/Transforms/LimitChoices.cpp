// nn-limit-choices: how many of a sequence's slots an expert takes.

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/Transforms/Passes.h"

#include "llvm/ADT/MapVector.h"

#include <cmath>

namespace cleave {
#define GEN_PASS_DEF_LIMITCHOICESPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {

RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

struct LimitChoicesPass : cleave::impl::LimitChoicesPassBase<LimitChoicesPass> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (capacity == 0 || func.isDeclaration())
      return;
    if (!(capacity > 0)) {
      func.emitError("capacity is ")
          << double(capacity) << "; expected more than 0, or 0 for none";
      return signalPassFailure();
    }
    // Experts by choice: one limit serves all products with it.
    llvm::MapVector<Value, int64_t> experts;
    WalkResult walked = func.walk([&](nn::GroupedDotOp op) {
      RankedTensorType ids = typeOf(op.getIds());
      if (ids.getRank() != 3) {
        op.emitOpError("has choices ")
            << ids
            << ", but capacity is that of a sequence: expected choices of "
               "[samples, positions, slots]";
        return WalkResult::interrupt();
      }
      experts.insert({op.getIds(), typeOf(op.getMatrices()).getDimSize(0)});
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return signalPassFailure();
    if (experts.empty()) {
      func.emitError("has no experts whose capacity could be limited: "
                     "no nn.grouped_dot");
      return signalPassFailure();
    }
    for (auto [ids, count] : experts)
      limit(ids, count);
  }

  /// Slots are taken in order of positions, then of slots. That before a slot
  /// so many of its sequence choose the same expert is counted pair by pair: it
  /// is elementwise and a sum, so that it splits like all else.
  void limit(Value ids, int64_t experts) {
    RankedTensorType type = typeOf(ids);
    int64_t batch = type.getDimSize(0),
            slots = type.getDimSize(1) * type.getDimSize(2);
    double share = std::ceil(capacity * double(slots) / double(experts));
    if (share >= double(slots))
      return;
    auto most = static_cast<int64_t>(share);
    OpBuilder b(&getContext());
    b.setInsertionPointAfterValue(ids);
    Location loc = ids.getLoc();
    auto pairs =
        RankedTensorType::get({batch, slots, slots}, type.getElementType());
    auto number = [&](RankedTensorType of, int64_t value) {
      return arith::ConstantOp::create(
          b, loc,
          DenseElementsAttr::get(of,
                                 b.getIntegerAttr(of.getElementType(), value)));
    };
    auto list = RankedTensorType::get({batch, slots}, type.getElementType());
    Value flat = nn::ReshapeOp::create(b, loc, list, ids);
    Value mine =
        nn::BroadcastOp::create(b, loc, pairs, flat, ArrayRef<int64_t>{0, 1});
    Value other =
        nn::BroadcastOp::create(b, loc, pairs, flat, ArrayRef<int64_t>{0, 2});
    auto places = pairs.clone(b.getI64Type());
    Value at = nn::IotaOp::create(b, loc, places, uint64_t(1));
    Value before = nn::IotaOp::create(b, loc, places, uint64_t(2));
    Value same =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, mine, other);
    Value earlier =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, before, at);
    Value counts = arith::AndIOp::create(b, loc, same, earlier);
    Value ones = arith::SelectOp::create(b, loc, counts, number(pairs, 1),
                                         number(pairs, 0));
    Value taken = nn::ReduceOp::create(b, loc, list, nn::Combiner::Sum, ones,
                                       ArrayRef<int64_t>{2});
    Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, taken,
                                       number(list, most));
    Value chosen =
        arith::SelectOp::create(b, loc, fits, flat, number(list, -1));
    Value limited = nn::ReshapeOp::create(b, loc, type, chosen);
    ids.replaceUsesWithIf(limited, [&](OpOperand &use) {
      if (auto gather = dyn_cast<nn::GatherOp>(use.getOwner()))
        return use.get() == gather.getIndices() && isTableOf(gather, experts);
      return isa<nn::GroupedDotOp>(use.getOwner());
    });
    emitRemark(loc, "an expert takes ")
        << most << " of the " << slots << " slots of a sequence (capacity "
        << double(capacity) << ", " << experts
        << " experts); slots beyond are dropped";
  }

  /// Whether rows of it belong to experts, as biases do.
  static bool isTableOf(nn::GatherOp gather, int64_t experts) {
    return gather.getDim() == 0 &&
           typeOf(gather.getTable()).getDimSize(0) == experts;
  }
};

} // namespace
