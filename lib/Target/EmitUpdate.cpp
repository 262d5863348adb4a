// Emits the update of pipeline ranks. It consists of the parts of every stage's
// @update, with sums over stages between the parts.

#include "EmitPipeline.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/StageSums.h"
#include "cleave/Memory/LibraryCalls.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;

/// Emits the update of one rank: the parts of @update of its stages, with sums
/// over the stages of all ranks between the parts.
class PipelineEmitter::RankUpdate {
public:
  RankUpdate(PipelineEmitter &emitter, int rank)
      : emitter(emitter), rank(rank), own(emitter.table.stagesOfRank[rank]),
        sums(stageSums(emitter.table.stages,
                       [&](int stage, const std::string &name) {
                         return functionOf(stage, name);
                       })) {}

  LogicalResult run() {
    for (const StageSum &sum : sums)
      if (failed(addUp(sum)))
        return failure();
    for (int stage : own)
      if (failed(runTo(stage, emitter.table.stages + 1)))
        return failure();
    return success();
  }

private:
  func::FuncOp functionOf(int stage, const std::string &name) const {
    const auto &functions = emitter.at(emitter.ownerOf(stage), stage).functions;
    auto found = functions.find(name);
    return found == functions.end() ? func::FuncOp() : found->second;
  }

  /// Returns the stages of this rank that contribute to the sum over stages.
  std::vector<int> stagesOf(const StageSum &sum) const {
    std::vector<int> here;
    for (int stage : sum.stages)
      if (llvm::is_contained(own, stage))
        here.push_back(stage);
    return here;
  }

  /// Returns the stages for which this rank adds a contribution to the sum. To
  /// a tied gradient, every rank of a stage contributes the gradient of its own
  /// microbatches. To other sums, only the rank that owns the stage
  /// contributes.
  std::vector<int> countedOf(const StageSum &sum) const {
    std::vector<int> counted = stagesOf(sum);
    if (!sum.isTied)
      llvm::erase_if(counted,
                     [&](int stage) { return emitter.ownerOf(stage) != rank; });
    return counted;
  }

  SmallVector<int> ranksOf(const StageSum &sum) const {
    SmallVector<int> ranks;
    for (int other = 0; other < emitter.table.ranks; ++other)
      if (llvm::any_of(sum.stages, [&](int stage) {
            return llvm::is_contained(emitter.table.stagesOfRank[other], stage);
          }))
        ranks.push_back(other);
    return ranks;
  }

  program::BufferRef ref(int stage, const std::string &name) const {
    const Instance &instance = emitter.at(rank, stage);
    return emitter.address(
        instance, *emitter.bufferOf(instance, name, nn::Role::Residual), 0);
  }

  /// Passes the sum over the rank's earlier stages to `stage`, which adds its
  /// own contribution.
  LogicalResult beginSum(const StageSum &sum, int stage,
                         const std::string &name) {
    std::vector<int> counted = countedOf(sum);
    const BoundaryBuffer *before = emitter.bufferOf(
        emitter.at(rank, stage), name + ".before", nn::Role::Residual);
    if (!before && counted.size() > 1)
      return emitter.module.emitError("stages of one rank add up '")
             << name << "', but not one after another";
    if (!before)
      return success();
    int64_t bytes = bytesOf(before->type);
    auto place = llvm::find(counted, stage);
    if (place == counted.begin() || place == counted.end()) {
      emitter.push(program::Fill{ref(stage, name + ".before"), 1, bytes, 0},
                   name);
      return success();
    }
    int previous = *std::prev(place);
    const StageSum::Member &other = sum.members.at(previous);
    if (failed(runTo(previous, other.part)))
      return failure();
    emitter.copy(ref(previous, other.operand), ref(stage, name + ".before"),
                 bytes, name);
    return success();
  }

  /// Emits the parts of a stage's update up to part `last` that are not emitted
  /// yet.
  LogicalResult runTo(int stage, int last) {
    for (int &part = done[stage]; part <= last; ++part) {
      for (const StageSum &sum : sums) {
        auto member = sum.members.find(stage);
        if (member != sum.members.end() && member->second.part == part &&
            failed(beginSum(sum, stage, member->second.operand)))
          return failure();
      }
      emitter.call(emitter.at(rank, stage), updatePart(part), 0,
                   updatePart(part) + "." + std::to_string(stage));
    }
    return success();
  }

  /// Emits the parts of the update in which the stages `here` compute their
  /// terms of a sum over stages. Returns the type of the sum.
  FailureOr<RankedTensorType> makeTerms(const StageSum &sum,
                                        ArrayRef<int> here) {
    RankedTensorType type;
    for (int stage : here) {
      const StageSum::Member &member = sum.members.at(stage);
      const BoundaryBuffer *given = emitter.bufferOf(
          emitter.at(rank, stage), member.operand, nn::Role::Residual);
      if (type && type != given->type)
        return emitter.module.emitError(
                   "stages add up values of different types: ")
               << type << " and " << given->type;
      type = given->type;
      if (failed(runTo(stage, member.part)))
        return failure();
    }
    return type;
  }

  /// Emits a sum over the stages of all ranks, and passes it to each stage of
  /// this rank.
  LogicalResult addUp(const StageSum &sum) {
    if (sum.members.size() != sum.stages.size())
      return emitter.module.emitError(
          "not all of the stages that add up a value do "
          "so in their @update");
    std::vector<int> here = stagesOf(sum);
    if (here.empty())
      return success();
    FailureOr<RankedTensorType> type = makeTerms(sum, here);
    if (failed(type))
      return failure();
    const std::string &label = sum.members.at(here.back()).operand;
    std::vector<int> counted = countedOf(sum);
    int last = counted.empty() ? here.back() : counted.back();
    program::BufferRef given = ref(last, sum.members.at(last).operand);
    program::BufferRef total =
        ref(here.back(), sum.members.at(here.back()).result);
    int64_t bytes = bytesOf(*type);
    if (counted.empty())
      emitter.push(program::Fill{given, 1, bytes, 0}, label);
    SmallVector<int> ranks = ranksOf(sum);
    if (ranks.size() == 1) {
      emitter.copy(given, total, bytes, label);
    } else {
      program::Collective all = emitter.sumOver(
          ranks, *type, type->getRank() == 0 ? "norm" : "gradient");
      addPart(all, given, total, *type);
      emitter.push(std::move(all), label);
    }
    for (int stage : ArrayRef(here).drop_back())
      emitter.copy(total, ref(stage, sum.members.at(stage).result), bytes,
                   label);
    return success();
  }

  PipelineEmitter &emitter;
  int rank;
  const std::vector<int> &own;
  std::vector<StageSum> sums;
  std::map<int, int> done; // number of emitted parts, by stage
};

LogicalResult PipelineEmitter::emitUpdate(int rank) {
  begin(rank, nn::kUpdateFunc.str());
  if (table.asynchronous)
    emitLastUpdates(rank);
  else if (failed(RankUpdate(*this, rank).run()))
    return failure();
  end();
  return success();
}
