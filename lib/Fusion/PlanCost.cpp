// Estimates the cost of a plan in cycles of one core. Only comparisons between
// plans matter: fewer irregular accesses, less work, less memory traffic.

#include "PlanBuilder.h"

#include "cleave/Interfaces/Interfaces.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

double cleave::kernels::weightOf(Operation *op) {
  if (isa<arith::DivFOp, math::SqrtOp, math::RsqrtOp, arith::MulUIExtendedOp,
          arith::MulSIExtendedOp, arith::RemFOp>(op))
    return 5;
  if (isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp>(op))
    return 20;
  // Without an instruction for it, two instructions extend a vector.
  if (isa<arith::ExtFOp>(op))
    return 2;
  if (isa<math::AbsFOp, math::AbsIOp, math::FloorOp, math::CeilOp, math::FmaOp,
          math::CopySignOp>(op))
    return 1;
  return isa<math::MathDialect>(op->getDialect()) ? 20 : 1;
}

namespace {

constexpr double kLanes = 8;  // elements of a typical vector
constexpr double kLoad = 4;   // loading a vector
constexpr double kReload = 1; // loading a vector that the row has read before
constexpr double kStore = 4;  // storing a vector
constexpr double kScalarAccess = 4; // accessing an element alone
constexpr double kDivision = 6;     // dividing integers by a constant
constexpr double kLaunch = 3000;    // starting a kernel
constexpr double kPiece = 20000; // work for which another thread is worthwhile

class Estimator {
public:
  explicit Estimator(KernelPlan &plan) : plan(plan) {}

  void run() {
    if (plan.shape == KernelPlan::Shape::Scatter) {
      scatter();
      return;
    }
    for (auto [number, loop] : llvm::enumerate(plan.loops)) {
      seen.clear();
      current = number;
      lane = loop.columns->lane;
      double rows = plan.row ? plan.row->size : 1;
      plan.cost += rows * loop.columns->outer->size * 6 + rows * 10;
      for (const Reduction *reduction : loop.reductions) {
        visit(reduction->input);
        plan.cost += vectors(reduction->input->loops | lane->loops) * 2;
      }
      for (const Store &store : loop.stores) {
        visit(store.value);
        uint64_t loops = store.index.loops() | lane->loops;
        plan.cost += vectors(loops) * kStore;
      }
    }
    seen.clear();
    lane = nullptr;
    for (const Store &store : plan.rowStores) {
      visit(store.value);
      plan.cost += trips(store.index.loops()) * kScalarAccess;
    }
    bool sequential = false;
    for (const Reduction &reduction : plan.reductions)
      sequential |= !reduction.perRow();
    if (plan.shape == KernelPlan::Shape::Flat) {
      // If each vector has a sequential reduction, elements are expensive, so a
      // parallel iteration gets few of them.
      plan.block = sequential ? 32 : 1024;
      int64_t elements = plan.columnSpaces.front().count;
      plan.extent = (elements + plan.block - 1) / plan.block;
    } else {
      plan.extent = plan.row->size;
    }
    finish();
  }

private:
  void scatter() {
    auto &scatter = plan.scatter;
    lane = scatter.columns.lane;
    visit(scatter.target);
    visit(scatter.value);
    double updates = double(scatter.update->size) * scatter.before->size;
    plan.cost += updates * (20 + lane->size / kLanes * (kLoad + kStore));
    plan.cost += double(scatter.rows) * scatter.before->size * lane->size /
                 kLanes * kStore;
    plan.extent = scatter.rows;
    finish();
    // In a scatter, each parallel task reads all indices, so there should be
    // few tasks: at most 32.
    plan.grain = std::max<int64_t>(plan.grain, (plan.extent + 31) / 32);
  }

  void finish() {
    double perIteration = plan.cost / std::max<int64_t>(plan.extent, 1);
    double grain = std::ceil(kPiece / std::max(perIteration, 1.0));
    plan.grain = std::clamp<int64_t>(static_cast<int64_t>(grain), 1,
                                     std::max<int64_t>(plan.extent, 1));
    // An iteration runs on one thread, so a plan with few, expensive iterations
    // is slow.
    if (plan.extent < 4 && plan.cost > 10 * kPiece)
      plan.cost *= 3;
    plan.cost += kLaunch;
  }

