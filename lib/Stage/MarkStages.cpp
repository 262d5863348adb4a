// pipe-mark-stages: assigns operations to pipeline stages.

#include "BalanceStages.h"
#include "MatchStages.h"
#include "StageGraph.h"

#include "cleave/Cost/LinkModel.h"
#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Stage/Passes.h"

#include "llvm/ADT/StringMap.h"

namespace cleave {
#define GEN_PASS_DEF_MARKSTAGESPASS
#include "cleave/Stage/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::stage;

namespace {

/// Returns the estimated seconds of an operation in the forward pass.
double secondsOf(Operation *op, const Cluster &cluster) {
  KernelClass kind = KernelClass::Elementwise;
  if (auto lowering = dyn_cast<LoweringInterface>(op))
    kind = lowering.getKernelClass();
  if (kind == KernelClass::View || kind == KernelClass::Identity)
    return 0;
  auto cost = dyn_cast<CostInterface>(op);
  int64_t bytes = cost ? cost.getBytesMoved() : bytesOfOperandsAndResults(op);
  double moving = bytes / cluster.memoryBytesPerSecond;
  if (kind != KernelClass::Library || !cost)
    return moving;
  return std::max(moving, cluster.matmulSeconds(cost.getFlops()));
}

/// Returns the time of an operation in the forward and backward pass together,
/// as a multiple of its forward time. The gradients of all operands take about
/// twice the forward time. The gradient of a single operand takes about the
/// forward time: for example, the first matrix product after frozen layers only
/// needs its weight gradient. Operations before the first trained layer have no
/// backward pass.
double passesOf(Operation *op, const DenseSet<Value> &differentiable) {
  int64_t reads = 0, wanted = 0;
  for (Value value : readsOf(op))
    if (isa<FloatType>(getElementTypeOrSelf(value))) {
      ++reads;
      wanted += differentiable.contains(value);
    }
  return wanted == reads && reads ? 3 : 1 + std::min<int64_t>(wanted, 2);
}

/// Converts the operations of a function that belong to a stage, in the given
/// order, to the input of `balance` and `follow` (BalanceStages.h), which
/// choose the stages.
Line lineOf(func::FuncOp func, const StageGraph &graph,
            ArrayRef<unsigned> order, const Cluster &cluster) {
  Line line;
  int64_t count = order.size();
  line.crossings.resize(count);
  DenseSet<Value> differentiable;
  if (func.getName() != nn::kForwardFunc)
    differentiable = differentiableValues(func);
  SmallVector<int64_t> place(count);
  for (auto [at, index] : llvm::enumerate(order))
    place[index] = at;
  for (auto [at, index] : llvm::enumerate(order)) {
    Operation *op = graph.staged()[index];
    double seconds = passesOf(op, differentiable) * secondsOf(op, cluster);
    int64_t memory = 0;
    for (unsigned argument : graph.parametersOf(op)) {
      int64_t bytes = bytesOf(func.getArgumentTypes()[argument]);
      memory += bytes;
      // The time to write a parameter's gradient, read it, and add it to the
      // sum over microbatches.
      if (isTrained(func.getArgument(argument)))
        seconds += 3 * bytes / cluster.memoryBytesPerSecond;
    }
    line.seconds.push_back(seconds);
    line.memory.push_back(memory);
    for (Value result : op->getResults()) {
      int64_t last = at;
      for (Operation *user : result.getUsers()) {
        user = func.getBody().front().findAncestorOpInBlock(*user);
        last = std::max(last, graph.isStaged(user) ? place[graph.indexOf(user)]
                                                   : count - 1);
      }
      if (last == static_cast<int64_t>(at))
        continue;
      // Adds the bytes where the value begins to cross, and subtracts them
      // where it ends. The prefix sum below turns these differences into
      // crossings.
      int64_t bytes = bytesOf(result.getType());
      Crossing &first = line.crossings[at + 1];
      first = first + Crossing{bytes, 1};
      if (last + 1 < count)
        line.crossings[last + 1] =
            line.crossings[last + 1] + Crossing{-bytes, -1};
    }
  }
  Crossing sum;
  for (Crossing &crossing : line.crossings)
    crossing = sum = sum + crossing;
  return line;
}

/// Orders operations by decreasing length of the longest path to the results,
/// so that each operation is scheduled as late as possible.
SmallVector<unsigned> lateOrder(const StageGraph &graph) {
  ArrayRef<Operation *> ops = graph.staged();
  SmallVector<unsigned> height(ops.size(), 0), order(ops.size());
  for (unsigned index = ops.size(); index-- > 0;) {
    order[index] = index;
    for (Value value : readsOf(ops[index]))
      if (Operation *def = value.getDefiningOp(); def && graph.isStaged(def)) {
        unsigned &below = height[graph.indexOf(def)];
        below = std::max(below, height[index] + 1);
      }
  }
  llvm::stable_sort(
      order, [&](unsigned a, unsigned b) { return height[a] > height[b]; });
  return order;
}

/// Orders operations by the first stage that they can belong to: no earlier
/// than the stages of their operands, and one of those that the user's patterns
/// (parallel.pipeline.stages) assign to them, if any.
SmallVector<unsigned> wantedOrder(const StageGraph &graph,
                                  ArrayRef<SmallVector<int64_t, 1>> wants) {
  ArrayRef<Operation *> ops = graph.staged();
  SmallVector<int64_t> least(ops.size(), 0);
  for (auto [index, op] : llvm::enumerate(ops)) {
    for (Value value : readsOf(op))
      if (Operation *def = value.getDefiningOp(); def && graph.isStaged(def))
        least[index] = std::max(least[index], least[graph.indexOf(def)]);
    auto next = llvm::lower_bound(wants[index], least[index]);
    if (next != wants[index].end())
      least[index] = *next;
  }
  SmallVector<unsigned> order =
      llvm::to_vector(llvm::seq<unsigned>(ops.size()));
  llvm::stable_sort(
      order, [&](unsigned a, unsigned b) { return least[a] < least[b]; });
  return order;
}

struct MarkStagesPass : cleave::impl::MarkStagesPassBase<MarkStagesPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    func::FuncOp main = mainFunction(module);
    if (!main || main.isExternal()) {
      module.emitError(
          "the module has no function @loss or @forward to cut into stages");
      return signalPassFailure();
    }
    if (stages < 1) {
      module.emitError("cannot be cut into ")
          << stages.getValue() << " stages, expected at least 1";
      return signalPassFailure();
    }
    if (!patterns.empty() && static_cast<int64_t>(patterns.size()) != stages) {
      module.emitError("parallel.pipeline.stages has ")
          << patterns.size() << " patterns, expected " << stages.getValue()
          << ", one for each stage (ranks of the pipeline times chunks)";
      return signalPassFailure();
    }
    for (auto func : module.getOps<func::FuncOp>()) {
      if (func.isExternal())
        continue;
      if (failed(checkTypes(func)))
        return signalPassFailure();
      eraseDead(func);
    }
    FailureOr<Cluster> machine = cost::loadCluster(module, cluster);
    if (failed(machine) || failed(markTraining(main, *machine)))
      return signalPassFailure();
    for (auto func : module.getOps<func::FuncOp>())
      if (func != main && !func.isExternal())
        markOther(func);
    module->setAttr(pipe::kStagesAttr,
                    Builder(&getContext()).getI64IntegerAttr(stages));
  }

private:
  /// Reports values without a static size, because their bytes are unknown and
  /// they cannot be sent.
  LogicalResult checkTypes(func::FuncOp func) {
    if (!func.getBody().hasOneBlock())
      return func.emitError("@")
             << func.getName() << " has several blocks, expected one to cut";
    for (Operation &op : func.getBody().front())
      for (Type type : op.getResultTypes()) {
        auto tensor = dyn_cast<RankedTensorType>(type);
        if (!tensor || !tensor.hasStaticShape())
          return op.emitOpError("gives ")
                 << type << ", expected tensors of static shape to cut";
      }
    return success();
  }

