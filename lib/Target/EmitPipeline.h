// Emits the program of a pipeline.

#ifndef CLEAVE_LIB_TARGET_EMITPIPELINE_H
#define CLEAVE_LIB_TARGET_EMITPIPELINE_H

#include "Emit.h"

#include "cleave/Target/Schedule.h"

#include <map>
#include <memory>

namespace cleave::target {

class PipelineEmitter {
public:
  PipelineEmitter(mlir::ModuleOp module, const PipelineSchedule &schedule,
                  program::Program &program)
      : module(module), schedule(schedule), program(program) {}

  mlir::LogicalResult emit();

  /// Verifies the pipeline schedule with its transfers, and then the command
  /// lists that were emitted from the schedule (ProvePipeline.cpp).
  mlir::LogicalResult prove();

private:
  /// The memory of values with the same lifetime (`pipe.slot`), divided into
  /// equal slots: one slot for every microbatch in flight.
  struct Slots {
    int64_t arena = 0; ///< index into Instance::arenas
    int64_t bytes = 0; ///< of one slot
    int64_t count = 1;
    std::vector<int> slotOf; ///< by microbatch; empty: all use slot 0
    int64_t indexOf(int microbatch) const {
      return microbatch < int(slotOf.size()) ? std::max(slotOf[microbatch], 0)
                                             : 0;
    }
  };
  /// A stage on a pipeline rank; a stage may be on several ranks.
  struct Instance {
    int rank = 0, stage = 0;
    /// Maps arena numbers of this stage's own module to arena numbers of the
    /// emitted program.
    std::vector<int32_t> arenas;
    std::map<std::string, Slots> slots;
    BoundaryTable boundary;
    /// The actions of the stage, by name without the stage's number.
    std::map<std::string, uint32_t> actions;
    std::map<std::string, mlir::func::FuncOp> functions;
  };

  mlir::LogicalResult layOut();
  /// For values with the same lifetime: computes on each rank how many
  /// microbatches have such values alive at the same time, and in which memory
  /// slot each microbatch keeps its values.
  mlir::LogicalResult planSlots();
  /// Creates the arenas of a stage on a rank; `transient` is the rank's arena
  /// of transient values.
  mlir::LogicalResult layOutStage(int rank, int stage, int32_t transient);
  mlir::LogicalResult addSlots(Instance &instance, const std::string &name,
                               int64_t bytes);
  int32_t addArena(Instance &instance, const llvm::Twine &name,
                   program::Lifespan span, int64_t bytes);
  /// Verifies that each stage receives all values that its actions read
  /// (ProvePipeline.cpp).
  mlir::LogicalResult checkPorts() const;
  mlir::LogicalResult emitInstance(Instance &instance, CommandEmitter &emitter);
  mlir::LogicalResult emitVisible(const Instance &instance);
  void emitLoads(int rank);
  void emitInitState(int rank);
  mlir::LogicalResult emitStep(int rank);
  /// Emits copies of a microbatch's inputs from the stored inputs of the whole
  /// step.
  void loadStored(const Instance &own, int microbatch,
                  const std::string &label);
  /// Emits the start or the end of a transfer of the schedule. `started` has
  /// the tokens of transfers in flight.
  void emitTransfer(const Instance &own, const pipeline::LoweredAction &entry,
                    const std::string &label,
                    std::map<pipeline::Action, int32_t> &started);
  class RankUpdate; // EmitUpdate.cpp
  mlir::LogicalResult emitUpdate(int rank);
  mlir::LogicalResult emitChain(int rank, llvm::StringRef function);

  /// Returns the arena for the parameters that UNSHARD gathers for a stage.
  /// Stages that are never gathered at the same time share an arena.
  int32_t gatheredArena(int rank, int stage, int64_t bytes);