  /// Returns how often a node in these loops is computed.
  double trips(uint64_t loops) const {
    double count = 1;
    auto add = [&](const IndexVar *var) {
      if (var && var->loops & loops)
        count *= var->size;
    };
    add(plan.row);
    for (const Columns &columns : plan.columnSpaces) {
      add(columns.outer);
      add(columns.lane);
    }
    llvm::DenseSet<const IndexVar *> sequences;
    for (const Reduction &reduction : plan.reductions)
      if (reduction.sequence && sequences.insert(reduction.sequence).second)
        add(reduction.sequence);
    add(plan.scatter.update);
    add(plan.scatter.before);
    add(plan.scatter.columns.lane);
    return count;
  }
  /// Returns how often a node in these loops is computed, counting vectors
  /// instead of elements if the innermost loop is vectorized.
  double vectors(uint64_t loops) const {
    double count = trips(loops);
    if (!lane || !(loops & lane->loops))
      return count;
    return count / lane->size * std::ceil(lane->size / kLanes);
  }

  /// Adds the cost of the divisions in an index. An index that divides inside
  /// of a vectorized loop is not linear, so it also increases `plan.irregular`.
  void visitIndex(const IndexExpr &index) {
    for (auto [var, factor] : index.terms()) {
      if (var->node)
        visit(var->node);
      if (var->kind != IndexVar::Kind::FloorDiv &&
          var->kind != IndexVar::Kind::Mod)
        continue;
      bool inLane = lane && var->loops & lane->loops;
      bool isNew = seenVars.insert({var, inLane ? lane : nullptr}).second;
      if (isNew) {
        plan.cost += trips(var->loops) * kDivision;
        plan.irregular += inLane;
        visitIndex(var->base);
      }
    }
  }

  void visit(const Node *node) {
    bool inLane = lane && node->loops & lane->loops;
    if (!(inLane ? seen : seenOutside).insert(node).second)
      return;
    if (inLane)
      if (auto found = plan.buffers.find(node); found != plan.buffers.end()) {
        bool stored = found->second.result >= 0;
        if (current > found->second.first || !stored)
          plan.cost += vectors(node->loops) * kReload;
        if (current > found->second.first)
          return;
      }
    for (const Node *operand : node->operands)
      visit(operand);
    if (node->guard)
      visit(node->guard);
    visitIndex(node->index);
    double times = vectors(node->loops);
    switch (node->kind) {
    case Node::Kind::Compute:
      plan.cost += times * weightOf(node->op);
      break;
    case Node::Kind::Load:
    case Node::Kind::Table: {
      bool linear = true;
      for (auto [var, factor] : node->index.terms())
        if (lane && var->loops & lane->loops)
          linear &= var == lane && factor == 1;
      if (inLane && !linear) {
        plan.cost += trips(node->loops) * kScalarAccess;
        plan.irregular += 1;
      } else {
        double access = touched.insert(node).second ? kLoad : kReload;
        plan.cost += times * (node->guard && inLane ? 2 * access : access);
      }
      break;
    }
    case Node::Kind::Reduced:
      if (!node->reduction->perRow()) {
        visit(node->reduction->input);
        plan.cost +=
            vectors(node->loops | node->reduction->sequence->loops) * 2;
      }
      break;
    case Node::Kind::Constant:
    case Node::Kind::RankOffset:
      break;
    default:
      plan.cost += times;
    }
  }

  KernelPlan &plan;
  const IndexVar *lane = nullptr;
  size_t current = 0;
  llvm::DenseSet<const Node *> seen, seenOutside, touched;
  llvm::DenseSet<std::pair<const IndexVar *, const IndexVar *>> seenVars;
};

} // namespace

void cleave::kernels::estimate(KernelPlan &plan) { Estimator(plan).run(); }
