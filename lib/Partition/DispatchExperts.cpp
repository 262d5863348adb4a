//===- DispatchExperts.cpp - dist-dispatch-experts ------------------------===//
//
// On proved local programs: rows that would be multiplied by gathered matrices go
// to the ranks that have them, and come back.
//
//===----------------------------------------------------------------------===//

#include "Barriers.h"
#include "CollectiveParts.h"
#include "ExpertRows.h"

#include "cleave/Interfaces/RowShare.h"
#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Partition/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_DISTDISPATCHEXPERTSPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

class Dispatcher {
public:
  Dispatcher(func::FuncOp func, const MeshAxes &mesh, AxisListAttr axes, double maxLoad)
      : func(func), axes(axes), rows(func, mesh, axes, maxLoad) {}

  void run() {
    SmallVector<Operation *> ops;
    func.walk([&](Operation *op) {
      if (isa<nn::GroupedDotOp, nn::GroupedOuterOp, nn::ScatterAddOp, arith::AddFOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      rows.at(op);
      if (auto dot = dyn_cast<nn::GroupedDotOp>(op))
        visit(dot);
      else if (auto outer = dyn_cast<nn::GroupedOuterOp>(op))
        visit(outer);
      else if (auto add = dyn_cast<nn::ScatterAddOp>(op))
        visit(add);
      else
        visit(cast<arith::AddFOp>(op));
    }
    eraseUnread();
  }

private:
  void visit(nn::GroupedDotOp op) {
    std::optional<Tile> matrices = rows.gathered(op.getMatrices());
    if (!matrices)
      return;
    Choice &choice = rows.choiceOf(op.getIds(), *matrices);
    RankedTensorType type = typeOf(op.getResult());
    auto multiply = [this, &choice, matrices, type, transposed = op.getTransposed()](unsigned round,
                                                                                     Value there) {
      Value ids = choice.rounds[round].ids;
      SmallVector<int64_t> shape(typeOf(ids).getShape());
      shape.push_back(type.getShape().back());
      Value product =
          rows.make<nn::GroupedDotOp>(type.clone(shape), there, matrices->value, ids, transposed);
      noteShare(choice, round, product);
      return product;
    };
    SmallVector<Value> there = rows.inRounds(choice, [&](unsigned round) {
      return multiply(round, rows.arrive(choice, round, op.getInput()));
    });
    auto again = [this, &choice, multiply, input = op.getInput()](unsigned round) {
      Value there = rows.again(choice, round, input);
      return there ? multiply(round, there) : Value();
    };
    op.getResult().replaceAllUsesWith(rows.bringBack(choice, there, type, again));
  }

  void visit(nn::GroupedOuterOp op) {
    std::optional<OpResult> tile = scattered(op.getResult());
    if (!tile)
      return;
    Choice &choice = rows.choiceOf(op.getIds(), {*tile, typeOf(op.getResult()).getDimSize(0)});
    SmallVector<Value> sums = rows.inRounds(choice, [&](unsigned round) {
      Value left = rows.arrive(choice, round, op.getLeft());
      Value right = rows.arrive(choice, round, op.getRight());
      Value sum =
          rows.make<nn::GroupedOuterOp>(tile->getType(), left, right, choice.rounds[round].ids);
      noteShare(choice, round, sum);
      return sum;
    });
    replace(*tile, rows.sum(choice, sums));
  }

  /// Sums over the rows of each expert, where the rows are there.
  void visit(nn::ScatterAddOp op) {
    std::optional<OpResult> tile = scattered(op.getResult());
    if (!tile || op.getDim() != 0 || typeOf(*tile).getRank() != 2)
      return;
    Choice *choice =
        rows.knownChoice(op.getIndices(), {*tile, typeOf(op.getResult()).getDimSize(0)});
    if (!choice || !rows.known(*choice, 0, op.getUpdates()))
      return;
    SmallVector<Value> sums = rows.inRounds(*choice, [&](unsigned round) {
      Value there = rows.arrive(*choice, round, op.getUpdates());
      return rows.make<nn::ScatterAddOp>(tile->getType(), choice->rounds[round].ids, there,
                                         uint64_t(0));
    });
    replace(*tile, rows.sum(*choice, sums));
  }

  /// Sums of rows that are elsewhere come back once.
  void visit(arith::AddFOp op) {
    const ExpertRows::Back *a = rows.backOf(op.getLhs()), *b = rows.backOf(op.getRhs());
    if (!a || !b || a->choice != b->choice)
      return;
    Choice &choice = *a->choice;
    SmallVector<Value> there = rows.inRounds(choice, [&](unsigned round) {
      return rows.make<arith::AddFOp>(a->there[round], b->there[round]);
    });
    auto again = [this, x = a->again, y = b->again](unsigned round) {
      Value left = x(round), right = y(round);
      return left && right ? rows.make<arith::AddFOp>(left, right) : Value();
    };
    op.getResult().replaceAllUsesWith(rows.bringBack(choice, there, typeOf(op.getResult()), again));
  }

  /// The scatter over the axis of a sum that nothing else reads: which part of it.
  std::optional<OpResult> scattered(Value sum) const {
    if (!sum.hasOneUse())
      return std::nullopt;
    if (auto pad = dyn_cast<nn::PadOp>(*sum.user_begin())) {
      sum = pad;
      if (!sum.hasOneUse())
        return std::nullopt;
    }
    OpOperand &use = *sum.use_begin();
    auto scatter = dyn_cast<ReduceScatterOp>(use.getOwner());
    if (!scatter || scatter.getKind() != ReduceKind::Sum || scatter.getAxes() != axes ||
        scatter.getDims()[use.getOperandNumber()] != 0)
      return std::nullopt;
    return scatter->getResult(use.getOperandNumber());
  }

  void replace(OpResult tile, Value sum) {
    tile.replaceAllUsesWith(sum);
    if (!llvm::is_contained(scatters, tile.getOwner()))
      scatters.push_back(tile.getOwner());
  }

  void noteShare(const Choice &choice, unsigned round, Value product) {
    product.getDefiningOp()->setAttr(kRowShareAttrName,
                                     Builder(func).getI64IntegerAttr(rows.shareOf(choice, round)));
  }

  void eraseUnread() {
    for (Operation *scatter : scatters)
      dropUnreadParts(scatter);
    relaxBarriers(func);
    SmallVector<Operation *> all;
    func.walk([&](Operation *op) { all.push_back(op); });
    for (Operation *op : llvm::reverse(all)) {
      if (op == func)
        continue;
      if (isOpTriviallyDead(op))
        op->erase();
      else if (isa<AllGatherOp>(op))
        dropUnreadParts(op);
    }
  }

  func::FuncOp func;
  AxisListAttr axes;
  ExpertRows rows;
  SmallVector<Operation *> scatters;
};

struct DistDispatchExpertsPass
    : cleave::impl::DistDispatchExpertsPassBase<DistDispatchExpertsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (!(maxLoad >= 1)) {
      getOperation().emitError("max-load is ") << double(maxLoad) << "; expected at least 1";
      return signalPassFailure();
    }
    FailureOr<MeshAxes> mesh = MeshAxes::of(getOperation());
    if (failed(mesh))
      return signalPassFailure();
    auto axes = AxisListAttr::get(&getContext(), {AxisRefAttr::get(&getContext(), axis)});
    if (llvm::none_of(mesh->mesh().getAxes(),
                      [&](MeshAxisAttr other) { return other.getName() == axis; }) ||
        axesSize(mesh->mesh(), axes.getAxes()) == 1)
      return;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isDeclaration())
        Dispatcher(func, *mesh, axes, maxLoad).run();
  }
};

} // namespace
