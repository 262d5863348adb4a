// Emits stages that are on several ranks, which divide the microbatches between
// them (Chimera).
//
// The rank that runs microbatch 0 owns the stage. Only the owner runs
// evaluations, and only the owner contributes to sums over all stages. The
// other ranks of the stage have equal parameters and state. These stay equal,
// because the gradients are summed over all ranks of the stage before the
// update.

#include "EmitPipeline.h"

#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Memory/LibraryCalls.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;
using namespace cleave::pipeline;

void PipelineEmitter::findMicrobatches() {
  for (int rank = 0; rank < table.ranks; ++rank)
    for (const LoweredAction &entry : table.actions[rank])
      if (entry.action.kind == ActionKind::F)
        microbatches[{rank, entry.action.stage}].push_back(
            entry.action.microbatch);
  for (auto &[place, own] : microbatches)
    llvm::sort(own);
}

ArrayRef<int> PipelineEmitter::microbatchesOf(const Instance &instance) const {
  return microbatches.at({instance.rank, instance.stage});
}

SmallVector<int> PipelineEmitter::ranksOf(int stage) const {
  SmallVector<int> ranks;
  for (int rank = 0; rank < table.ranks; ++rank)
    if (llvm::is_contained(table.stagesOfRank[rank], stage))
      ranks.push_back(rank);
  return ranks;
}

int PipelineEmitter::ownerOf(int stage) const {
  for (int rank : ranksOf(stage))
    if (microbatches.at({rank, stage}).front() == 0)
      return rank;
  llvm_unreachable("every stage runs every microbatch");
}

bool PipelineEmitter::isOwner(const Instance &instance) const {
  return ownerOf(instance.stage) == instance.rank;
}

program::Collective PipelineEmitter::sumOver(ArrayRef<int> ranks,
                                             RankedTensorType type,
                                             StringRef purpose) {
  program::Collective sum;
  sum.kind = program::CollectiveKind::AllReduce;
  sum.dtype = *dtypeOf(type.getElementType());
  sum.group = {{int32_t(schedule.position), 1, table.ranks}};
  if (int(ranks.size()) != table.ranks)
    sum.positions.assign(ranks.begin(), ranks.end());
  sum.purpose = intern(purpose.str());
  return sum;
}

void PipelineEmitter::addPart(program::Collective &sum,
                              program::BufferRef given,
                              program::BufferRef total, RankedTensorType type) {
  program::Transfer part;
  part.src = std::move(given);
  part.dst = std::move(total);
  part.count = part.inner = part.dstInner = type.getNumElements();
  sum.parts.push_back(std::move(part));
}

/// Returns whether the gradient is of a tied parameter. The sum over stages of
/// such a gradient includes every rank of every stage, so the ranks of one
/// stage need no sum of their own.
static bool isTied(const BoundaryTable &table, const BoundaryBuffer &gradient) {
  int64_t parameter = parameterOf(table, gradient);
  if (parameter < 0)
    return false;
  auto stages = table.buffers[parameter].attrs.getAs<DenseI64ArrayAttr>(
      pipe::kStagesAttr);
  return stages && stages.size() > 1;
}

void PipelineEmitter::emitReplicaSums(int rank) {
  std::vector<std::pair<LoweredAction, int32_t>> started;
  for (int stage : table.stagesOfRank[rank]) {
    SmallVector<int> ranks = ranksOf(stage);
    if (ranks.size() == 1)
      continue;
    Action reduce{stage, ActionKind::ReduceGrad, -1};
    // Sums are grouped by purpose and element type, so that each group is one
    // collective.
    const Instance &own = at(rank, stage);
    std::map<std::pair<std::string, program::DType>, program::Collective> sums;
    for (const BoundaryBuffer &buffer : own.boundary.buffers) {
      bool isGradient = buffer.role == nn::Role::Gradient;
      bool isLoss = nn::isOneOf(buffer.role, {nn::Role::Loss, nn::Role::Weight,
                                              nn::Role::Accumulator});
      if ((!isGradient && !isLoss) ||
          (isGradient && isTied(own.boundary, buffer)))
        continue;
      std::string purpose = isGradient ? "gradient" : "loss";
      auto [entry, isNew] =
          sums.try_emplace({purpose, *dtypeOf(buffer.type.getElementType())});
      if (isNew)
        entry->second = sumOver(ranks, buffer.type, purpose);
      program::BufferRef where = address(own, buffer, 0);
      addPart(entry->second, where, where, buffer.type);
    }
    for (auto &[key, sum] : sums) {
      sum.token = tokens++;
      started.push_back({{reduce, Phase::Wait}, sum.token});
      push(std::move(sum), print(reduce));
    }
  }
  for (auto &[wait, token] : started)
    push(program::Wait{token}, print(wait));
}
