// Buffers values of a row from one loop over its columns to the next.

#include "PlanBuilder.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

/// The maximum total size in bytes of the row buffers of a kernel. They are on
/// the stack and should fit into the L1 cache.
static constexpr int64_t kMostBytes = 32 << 10;
/// Costs in cycles per vector. A value is only buffered if recomputing it costs
/// more than kWorthStoring or, if it is a result of the kernel and stored
/// anyway, more than kWorthReloading.
static constexpr double kWorthStoring = 6, kWorthReloading = 2;

namespace {

class Chooser {
public:
  explicit Chooser(KernelPlan &plan) : plan(plan) {}

  void run() {
    for (auto [number, loop] : llvm::enumerate(plan.loops)) {
      current = number;
      visited.clear();
      for (const Reduction *reduction : loop.reductions)
        visit(reduction->input, loop);
      for (const Store &store : loop.stores)
        visit(store.value, loop);
    }
  }

private:
  /// Visits `node` and the nodes that it reads, and buffers those that an
  /// earlier loop also computes.
  void visit(Node *node, const ColumnLoop &loop) {
    if (!node || !(node->loops & loop.columns->lane->loops) ||
        !visited.insert(node).second)
      return;
    auto [first, isNew] = computedIn.try_emplace(node, current);
    if (!isNew && first->second < current && keep(node, loop, first->second))
      return;
    for (Node *operand : node->operands)
      visit(operand, loop);
    visit(node->guard, loop);
  }

  /// Buffers the value if possible; returns whether it is buffered.
  bool keep(Node *node, const ColumnLoop &loop, size_t first) {
    if (plan.buffers.contains(node))
      return true;
    if (plan.loops[first].columns != loop.columns)
      return false;
    llvm::DenseSet<const Node *> counted;
    double work = costOf(node, loop, counted);
    for (const Store &store : plan.loops[first].stores)
      if (store.value == node && work > kWorthReloading) {
        plan.buffers[node] = {node, loop.columns, first, int(store.result)};
        return true;
      }
    int64_t width = std::max(1u, node->type.getIntOrFloatBitWidth() / 8);
    int64_t bytes = (loop.columns->count + 64) * width;
    if (work <= kWorthStoring || used + bytes > kMostBytes)
      return false;
    used += bytes;
    plan.buffers[node] = {node, loop.columns, first, -1};
    return true;
  }

  double costOf(const Node *node, const ColumnLoop &loop,
                llvm::DenseSet<const Node *> &counted) {
    if (!node || !(node->loops & loop.columns->lane->loops) ||
        !counted.insert(node).second)
      return 0;
    if (plan.buffers.contains(node))
      return 1;
    double cost = 1;
    if (node->kind == Node::Kind::Compute)
      cost = weightOf(node->op);
    else if (node->kind == Node::Kind::Reduced)
      cost = 1000; // sequential
    for (const Node *operand : node->operands)
      cost += costOf(operand, loop, counted);
    return cost + costOf(node->guard, loop, counted);
  }

  KernelPlan &plan;
  size_t current = 0;
  int64_t used = 0;
  llvm::DenseSet<const Node *> visited;
  /// The first loop that computes each value.
  llvm::DenseMap<const Node *, size_t> computedIn;
};

} // namespace

void cleave::kernels::assignBuffers(KernelPlan &plan) {
  if (plan.shape == KernelPlan::Shape::Rows)
    Chooser(plan).run();
}
