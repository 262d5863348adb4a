// nn-limit-choices: limits how many token-expert pairs an expert accepts. The
// pairs beyond the expert's capacity are dropped.

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/Transforms/BatchFlow.h"
#include "cleave/Dialect/NN/Transforms/Passes.h"
#include "cleave/Dialect/NN/Transforms/PositionFlow.h"
#include "cleave/Support/ValueUtils.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Format.h"

#include <cmath>

namespace cleave {
#define GEN_PASS_DEF_LIMITCHOICESPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {

/// The experts that one router chooses. If it chooses k experts for each token,
/// the token has k token-expert pairs (slots). If an expert is full, later
/// pairs in the order of samples, positions and slots are dropped.
struct Choices {
  Value ids;
  int64_t experts;
  SmallVector<int64_t>
      shape; // [samples, positions] or [samples, positions, slots]
};

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
    if (scope != "sequence" && scope != "microbatch") {
      func.emitError("scope is '")
          << scope << "'; expected sequence or microbatch";
      return signalPassFailure();
    }
    // All grouped products that read the same expert ids share one limit.
    llvm::MapVector<Value, nn::GroupedDotOp> products;
    func.walk([&](nn::GroupedDotOp op) { products.insert({op.getIds(), op}); });
    if (products.empty()) {
      func.emitError("@") << func.getName()
                          << " has no experts whose capacity could be limited: "
                             "no nn.grouped_dot";
      return signalPassFailure();
    }
    SmallVector<Choices> all;
    for (auto [ids, op] : products) {
      FailureOr<Choices> choices = choicesOf(op);
      if (failed(choices))
        return signalPassFailure();
      all.push_back(*choices);
    }
    for (const Choices &choices : all)
      limit(choices);
  }

  FailureOr<Choices> choicesOf(nn::GroupedDotOp op) {
    Value ids = op.getIds();
    ArrayRef<int64_t> sizes = typeOf(ids).getShape();
    bool slots = hasSlots(ids);
    size_t tokenDims = sizes.size() - slots;
    Choices choices{ids, typeOf(op.getMatrices()).getDimSize(0), {}};
    std::optional<int64_t> batch = samplesOfCall();
    bool isSequence = tokenDims >= 2 && sizes[0] == batch.value_or(sizes[0]) &&
                      samplesDimOf(ids).value_or(0) == 0;
    // If the batch has one sample, the ids may lack the batch dimension.
    bool isOne = batch == 1;
    if (!isSequence && !isOne && scope == "sequence")
      return op.emitOpError("has choices ")
             << typeOf(ids)
             << ", but capacity is that of a sequence: expected choices of "
                "[samples, positions, slots] or [samples, positions]; with "
                "parallel.expert.capacity_scope = \"microbatch\" it is that of "
                "all";
    // If the ids have no batch dimension, all tokens count as one sequence.
    choices.shape = {isSequence ? sizes[0] : 1, 1};
    for (int64_t size : sizes.slice(isSequence, tokenDims - isSequence))
      choices.shape[1] *= size;
    if (slots)
      choices.shape.push_back(sizes.back());
    return choices;
  }

  std::optional<int64_t> samplesOfCall() {
    func::FuncOp func = getOperation();
    for (BlockArgument argument : func.getArguments())
      if (auto type = dyn_cast<RankedTensorType>(argument.getType()))
        if (auto dim = nn::batchDimOf(
                func.getArgAttrDict(argument.getArgNumber()), type.getRank()))
          return type.getDimSize(*dim);
    return std::nullopt;
  }

  std::optional<int64_t> samplesDimOf(Value ids) {
    auto flow = nn::BatchFlow::ofArguments(getOperation());
    return flow ? flow->dimOf(ids) : std::nullopt;
  }

  /// Returns whether the last dimension of the ids enumerates the experts that
  /// one token has chosen.
  bool hasSlots(Value ids) {
    int64_t rank = typeOf(ids).getRank();
    if (ids.getDefiningOp<nn::ArgMaxOp>() || rank == 0)
      return false;
    return ids.getDefiningOp<nn::TopKOp>() ||
           !nn::PositionFlow(getOperation()).isPosition(ids, rank - 1);
  }

  void limit(const Choices &choices) {
    int64_t batch = choices.shape[0],
            slots = llvm::product_of(ArrayRef(choices.shape).drop_front());
    bool isWhole = scope == "microbatch";
    double all = double(slots) * double(isWhole ? batch : 1);
    double share = std::ceil(capacity * all / double(choices.experts));
    if (share >= all)
      return;
    OpBuilder b(&getContext());
    b.setInsertionPointAfterValue(choices.ids);
    Location loc = choices.ids.getLoc();
    RankedTensorType type = typeOf(choices.ids);
    Value ids = reshapeTo(b, choices.ids, choices.shape);
    auto count = [&](int64_t size) -> Value {
      return nn::IotaOp::create(
          b, loc, RankedTensorType::get({size}, b.getI64Type()), 0);
    };
    Value positions = count(choices.shape[1]), loads, samples;
    if (isWhole && batch > 1) {
      loads = loadsOf(b, ids, choices.experts);
      samples = count(batch);
    }
    Value place = nn::PositionInExpertOp::create(
        b, loc, ids.getType(), ids, positions, loads, samples, choices.experts);
    auto number = [&](int64_t value) {
      return nn::createSplat(b, loc, typeOf(ids), value);
    };
    Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, place,
                                       number(int64_t(share)));
    Value kept = arith::SelectOp::create(b, loc, fits, ids, number(-1));
    Value limited = reshapeTo(b, kept, type.getShape());
    Value(choices.ids).replaceUsesWithIf(limited, [&](OpOperand &use) {
      if (auto gather = dyn_cast<nn::GatherOp>(use.getOwner()))
        return use.get() == gather.getIndices() &&
               isTableOf(gather, choices.experts);
      return isa<nn::GroupedDotOp>(use.getOwner());
    });
    std::string factor;
    llvm::raw_string_ostream(factor) << llvm::format("%g", double(capacity));
    emitRemark(loc, "an expert takes ")
        << int64_t(share) << " of the " << int64_t(all) << " slots of a "
        << scope << " (capacity " << factor << ", " << choices.experts
        << " experts); slots beyond are dropped";
  }

  static Value reshapeTo(OpBuilder &b, Value value, ArrayRef<int64_t> shape) {
    RankedTensorType type = typeOf(value);
    if (type.getShape() == shape)
      return value;
    return nn::ReshapeOp::create(b, value.getLoc(), type.clone(shape), value);
  }

  /// Returns the loads of the experts, [samples, experts]: the number of
  /// token-expert pairs that each sample has with each expert.
  static Value loadsOf(OpBuilder &b, Value ids, int64_t experts) {
    Location loc = ids.getLoc();
    RankedTensorType type = typeOf(ids);
    SmallVector<int64_t> shape(type.getShape());
    shape.push_back(experts);
    int64_t last = shape.size() - 1;
    auto pairs = type.clone(shape);
    auto dimsFrom = [](int64_t begin, int64_t end) {
      return llvm::to_vector(llvm::seq<int64_t>(begin, end));
    };
    Value chosen =
        nn::BroadcastOp::create(b, loc, pairs, ids, dimsFrom(0, last));
    Value list = nn::IotaOp::create(b, loc, type.clone({experts}), uint64_t(0));
    Value each =
        nn::BroadcastOp::create(b, loc, pairs, list, ArrayRef<int64_t>{last});
    Value hits =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, chosen, each);
    Value ones = arith::ExtUIOp::create(b, loc, pairs, hits);
    return nn::ReduceOp::create(b, loc, nn::Combiner::Sum, ones,
                                dimsFrom(1, last));
  }

  /// Returns whether the gather reads a table with one row per expert, such as
  /// a bias.
  static bool isTableOf(nn::GatherOp gather, int64_t experts) {
    return gather.getDim() == 0 &&
           typeOf(gather.getTable()).getDimSize(0) == experts;
  }
};

} // namespace
