// Emits asynchronous schedules (PipeDream), which have an update after every
// backward pass. The memory of the weights is a ring of equal slots, each with
// one version of the weights, so that a backward pass reads the version that
// its forward pass read, while later forward passes read newer versions.
//
// Version v is the result of v updates, one per microbatch. With n slots,
// version v is in slot v mod n. The last update of a step is the function
// @update that the host runs. No microbatch is in flight then, so its result is
// written to slot 0, which the host sees and with which the next step begins.

#include "EmitPipeline.h"

#include "cleave/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;
using namespace cleave::pipeline;

LogicalResult PipelineEmitter::assignVersions(const Instance &instance,
                                              Slots &versions) {
  int count = weightVersions(schedule.table)[instance.rank], updates = 0;
  versions.count = count;
  versions.slotOf.assign(table.microbatches, -1);
  std::vector<int> readers(count); // microbatches in flight, by slot
  for (const LoweredAction &entry : table.actions[instance.rank]) {
    auto [stage, kind, microbatch] = entry.action;
    if (kind == ActionKind::F) {
      versions.slotOf[microbatch] = updates % count;
      ++readers[updates % count];
    } else if (kind == ActionKind::B) {
      --readers[versions.slotOf[microbatch]];
      if (microbatch != updates || readers[++updates % count] != 0)
        return module.emitError("schedule ")
               << table.schedule << ": the update after " << print(entry.action)
               << " would replace weights that microbatches under way still "
                  "read; rank "
               << instance.rank << " has " << count << " versions";
    }
  }
  return success();
}

/// Emits the weight update by the gradient of microbatch `due`, if it has not
/// been emitted yet. This is called just before the rank's next computation and
/// not directly after the backward pass, so that the sends that follow the
/// backward pass start before the update runs.
void PipelineEmitter::emitDueUpdate(const Instance &instance) {
  auto versions = instance.slots.find("version");
  if (due && versions != instance.slots.end())
    updateVersion(instance, *due, (*due + 1) % versions->second.count);
  due.reset();
}

void PipelineEmitter::emitLastUpdates(int rank) {
  for (int stage : table.stagesOfRank[rank])
    updateVersion(at(rank, stage), table.microbatches - 1, 0);
}

/// Emits the update of the weights by the gradient of `microbatch`: copies the
/// newest version of the weights to slot `target` of the ring of versions,
/// unless it is already there, and updates it in place.
void PipelineEmitter::updateVersion(const Instance &instance, int microbatch,
                                    int target) {
  std::string part = (nn::kUpdateFunc + ".0").str();
  if (!instance.actions.count(part))
    return; // a stage without parameters
  std::string label =
      std::to_string(instance.stage) + "UPDATE" + std::to_string(microbatch);
  const Slots &versions = instance.slots.at("version");
  int newest = microbatch % versions.count;
  auto slot = [&](int index) {
    program::BufferRef ref;
    ref.arena = instance.arenas[versions.arena];
    ref.offset = index * versions.bytes;
    return ref;
  };
  if (newest != target)
    copy(slot(newest), slot(target), versions.bytes, label);
  call(instance, part, 0, label, target);
}
