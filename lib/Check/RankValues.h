// Converts arguments and results of a program (called ports in code) between
// the unsharded tensor and the tiles of all ranks of a mesh, for the engines
// that interpret programs.

#ifndef CLEAVE_LIB_CHECK_RANKVALUES_H
#define CLEAVE_LIB_CHECK_RANKVALUES_H

#include "cleave/Check/Engine.h"
#include "cleave/Interpreter/Interpreter.h"

namespace cleave::check {

/// Returns the sharding of an argument or result; null if it is replicated on
/// all ranks.
dist::ShardingAttr shardingOf(const Port &port);

/// Converts the unsharded tensor `whole` to the type of the argument `port` and
/// returns its tiles on all ranks of `mesh`; a null mesh means one rank. Emits
/// an error if the shapes differ.
mlir::FailureOr<RankTensors> tilesOf(dist::MeshAttr mesh, const Port &port,
                                     const Tensor &whole);

/// Assembles the unsharded tensor from the tiles of all ranks; the inverse of
/// tilesOf.
Gathered gather(dist::MeshAttr mesh, const Port &port,
                const RankTensors &tiles);

/// Runs `func` on all ranks of `mesh`; a null mesh means one rank.
mlir::FailureOr<std::vector<RankTensors>>
interpretOn(dist::MeshAttr mesh, mlir::func::FuncOp func,
            llvm::ArrayRef<RankTensors> arguments);

/// Creates an engine that interprets a module of pipeline stages in the order
/// of their schedule.
mlir::FailureOr<std::unique_ptr<Engine>>
makePipelineEngine(mlir::ModuleOp module);

} // namespace cleave::check

#endif
