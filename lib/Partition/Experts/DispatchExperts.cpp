//===- DispatchExperts.cpp - dist-dispatch-experts ------------------------===//
//
// In per-rank programs that dist-verify-variance has accepted, replaces gathers
// of expert matrices by an exchange of tokens. Tokens are dispatched to the
// ranks of their experts, and the results are sent back and combined. Tokens
// are exchanged in several rounds, since buffers are bounded (ExpertRows.h). An
// exchange that crosses nodes may have two hops: first between nodes, then
// within a node (ExpertLinks.h).
//
//===----------------------------------------------------------------------===//

#include "Barriers.h"
#include "ExpertLinks.h"
#include "ExpertRows.h"
#include "cleave/Partition/Utils/CollectiveParts.h"

#include "cleave/Cost/LinkModel.h"
#include "cleave/Interfaces/RowShare.h"
#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave {
#define GEN_PASS_DEF_DISTDISPATCHEXPERTSPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

class Dispatcher {
public:
  /// `next` has the axes of the second hop if this is the first hop of a
  /// hierarchical exchange, and is null otherwise. `before` is the dispatcher
  /// of the first hop if this is the second hop, and null otherwise.
  Dispatcher(func::FuncOp func, const MeshAxes &mesh, AxisListAttr axes,
             double maxLoad, AxisListAttr next = {},
             const Dispatcher *before = nullptr)
      : func(func), axes(axes), next(next), rows(func, mesh, axes, maxLoad) {
    rows.sendOnOver(next);
    if (before)
      rows.continueFrom(before->rows);
  }