  llvm::ArrayRef<int64_t> arenasOf(int stage) const;
  const Instance &at(int rank, int stage) const {
    return *instances.at({rank, stage});
  }
  // Several versions of the weights (EmitVersions.cpp).
  mlir::LogicalResult assignVersions(const Instance &instance, Slots &versions);
  void emitDueUpdate(const Instance &instance);
  void emitLastUpdates(int rank);
  void updateVersion(const Instance &instance, int microbatch, int target);

  // Stages on several ranks (EmitReplicas.cpp).
  void findMicrobatches();
  llvm::ArrayRef<int> microbatchesOf(const Instance &instance) const;
  /// ranksOf returns the ranks that hold the stage, in ascending order. ownerOf
  /// returns the one of them that runs microbatch 0.
  llvm::SmallVector<int> ranksOf(int stage) const;
  int ownerOf(int stage) const;
  bool isOwner(const Instance &instance) const;
  /// Emits the sums of gradients over all ranks of a stage, at the end of a
  /// step.
  void emitReplicaSums(int rank);
  /// Creates a collective that sums buffers over ranks of the pipeline, in
  /// ascending order. The caller adds the buffers by addPart().
  program::Collective sumOver(llvm::ArrayRef<int> ranks,
                              mlir::RankedTensorType type,
                              llvm::StringRef purpose);
  static void addPart(program::Collective &sum, program::BufferRef given,
                      program::BufferRef total, mlir::RankedTensorType type);

  const BoundaryBuffer *bufferOf(const Instance &instance, llvm::StringRef name,
                                 nn::Role role) const;
  program::BufferRef address(const Instance &instance,
                             const BoundaryBuffer &buffer,
                             int microbatch) const;
  static llvm::SmallVector<std::string> portsOf(mlir::func::FuncOp func,
                                                nn::Role role, bool results);
  llvm::SmallVector<std::string>
  handedOver(const Instance &from, const Instance &to,
             llvm::ArrayRef<llvm::StringRef> makers, nn::Role role) const;

  void begin(int rank, const std::string &name);
  void end();
  void push(decltype(program::Command::op) op, const std::string &source);
  /// Emits a call of an action of a stage, for one microbatch. `version` is the
  /// version of the weights that the action uses; by default, the version that
  /// is assigned to the microbatch.
  void call(const Instance &instance, llvm::StringRef action, int microbatch,
            const std::string &label,
            std::optional<int> version = std::nullopt);
  void copy(program::BufferRef from, program::BufferRef to, int64_t bytes,
            const std::string &source);
  int32_t transfer(const Instance &own, int sender, int receiver,
                   llvm::ArrayRef<std::string> names, nn::Role role,
                   int microbatch, const std::string &label);
  program::StringId intern(const std::string &text);

  mlir::ModuleOp module;
  const PipelineSchedule &schedule;
  program::Program &program;
  dist::MeshAttr mesh; ///< of one stage: its pipeline axis has size 1
  mlir::ArrayAttr links;
  mlir::DenseI64ArrayAttr within;
  pipeline::LoweredTable table;
  /// By rank, stage and `pipe.slot` text (a lifetime of values): the number of
  /// memory slots for values of this lifetime, and the slot of each microbatch.
  std::map<std::tuple<int, int, std::string>, pipeline::SlotPlan> slotPlans;
  /// The instances by rank and stage.
  std::map<std::pair<int, int>, std::unique_ptr<Instance>> instances;
  std::map<std::pair<int, int>, std::vector<int>> microbatches;
  std::map<std::string, program::StringId> strings;
  /// For each rank, the arenas of gathered parameters, and the stages that use
  /// them.
  std::map<int, std::vector<std::pair<int32_t, std::vector<int>>>> gathered;
  size_t current = 0; ///< the action that is being written
  int32_t tokens = 0;
  /// Under an asynchronous schedule: the microbatch whose gradient has been
  /// computed but not been applied to the weights of the rank's stage yet.
  std::optional<int> due;
};

} // namespace cleave::target

#endif
