//===- LocalCost.cpp - communication inside operations --------------------===//
//
// What an operation sends is only known from its local form, the per-rank code
// that planLocal emits for it. So the local form is emitted into a scratch
// block, the cost of its collectives is summed up, and the block is dropped.
//
//===----------------------------------------------------------------------===//

#include "LocalCost.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/ValueUtils.h"
#include "mlir/IR/Diagnostics.h"
#include <limits>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// Returns how many of the `count` values first, first + stride, first + 2 *
/// stride, ... are in [low, high).
static int64_t countWithin(int64_t first, int64_t stride, int64_t count,
                           int64_t low, int64_t high) {
  if (count <= 0 || low >= high)
    return 0;
  if (stride < 0) {
    first += (count - 1) * stride;
    stride = -stride;
  }
  auto below = [&](int64_t bound) { // the number of values below it
    return std::clamp<int64_t>(
        first >= bound ? 0 : (bound - first + stride - 1) / stride, 0, count);
  };
  return below(high) - below(low);
}

int64_t cleave::partition::elementsReceived(WindowOp window, int64_t ranks) {
  int64_t size = window.getSize(), tile = tileSize(size, ranks), most = 0;
  int64_t count = typeOf(window->getResult(0)).getDimSize(window.getDim());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t first = window.getBase() + rank * window.getStep();
    int64_t low = std::min(rank * tile, size),
            high = std::min(low + tile, size);
    int64_t all = countWithin(first, window.getStride(), count, 0, size);
    most = std::max(
        most, all - countWithin(first, window.getStride(), count, low, high));
  }
  return most;
}

double cleave::partition::secondsWithin(Operation *op, const ShardingRule &rule,
                                        ArrayRef<Axes> factors,
                                        const MeshAxes &mesh,
                                        const cost::LinkModel &links) {
  auto interface = dyn_cast<ShardingRuleInterface>(op);
  bool mayCommunicate = false;
  for (auto [factor, axes] : llvm::zip_equal(rule.factors, factors))
    mayCommunicate |= !axes.empty() && (isJoint(factor) ||
                                        factor.kind == FactorKind::Permutation);
  if (!interface || !mayCommunicate)
    return 0;

  Block scratch;
  SmallVector<Value> operands;
  for (auto [operand, dims] :
       llvm::zip_equal(op->getOperands(), rule.operands)) {
    auto type = typeOf(operand);
    operands.push_back(scratch.addArgument(
        mesh.tile(layoutOf(dims, factors), type), op->getLoc()));
  }
  OpBuilder builder(
      op->getContext()); // The block has no region that provides a context.
  builder.setInsertionPointToEnd(&scratch);
  LocalPlan plan(op, builder, mesh, rule, factors, operands);
  ScopedDiagnosticHandler quiet(op->getContext(),
                                [](Diagnostic &) { return success(); });
  if (failed(interface.planLocal(plan)))
    return std::numeric_limits<double>::infinity();

  double seconds = 0;
  for (Operation &local : scratch) {
    if (auto reduce = dyn_cast<AllReduceOp>(&local)) {
      double bytes = 0;
      for (Value value : reduce->getOperands())
        bytes += bytesOf(value.getType());
      seconds += links.allReduce(
          setOf(mesh.decompose(reduce.getAxes().getAxes())), bytes);
    } else if (auto window = dyn_cast<WindowOp>(&local)) {
      Axes axes = mesh.decompose(window.getAxes().getAxes());
      auto type = typeOf(window->getOperand(0));
      int64_t row = bytesOf(type) /
                    std::max<int64_t>(type.getDimSize(window.getDim()), 1);
      seconds += links.permute(
          setOf(axes), double(row * elementsReceived(window, mesh.size(axes))));
    }
  }
  return seconds;
}
