// The phases of a model that is cut into pipeline stages.

#ifndef CLEAVE_COMPILER_PIPELINED_H
#define CLEAVE_COMPILER_PIPELINED_H

#include "cleave/Compiler/Phases.h"
#include "cleave/Target/Schedule.h"

#include "mlir/IR/OwningOpRef.h"

#include <functional>

namespace cleave::compiler {

/// Returns whether the configuration cuts the model into pipeline stages on
/// this mesh.
bool isPipelined(const Config &config, const Mesh &mesh);

/// Returns the schedule that the configuration selects.
mlir::FailureOr<target::PipelineSchedule>
makeSchedule(const Config &config, const Mesh &mesh,
             mlir::MLIRContext *context);

/// Options for deriving a training program.
struct TrainPhaseOptions {
  Purpose purpose = Purpose::Compile;
  /// True if gradients become results of @update, so that a check can compare
  /// them.
  bool tapGradients = false;
  /// Called after @loss is derived, before differentiation and partitioning. If
  /// the function fails (it reports the error itself), compilation ends.
  std::function<mlir::LogicalResult(mlir::ModuleOp)> afterLoss;
};

/// Derives the training program of a loaded model and cuts it into stages:
/// `model` becomes a module of modules @stage0, @stage1, ...
mlir::LogicalResult cutPipeline(mlir::ModuleOp model, const Config &config,
                                const Mesh &mesh,
                                const TrainPhaseOptions &options);

/// Options for partitioning stages.
struct ShardPhaseOptions {
  bool allRemarks = false; ///< also report the origin of every sharding
  bool infers = false;     ///< true for inference: only @forward is kept
  /// Called for each stage before it is partitioned. A check uses this to add
  /// values to the stage's results (taps), so that it can compare them.
  std::function<void(mlir::ModuleOp)> prepareStage;
};

/// Turns the result of cutPipeline into one module with the actions of all
/// stages and the schedule; `model` is left empty.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
shardPipeline(mlir::ModuleOp model, const Config &config, const Mesh &mesh,
              const ShardPhaseOptions &options);

} // namespace cleave::compiler

#endif // CLEAVE_COMPILER_PIPELINED_H
