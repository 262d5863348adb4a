// Values of ports on all ranks of a mesh, for the engines that interpret
// programs.

#ifndef CLEAVE_LIB_CHECK_RANKVALUES_H
#define CLEAVE_LIB_CHECK_RANKVALUES_H

#include "cleave/Check/Engine.h"
#include "cleave/Interpreter/Interpreter.h"

namespace cleave::check {

/// Returns the sharding of a port; null if it is replicated on all ranks.
dist::ShardingAttr shardingOf(const Port &port);

/// Converts `whole` to the type of `port` and returns its tiles on all ranks of
/// `mesh`; a null mesh means one rank. Reports a value with a different shape.
mlir::FailureOr<RankTensors> tilesOf(dist::MeshAttr mesh, const Port &port,
                                     const Tensor &whole);

/// The inverse.
Gathered gather(dist::MeshAttr mesh, const Port &port,
                const RankTensors &tiles);

/// Runs `func` on all ranks of `mesh`; a null mesh means one rank.
mlir::FailureOr<std::vector<RankTensors>>
interpretOn(dist::MeshAttr mesh, mlir::func::FuncOp func,
            llvm::ArrayRef<RankTensors> arguments);

/// Creates the reference execution of a module of pipeline stages.
mlir::FailureOr<std::unique_ptr<Engine>>
makePipelineEngine(mlir::ModuleOp module);

} // namespace cleave::check

#endif
