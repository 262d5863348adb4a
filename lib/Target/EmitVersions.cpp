// Emits asynchronous schedules (PipeDream), which have an update after every
// backward pass. The weights are in a ring of slots, so that a backward pass
// reads the version that its forward pass read, while later forward passes read
// newer versions.
//
// Version v is the result of v updates, one per microbatch, and is in slot v
// mod n (n slots). The last update of a step is @update. No microbatch is in
// flight then, so its result is written to slot 0, which the host sees and with
// which the next step begins.

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
  std::vector<int> readers(count); // microbatches under way, by slot
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

/// Emits an update that is due. It is emitted just before the rank's next
/// computation, so that sends do not wait for it.
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

/// Emits an update of the newest version that writes its result to slot
/// `target`.
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
