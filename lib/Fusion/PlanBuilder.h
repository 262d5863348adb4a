// Builds one candidate plan of a kernel. KernelPlan::create compares
// candidates.

#ifndef CLEAVE_LIB_FUSION_PLANBUILDER_H
#define CLEAVE_LIB_FUSION_PLANBUILDER_H

#include "cleave/Fusion/KernelPlan.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave::kernels {

/// The parameters of a candidate plan.
struct PlanChoice {
  /// The number of rows; 0 for a plan with a single loop over all elements
  /// (Shape::Flat).
  int64_t rows = 0;
  /// Splits of columns into two loops: maps the number of columns to the size
  /// of the innermost loop. Without an entry, the innermost loop runs over all
  /// columns.
  std::map<int64_t, int64_t> lanes;
};

/// Returns the largest stage of the values that an index depends on. The stage
/// of a value is the number of row reductions before it.
inline int stageOf(const IndexExpr &index) {
  int stage = 0;
  for (auto [var, factor] : index.terms()) {
    if (var->node)
      stage = std::max(stage, var->node->stage);
    stage = std::max(stage, stageOf(var->base));
  }
  return stage;
}

class PlanBuilder {
public:
  PlanBuilder(KernelPlan &plan, llvm::function_ref<bool(mlir::Operation *)> in,
              const PlanChoice &choice)
      : plan(plan), inside(in), choice(choice) {}

  /// Builds the plan for `choice`. Returns false and sets `error` if the kernel
  /// has no such plan.
  bool build();
  bool buildScatter(nn::ScatterAddOp op);
  std::string error;

private:
  using Index = llvm::ArrayRef<IndexExpr>;
  using IndexVec = llvm::SmallVector<IndexExpr>;

  Columns *columnsOf(int64_t count);
  const IndexVar *sequenceOf(int64_t count);
  IndexExpr rowIndex() const {
    return plan.row ? IndexSpace::indexOf(plan.row) : IndexExpr(0);
  }
  ColumnLoop &loopOf(Columns *columns, int stage);
  bool addOutput(unsigned number, mlir::Value value);

  /// Returns the node that computes the element of `value` at `index`. Returns
  /// null and sets `error` if no code can be generated for it. The node is only
  /// read if `guard` is true; null means always.
  Node *pull(mlir::Value value, Index index, Node *guard);
  Node *pullOp(mlir::OpResult value, Index index, Node *guard);
  Node *pullView(mlir::Operation *op, Index index, Node *guard, bool &handled);
  Node *pullCompute(mlir::OpResult value, Index index, Node *guard);
  Node *pullConcat(nn::ConcatOp op, Index index, Node *guard);
  Node *pullPad(nn::PadOp op, Index index, Node *guard);
  Node *pullGather(nn::GatherOp op, Index index, Node *guard);
  Node *pullReduce(nn::ReduceOp op, Index index, Node *guard);
  Node *pullConstant(mlir::arith::ConstantOp op, Index index, Node *guard);
  Node *pullRankSlice(mlir::Operation *op, Index index, Node *guard);

  Node *fail(const llvm::Twine &message);
  Node *create(Node::Kind kind, mlir::Type type, uint64_t loops, int stage);
  Node *createAccess(Node::Kind kind, mlir::Type type, const IndexExpr &index,
                     Node *guard);
  Node *constant(mlir::Type type, double value);
  Node *select(Node *condition, Node *yes, Node *no);
  Node *conjunction(Node *a, Node *b);
  Node *inRange(const IndexExpr &index, int64_t low, int64_t high);
  /// Returns a loaded value (`node`) as an index in [0, size). A value out of
  /// range is replaced by 0.
  IndexExpr dataIndex(Node *node, int64_t size);

  KernelPlan &plan;
  llvm::function_ref<bool(mlir::Operation *)> inside;
  const PlanChoice &choice;
  uint64_t sequenceLoops = 0;
  std::map<int64_t, const IndexVar *> sequences;
  std::map<std::pair<Node *, int64_t>, IndexExpr> dataIndices;
  using Key = std::tuple<void *, Node *, std::vector<IndexExpr>>;
  std::map<Key, Node *> memo;
  llvm::DenseMap<mlir::Operation *, Node *> rowReductions;
};

/// Decides which values a loop stores in a buffer, so that later loops need not
/// recompute them. Only plans with a loop over rows have buffers, since several
/// loops over the columns of a row run one after the other.
void assignBuffers(KernelPlan &plan);
/// Returns roughly how many cycles an elementwise operation takes for one
/// vector.
double weightOf(mlir::Operation *op);
/// Estimates the cost of the plan, and sets its members extent, grain, cost and
/// irregular.
void estimate(KernelPlan &plan);

} // namespace cleave::kernels

#endif
