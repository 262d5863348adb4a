// Interprets the update of a pipeline. The @update of each stage is split into
// parts (@update.0, @update.1, ...), with sums over all stages between them.
// Each part and each sum is interpreted as soon as its operands are computed.

#include "PipelineEngine.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/StageSums.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

struct Sum : StageSum {
  bool isDone = false;
};

std::string keyOf(StringRef name) { return ("residual " + name).str(); }

class Update {
public:
  Update(std::map<std::pair<int, int>, StageInstance> &instances, int stages,
         int64_t ranks,
         llvm::function_ref<LogicalResult(StageInstance &, StringRef)> call)
      : instances(instances), stages(stages), ranks(ranks), call(call) {}

  LogicalResult run(ModuleOp module) {
    collect();
    for (bool moved = true; moved;) {
      moved = false;
      for (auto &[place, instance] : instances)
        while (done[place] < parts && isReady(instance)) {
          if (failed(call(instance, updatePart(done[place]))))
            return failure();
          ++done[place];
          moved = true;
        }
      for (Sum &sum : sums)
        if (!sum.isDone && isGiven(sum)) {
          if (failed(addUp(module, sum)))
            return failure();
          sum.isDone = moved = true;
        }
    }
    for (auto &[place, instance] : instances)
      if (done[place] < parts)
        return module.emitError("stages wait for each other's sums: stage ")
               << instance.stage << " before @" << updatePart(done[place]);
    return success();
  }

private:
  void collect() {
    // The instance of each stage on the first rank that has the stage.
    std::map<int, StageInstance *> first;
    for (auto &[place, instance] : instances) {
      done[place] = 0;
      first.try_emplace(instance.stage, &instance);
    }
    auto find = [&](int stage, const std::string &name) {
      StageInstance &instance = *first.at(stage);
      auto func = instance.functions.find(name);
      return func == instance.functions.end() ? func::FuncOp() : func->second;
    };
    for (StageSum &sum : stageSums(stages, find))
      sums.push_back({std::move(sum)});
    for (auto &[stage, instance] : first)
      for (int part = 0; part <= stages + 1; ++part)
        if (find(stage, updatePart(part)))
          parts = std::max(parts, part + 1);
  }

  /// Returns whether all operands of the next part of the instance's @update
  /// are computed (an instance is a stage on one rank). Also gives this part
  /// its arguments that are totals over the earlier stages of the same rank
  /// (see splitUpdate).
  bool isReady(StageInstance &instance) {
    int part = done.at({instance.rank, instance.stage});
    for (Sum &sum : sums) {
      auto found = sum.members.find(instance.stage);
      if (found == sum.members.end())
        continue;
      const StageSum::Member &member = found->second;
      if (member.part < part && !sum.isDone)
        return false;
      std::string before = keyOf(member.operand + ".before");
      if (member.part != part || !instance.buffers.count(before))
        continue;
      RankTensors *given = nullptr;
      if (StageInstance *previous = previousIn(sum, instance)) {
        const StageSum::Member &other = sum.members.at(previous->stage);
        if (done.at({previous->rank, previous->stage}) <= other.part)
          return false;
        given = previous->find(keyOf(other.operand), 0);
      }
      RankTensors &taken = *instance.find(before, 0);
      if (given) {
        taken = *given;
        continue;
      }
      auto type = typeOf(instance.buffers.at(before).port.value);
      taken.assign(ranks, Tensor(type)); // zeros
    }
    return true;
  }

  /// Returns whether a stage on one rank (an instance) contributes to the sum.
  /// To a tied gradient, each rank of a stage contributes the gradient of its
  /// own microbatches. To other sums, only the rank that owns the stage
  /// contributes.
  static bool counts(const Sum &sum, const StageInstance &instance) {
    return sum.members.count(instance.stage) &&
           (sum.isTied || instance.isOwner());
  }

  /// Returns the last of the rank's stages before `instance` that contribute to
  /// the sum; null if there is none.
  StageInstance *previousIn(const Sum &sum, const StageInstance &instance) {
    StageInstance *previous = nullptr;
    if (counts(sum, instance))
      for (auto &[place, other] : instances)
        if (place.first == instance.rank && place.second < instance.stage &&
            counts(sum, other))
          previous = &other;
    return previous;
  }

  bool isGiven(const Sum &sum) {
    return llvm::all_of(instances, [&](const auto &entry) {
      auto member = sum.members.find(entry.second.stage);
      return member == sum.members.end() ||
             done.at(entry.first) > member->second.part;
    });
  }

  LogicalResult addUp(ModuleOp module, const Sum &sum) {
    if (sum.members.size() != sum.stages.size())
      return module.emitError("not all of the stages that add up a value do "
                              "so in their @update");
    RankTensors total;
    for (auto &[place, instance] : instances) {
      if (!counts(sum, instance))
        continue;
      const std::string &operand = sum.members.at(instance.stage).operand;
      // In a chained sum, each stage of a rank adds its own term to the total
      // of the rank's earlier stages. So the operand of the rank's last stage
      // is the total of the rank, and the operands of its earlier stages must
      // not be added again.
      bool isChained = instance.buffers.count(keyOf(operand + ".before"));
      auto isLater = [&](const auto &other) {
        return other.first.first == instance.rank &&
               other.first.second > instance.stage && counts(sum, other.second);
      };
      if (isChained && llvm::any_of(instances, isLater))
        continue;
      const RankTensors &given = *instance.find(keyOf(operand), 0);
      if (total.empty())
        total = given;
      else if (total.front().type != given.front().type)
        return module.emitError("stages add up values of different types: ")
               << total.front().type << " and " << given.front().type;
      else
        addTo(total, given);
    }
    for (auto &[place, instance] : instances)
      if (auto member = sum.members.find(instance.stage);
          member != sum.members.end())
        if (RankTensors *taken = instance.find(keyOf(member->second.result), 0))
          // (`taken` is null if no operation of this stage reads the sum.)
          *taken = total;
    return success();
  }

  std::map<std::pair<int, int>, StageInstance> &instances;
  int stages, parts = 0;
  int64_t ranks; ///< number of ranks of a stage
  llvm::function_ref<LogicalResult(StageInstance &, StringRef)> call;
  std::vector<Sum> sums;
  // The number of parts of @update that have run, by rank and stage.
  std::map<std::pair<int, int>, int> done;
};

} // namespace

LogicalResult PipelineEngine::runUpdate() {
  auto callPart = [&](StageInstance &instance, StringRef name) {
    return call(instance, name, 0);
  };
  return Update(instances, table.stages, mesh.getNumRanks(), callPart)
      .run(module);
}