  void mark(Operation *op, int64_t stage) {
    op->setAttr(pipe::kStageAttr,
                Builder(&getContext()).getI64IntegerAttr(stage));
  }

  LogicalResult markTraining(func::FuncOp func, const Cluster &machine) {
    StageGraph graph(func);
    int64_t count = graph.staged().size();
    SmallVector<unsigned> early = llvm::to_vector(llvm::seq<unsigned>(count));
    SmallVector<unsigned> late = lateOrder(graph);
    Line earlyLine = lineOf(func, graph, early, machine),
         lateLine = lineOf(func, graph, late, machine);
    Cuts cuts;
    ArrayRef<unsigned> order;
    SmallVector<unsigned> wanted;
    SmallVector<SmallVector<int64_t, 1>> wants;
    if (patterns.empty()) {
      int64_t points = std::max<int64_t>(
          0, std::max(countCutPoints(earlyLine), countCutPoints(lateLine)));
      if (points < stages - 1)
        return func.emitError("@")
               << func.getName() << " has " << points
               << " cut points, which make at most " << points + 1
               << " stages, but " << stages.getValue()
               << " are asked for (ranks of the pipeline times chunks)";
      bool isLate = countCutPoints(earlyLine) < stages - 1;
      if (!isLate)
        cuts = balance(earlyLine, stages);
      if (countCutPoints(lateLine) >= stages - 1) {
        Cuts other = balance(lateLine, stages);
        bool isFaster = other.slowest * (1 + kSlack) < cuts.slowest,
             isSlower = cuts.slowest * (1 + kSlack) < other.slowest;
        isLate =
            isLate || isFaster || (!isSlower && other.crossing < cuts.crossing);
        if (isLate)
          cuts = other;
      }
      order = isLate ? late : early;
    } else {
      auto matched = matchStages(func, graph, llvm::to_vector(patterns));
      if (failed(matched))
        return failure();
      wants = std::move(*matched);
      if (count < stages)
        return func.emitError("@")
               << func.getName() << " has " << count
               << " operations that could be a stage, but " << stages.getValue()
               << " stages are asked for (ranks of the pipeline times chunks)";
      // Program order may not fit the user's patterns
      // (parallel.pipeline.stages). For example, the decoder's embedding may
      // precede the encoder in the program but belong to a later stage.
      wanted = wantedOrder(graph, wants);
      const ArrayRef<unsigned> candidates[] = {early, late, wanted};
      for (ArrayRef<unsigned> candidate : candidates) {
        SmallVector<SmallVector<int64_t, 1>> permuted;
        for (unsigned index : candidate)
          permuted.push_back(wants[index]);
        Cuts other =
            follow(lineOf(func, graph, candidate, machine), permuted, stages);
        if (!order.empty() && (other.displaced != cuts.displaced
                                   ? other.displaced > cuts.displaced
                                   : !(other.crossing < cuts.crossing)))
          continue;
        cuts = other;
        order = candidate;
      }
    }
    SmallVector<int64_t> stageOf(count);
    for (auto [at, index] : llvm::enumerate(order))
      stageOf[index] =
          llvm::upper_bound(cuts.begins, static_cast<int64_t>(at)) -
          cuts.begins.begin();
    if (!wants.empty() &&
        failed(checkStages(func, graph, llvm::to_vector(patterns), wants,
                           stageOf)))
      return failure();
    for (auto [op, stage] : llvm::zip_equal(graph.staged(), stageOf)) {
      mark(op, stage);
      for (unsigned argument : graph.parametersOf(op))
        owners[nn::nameOf(func, argument)].insert(stage);
    }
    return success();
  }

