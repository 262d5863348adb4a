// Interprets the stages of a pipeline on their ranks. The interpreter models
// where values are stored, and how each action of the pipeline schedule changes
// them.

#ifndef CLEAVE_LIB_CHECK_PIPELINEENGINE_H
#define CLEAVE_LIB_CHECK_PIPELINEENGINE_H

#include "RankValues.h"
#include "cleave/Target/Schedule.h"

#include <map>
#include <set>

namespace cleave::check {

/// A stage on a pipeline rank, with its values. A pipeline rank is an index on
/// the pipeline axis and stands for all ranks with this index, which form the
/// stage's mesh.
struct StageInstance {
  /// A value on all ranks of the stage's mesh. If the value exists once for
  /// each microbatch, the buffer has several copies (slots), one for each
  /// microbatch in flight.
  struct Buffer {
    Port port;
    std::string slot; ///< slot class (pipe.slot); "": the value exists once
    std::vector<RankTensors> values{1};
    /// For a tap (a result that `check --bisect` adds to compare a value): the
    /// value of each microbatch.
    std::map<int64_t, RankTensors> history;
  };

  int rank = 0, stage = 0;
  /// The functions of the stage, by their name without the stage number.
  std::map<std::string, mlir::func::FuncOp> functions;
  /// The buffers by role and name.
  std::map<std::string, Buffer> buffers;
  /// For each slot class (values with the same lifetime, pipe.slot) and each
  /// microbatch, the number of the slot in which the microbatch's values are
  /// stored.
  std::map<std::string, std::vector<int>> slotOf;
  std::set<int64_t> microbatches; ///< the microbatches that the rank runs
  /// Returns whether this rank owns the stage, that is, runs its microbatch 0.
  /// If several ranks have a stage, only the owner runs the evaluation and
  /// contributes to sums over all stages.
  bool isOwner() const { return microbatches.count(0); }

  /// Returns the value `key` of the microbatch on all ranks, for reading or
  /// writing; null if the stage has no such value.
  RankTensors *find(const std::string &key, int64_t microbatch);
};

/// Messages from one rank to another: the n-th started send matches the n-th
/// started receive.
struct Channel {
  struct End {
    StageInstance *instance;
    std::vector<std::string> keys;
    int64_t microbatch;
  };
  std::vector<End> sends, receives;
  std::vector<bool> done;
};

void addTo(RankTensors &total, const RankTensors &more);

class PipelineEngine : public Engine {
public:
  explicit PipelineEngine(mlir::ModuleOp module) : module(module) {}

  mlir::LogicalResult load();

  bool hasFunction(llvm::StringRef name) const override;
  mlir::LogicalResult set(const Port &port, const Tensor &whole) override;
  mlir::LogicalResult run(llvm::StringRef function) override;
  mlir::FailureOr<Gathered> get(const Port &port) override;
  bool keepsTaps() const override { return true; }
  mlir::FailureOr<Gathered> getTap(const Port &port,
                                   int64_t microbatch) override;

private:
  /// The position of a rank in its action list, while a step is interpreted.
  struct Cursor {
    size_t next = 0;
    /// Whether the blocking transfer at `next` was started.
    bool isStarted = false;
    /// For each send and receive of the rank, its index (0, 1, ...) among the
    /// messages of the channel that it uses.
    std::map<pipeline::Action, size_t> number;
  };

  mlir::LogicalResult addInstance(int rank, int stage);
  mlir::LogicalResult planSlots();
  mlir::LogicalResult call(StageInstance &instance, llvm::StringRef function,
                           int64_t microbatch);
  std::vector<std::string> handedOver(const StageInstance &from,
                                      const StageInstance &to,
                                      llvm::ArrayRef<llvm::StringRef> makers,
                                      nn::Role role) const;
  mlir::LogicalResult move(const Channel::End &from, const Channel::End &to);

  mlir::LogicalResult runStep();
  void addUpReplicas();
  bool isTied(const std::string &parameter) const;
  mlir::FailureOr<bool> advance(int rank);
  mlir::FailureOr<bool> transfer(const pipeline::LoweredAction &entry,
                                 int rank);
  mlir::LogicalResult compute(const pipeline::Action &action, int rank);
  mlir::LogicalResult runUpdate();
  mlir::LogicalResult runChain(llvm::StringRef function);

  StageInstance &at(int rank, int stage) { return instances.at({rank, stage}); }
  mlir::FailureOr<Gathered> gatherAll(
      const Port &port,
      llvm::function_ref<const RankTensors *(StageInstance::Buffer &)> value);
  int64_t rankOf(const StageInstance &instance, int64_t inner) const;

  mlir::ModuleOp module;
  /// The mesh of a stage, without the pipeline's ranks (its axis has size 1).
  dist::MeshAttr mesh;
  target::PipelineSchedule schedule;
  pipeline::LoweredTable table;
  std::map<std::pair<int, int>, StageInstance> instances; // by rank and stage
  // By sending and receiving rank.
  std::map<std::pair<int, int>, Channel> channels;
  std::vector<Cursor> cursors;
  int64_t loaded = 0; ///< number of microbatches loaded for this step
};

} // namespace cleave::check

#endif
