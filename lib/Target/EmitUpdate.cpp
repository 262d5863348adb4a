// The update of a pipeline's ranks: the parts of every stage's @update, and
// between them what the stages add up.

#include "EmitPipeline.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/StageSums.h"
#include "cleave/Memory/LibraryCalls.h"

#include <functional>

using namespace mlir;
using namespace cleave;
using namespace cleave::target;

LogicalResult PipelineEmitter::emitUpdate(int rank) {
  begin(rank, nn::kUpdateFunc.str());
  if (table.asynchronous) {
    emitLastUpdates(rank);
    end();
    return success();
  }
  std::vector<StageSum> sums =
      stageSums(table.stages, [&](int stage, const std::string &name) {
        const auto &functions = at(ownerOf(stage), stage).functions;
        auto found = functions.find(name);
        return found == functions.end() ? func::FuncOp() : found->second;
      });
  const std::vector<int> &own = table.stagesOfRank[rank];
  auto hereOf = [&](const StageSum &sum) {
    std::vector<int> here;
    for (int stage : sum.stages)
      if (llvm::is_contained(own, stage))
        here.push_back(stage);
    return here;
  };
  // Those whose partial sum counts. Of a tied gradient each instance has what
  // its microbatches gave.
  auto countedOf = [&](const StageSum &sum) {
    std::vector<int> counted = hereOf(sum);
    if (!sum.isTied)
      llvm::erase_if(counted,
                     [&](int stage) { return ownerOf(stage) != rank; });
    return counted;
  };
  auto ref = [&](int stage, const std::string &name) {
    const Instance &instance = at(rank, stage);
    return address(instance, *bufferOf(instance, name, nn::Role::Residual), 0);
  };
  // Runs the parts up to `last` that have not run. Each of the rank's stages
  // goes on from what the one before gave to a sum.
  std::map<int, int> done; // parts that have run, by stage
  std::function<LogicalResult(int, int)> runTo = [&](int stage, int last) {
    for (int &part = done[stage]; part <= last; ++part) {
      for (const StageSum &sum : sums) {
        auto member = sum.members.find(stage);
        if (member == sum.members.end() || member->second.part != part)
          continue;
        std::vector<int> counted = countedOf(sum);
        const std::string &name = member->second.operand;
        const BoundaryBuffer *before =
            bufferOf(at(rank, stage), name + ".before", nn::Role::Residual);
        if (!before && counted.size() > 1)
          return LogicalResult(module.emitError("stages of one rank add up '")
                               << name << "', but not one after another");
        if (!before)
          continue;
        int64_t bytes = bytesOfType(before->type);
        auto place = llvm::find(counted, stage);
        if (place == counted.begin() || place == counted.end()) {
          push(program::Fill{ref(stage, name + ".before"), 1, bytes, 0}, name);
          continue;
        }
        int previous = *std::prev(place);
        const StageSum::Member &other = sum.members.at(previous);
        if (failed(runTo(previous, other.part)))
          return failure();
        copy(ref(previous, other.operand), ref(stage, name + ".before"), bytes,
             name);
      }
      call(at(rank, stage), updatePart(part), 0,
           updatePart(part) + "." + std::to_string(stage));
    }
    return success();
  };
  for (const StageSum &sum : sums) {
    if (sum.members.size() != sum.stages.size())
      return module.emitError("not all of the stages that add up a value do "
                              "so in their @update");
    std::vector<int> here = hereOf(sum);
    if (here.empty())
      continue;
    SmallVector<int> ranks;
    for (int other = 0; other < table.ranks; ++other)
      if (llvm::any_of(sum.stages, [&](int stage) {
            return llvm::is_contained(table.stagesOfRank[other], stage);
          }))
        ranks.push_back(other);
    RankedTensorType type;
    std::string label;
    for (int stage : here) {
      const StageSum::Member &member = sum.members.at(stage);
      const BoundaryBuffer *given =
          bufferOf(at(rank, stage), member.operand, nn::Role::Residual);
      if (type && type != given->type)
        return module.emitError("stages add up values of different types: ")
               << type << " and " << given->type;
      type = given->type;
      label = member.operand;
      if (failed(runTo(stage, member.part)))
        return failure();
    }
    std::vector<int> counted = countedOf(sum);
    int last = counted.empty() ? here.back() : counted.back();
    program::BufferRef given = ref(last, sum.members.at(last).operand);
    program::BufferRef total =
        ref(here.back(), sum.members.at(here.back()).result);
    if (counted.empty())
      push(program::Fill{given, 1, bytesOfType(type), 0}, label);
    if (ranks.size() == 1) {
      copy(given, total, bytesOfType(type), label);
    } else {
      program::Collective all =
          sumOver(ranks, type, type.getRank() == 0 ? "norm" : "gradient");
      addPart(all, given, total, type);
      push(std::move(all), label);
    }
    for (int stage : ArrayRef(here).drop_back())
      copy(total, ref(stage, sum.members.at(stage).result), bytesOfType(type),
           label);
  }
  for (int stage : own)
    if (failed(runTo(stage, table.stages + 1)))
      return failure();
  end();
  return success();
}