  void run() {
    SmallVector<Operation *> ops;
    func.walk([&](Operation *op) {
      if (isa<nn::GroupedDotOp, nn::GroupedOuterOp, nn::ScatterAddOp,
              arith::AddFOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      rows.insertBefore(op);
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
    auto multiply = [this, &choice, matrices, type,
                     transposed = op.getTransposed()](unsigned round,
                                                      Value there) {
      Value ids = choice.rounds[round].ids;
      SmallVector<int64_t> shape(typeOf(ids).getShape());
      shape.push_back(type.getShape().back());
      Value product = rows.make<nn::GroupedDotOp>(
          type.clone(shape), there, matrices->value, ids, transposed);
      noteShare(choice, round, product);
      return product;
    };
    SmallVector<Value> there = rows.inRounds(choice, [&](unsigned round) {
      return multiply(round, rows.dispatched(choice, round, op.getInput()));
    });
    auto again = [this, &choice, multiply,
                  input = op.getInput()](unsigned round) {
      Value there = rows.recomputed(choice, round, input);
      return there ? multiply(round, there) : Value();
    };
    op.getResult().replaceAllUsesWith(rows.combine(choice, there, type, again));
  }

  void visit(nn::GroupedOuterOp op) {
    std::optional<OpResult> tile = scattered(op.getResult(), axes);
    if (!tile)
      return;
    Choice &choice = rows.choiceOf(
        op.getIds(), {*tile, typeOf(op.getResult()).getDimSize(0)});
    SmallVector<Value> sums = rows.inRounds(choice, [&](unsigned round) {
      Value left = rows.dispatched(choice, round, op.getLeft());
      Value right = rows.dispatched(choice, round, op.getRight());
      Value sum = rows.make<nn::GroupedOuterOp>(tile->getType(), left, right,
                                                choice.rounds[round].ids);
      noteShare(choice, round, sum);
      return sum;
    });
    replace(choice, *tile, sums);
  }

  /// A scatter-add of tokens by expert id gives a sum per expert. It is
  /// computed on the ranks that hold the experts, to which the tokens are sent
  /// anyway.
  void visit(nn::ScatterAddOp op) {
    std::optional<OpResult> tile = scattered(op.getResult(), axes);
    if (!tile || op.getDim() != 0 || typeOf(*tile).getRank() != 2)
      return;
    Choice *choice = rows.knownChoice(
        op.getIndices(), {*tile, typeOf(op.getResult()).getDimSize(0)});
    if (!choice || !isThere(*choice, op.getUpdates()))
      return;
    SmallVector<Value> sums = rows.inRounds(*choice, [&](unsigned round) {
      Value there = rows.dispatched(*choice, round, op.getUpdates());
      return rows.make<nn::ScatterAddOp>(
          tile->getType(), choice->rounds[round].ids, there, uint64_t(0));
    });
    replace(*choice, *tile, sums);
  }

  /// Moves an addition of values that were sent back from the expert ranks to
  /// the expert ranks, so that only the sum is sent back. One of the operands
  /// may instead be a value that is looked up per expert, like a bias.
  void visit(arith::AddFOp op) {
    const ExpertRows::Combined *a = rows.combinedOf(op.getLhs()),
                               *b = rows.combinedOf(op.getRhs());
    if (a && b ? a->choice != b->choice : !a && !b)
      return;
    Choice &choice = *(a ? a : b)->choice;
    // If only one operand is sent back from the expert ranks, moving the
    // addition saves something only if no other operation reads this operand:
    // otherwise it is sent back anyway.
    if ((!a || !b) && (!(a ? op.getLhs() : op.getRhs()).hasOneUse() ||
                       !rows.ofExperts(choice, a ? op.getRhs() : op.getLhs())))
      return;
    SmallVector<Value> there = rows.inRounds(choice, [&](unsigned round) {
      return rows.make<arith::AddFOp>(
          rows.atExperts(choice, round, op.getLhs()),
          rows.atExperts(choice, round, op.getRhs()));
    });
    auto again = [this, &choice, x = op.getLhs(),
                  y = op.getRhs()](unsigned round) {
      Value left = rows.recomputed(choice, round, x),
            right = rows.recomputed(choice, round, y);
      return left && right ? rows.make<arith::AddFOp>(left, right) : Value();
    };
    op.getResult().replaceAllUsesWith(
        rows.combine(choice, there, typeOf(op.getResult()), again));
  }

  /// Returns whether the tokens `updates` are at the expert ranks already, or
  /// will be because a product reads them there.
  bool isThere(Choice &choice, Value updates) {
    if (rows.atExperts(choice, 0, updates))
      return true;
    Value sent = rows.unmasked(choice, updates);
    return llvm::any_of(sent.getUsers(), [&](Operation *user) {
      auto dot = dyn_cast<nn::GroupedDotOp>(user);
      std::optional<Tile> matrices = dot && dot.getInput() == sent
                                         ? rows.gathered(dot.getMatrices())
                                         : std::nullopt;
      return matrices && rows.knownChoice(dot.getIds(), *matrices) == &choice;
    });
  }

  /// Returns the result of a reduce-scatter over `axes`, if it is the only
  /// reader of `sum`; nullopt otherwise.
  static std::optional<OpResult> scattered(Value sum, AxisListAttr axes) {
    if (!sum.hasOneUse())
      return std::nullopt;
    if (auto pad = dyn_cast<nn::PadOp>(*sum.user_begin())) {
      sum = pad;
      if (!sum.hasOneUse())
        return std::nullopt;
    }
    OpOperand &use = *sum.use_begin();
    auto scatter = dyn_cast<ReduceScatterOp>(use.getOwner());
    if (!scatter || scatter.getKind() != ReduceKind::Sum ||
        scatter.getAxes() != axes ||
        scatter.getDims()[use.getOperandNumber()] != 0)
      return std::nullopt;
    return scatter->getResult(use.getOperandNumber());
  }

  /// Replaces `tile`, the result of a reduce-scatter, by the sum of `terms`:
  /// for each exchange round, the sum over the tokens of this round. In a
  /// hierarchical exchange, the tile may be reduce-scattered again over the
  /// axes of the second hop. Then each term is reduce-scattered before the
  /// terms are added, since the second hop exchanges the tokens of each round
  /// of the first hop separately, and only if the round has tokens.
  void replace(Choice &choice, OpResult tile, ArrayRef<Value> terms) {
    SmallVector<Value> sums(terms);
    std::optional<OpResult> last = next ? scattered(tile, next) : std::nullopt;
    if (last) {
      auto scatter = cast<ReduceScatterOp>(last->getOwner());
      sums = rows.inRounds(choice, [&](unsigned round) {
        return rows.make<ReduceScatterOp>(
            TypeRange{last->getType()}, scatter.getKindAttr(),
            ValueRange{terms[round]},
            DenseI64ArrayAttr::get(func.getContext(), {0}),
            scatter.getMeshAttr(), next, scatter.getPurposeAttr());
      });
      drop(last->getOwner());
    }
    (last ? *last : tile).replaceAllUsesWith(rows.sum(choice, sums));
    drop(tile.getOwner());
  }

  /// Remembers a reduce-scatter whose results are no longer read; its unread
  /// operands are removed at the end.
  void drop(Operation *scatter) {
    if (!llvm::is_contained(scatters, scatter))
      scatters.push_back(scatter);
  }

  void noteShare(const Choice &choice, unsigned round, Value product) {
    product.getDefiningOp()->setAttr(
        kRowShareAttrName,
        Builder(func).getI64IntegerAttr(rows.shareOf(choice, round)));
  }

  void eraseUnread() {
    // A reduce-scatter over the axes of the second hop reads the result of one
    // over the axes of the first hop, so it is erased first.
    llvm::stable_sort(scatters, [&](Operation *a, Operation *b) {
      return isOver(a, next) && !isOver(b, next);
    });
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

  static bool isOver(Operation *scatter, AxisListAttr axes) {
    return cast<ReduceScatterOp>(scatter).getAxes() == axes;
  }

  func::FuncOp func;
  AxisListAttr axes, next;
  ExpertRows rows;
  SmallVector<Operation *> scatters;
};

struct DistDispatchExpertsPass
    : cleave::impl::DistDispatchExpertsPassBase<DistDispatchExpertsPass> {
  using Base::Base;

  void runOnOperation() override {
    if (!(maxLoad >= 1)) {
      getOperation().emitError("max-load is ")
          << double(maxLoad) << "; expected at least 1";
      return signalPassFailure();
    }
    FailureOr<MeshAxes> mesh = MeshAxes::of(getOperation());
    if (failed(mesh))
      return signalPassFailure();
    auto axes = AxisListAttr::get(&getContext(),
                                  {AxisRefAttr::get(&getContext(), axis)});
    if (llvm::none_of(
            mesh->mesh().getAxes(),
            [&](MeshAxisAttr other) { return other.getName() == axis; }) ||
        axesSize(mesh->mesh(), axes.getAxes()) == 1)
      return;
    MeshOp meshOp = *getOperation().getOps<MeshOp>().begin();
    std::optional<Levels> levels = Levels::of(meshOp, axis);
    if (exchange != "auto" && exchange != "direct" &&
        exchange != "hierarchical") {
      getOperation().emitError("exchange is '")
          << exchange << "'; expected auto, direct or hierarchical";
      return signalPassFailure();
    }
    if (exchange == "hierarchical" && !levels) {
      getOperation().emitError(
          "a hierarchical exchange needs two or more nodes that have the "
          "same number of ranks each, two or more; the ")
          << axesSize(mesh->mesh(), axes.getAxes()) << " ranks of axis '"
          << axis << "' are not placed so (mesh.ranks_per_node)";
      return signalPassFailure();
    }
    FailureOr<Cluster> machine = cost::loadCluster(getOperation(), cluster);
    if (failed(machine))
      return signalPassFailure();
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      if (func.isDeclaration() || func.getOps<nn::GroupedDotOp>().empty())
        continue;
      if (!levels || exchange == "direct" ||
          (exchange == "auto" && !pays(func, *levels, axes, *machine))) {
        Dispatcher(func, *mesh, axes, maxLoad).run();
        continue;
      }
      if (!splitByLevels(func, *levels, axes))
        continue;
      emitRemark(func.getLoc(), "tokens of @")
          << func.getName() << " are dispatched to experts between "
          << axesSize(mesh->mesh(), levels->between.getAxes())
          << " nodes first, then among "
          << axesSize(mesh->mesh(), levels->within.getAxes())
          << " ranks of a node, over axis '" << axis << "'";
      FailureOr<MeshAxes> parts = MeshAxes::of(getOperation());
      if (failed(parts))
        return signalPassFailure();
      Dispatcher between(func, *parts, levels->between, maxLoad,
                         levels->within);
      between.run();
      Dispatcher(func, *parts, levels->within, maxLoad, {}, &between).run();
    }
  }
};

} // namespace