  /// Assigns the operations of a function other than the training function,
  /// whose stages markTraining has balanced. An operation joins the latest
  /// stage of its operands, or the next stage that has its parameters. An
  /// operation that belongs to no stage (StageGraph.h) joins the stages of its
  /// readers.
  void markOther(func::FuncOp func) {
    StageGraph graph(func);
    for (Operation *op : graph.staged()) {
      int64_t least = 0;
      for (Value value : readsOf(op))
        if (Operation *def = value.getDefiningOp(); def && graph.isStaged(def))
          least = std::max(
              least,
              def->getAttrOfType<IntegerAttr>(pipe::kStageAttr).getInt());
      auto hasAll = [&](int64_t stage) {
        return llvm::all_of(graph.parametersOf(op), [&](unsigned argument) {
          auto it = owners.find(nn::nameOf(func, argument));
          return it == owners.end() || it->second.contains(stage);
        });
      };
      int64_t stage = least;
      while (stage < stages && !hasAll(stage))
        ++stage;
      if (stage == stages)
        stage = least;
      mark(op, stage);
      for (unsigned argument : graph.parametersOf(op))
        owners[nn::nameOf(func, argument)].insert(stage);
    }
  }

  llvm::StringMap<llvm::SmallDenseSet<int64_t, 2>> owners; // of parameters
};

} // namespace
