// What interpreted engines do with the value of a port on all ranks of a mesh.

#ifndef CLEAVE_LIB_CHECK_RANKVALUES_H
#define CLEAVE_LIB_CHECK_RANKVALUES_H

#include "cleave/Check/Engine.h"
#include "cleave/Interpreter/Interpreter.h"

namespace cleave::check {

/// The sharding of a port; null: every rank has all of it.
dist::ShardingAttr shardingOf(const Port &port);

/// `whole` in the type of `port`, on every rank of `mesh`; null: one rank.
/// Reports a value of another shape.
mlir::FailureOr<RankTensors> tilesOf(dist::MeshAttr mesh, const Port &port,
                                     const Tensor &whole);

/// The inverse.
Gathered gather(dist::MeshAttr mesh, const Port &port,
                const RankTensors &tiles);

/// Runs `func` on all ranks of `mesh`; null: on one rank.
mlir::FailureOr<std::vector<RankTensors>>
interpretOn(dist::MeshAttr mesh, mlir::func::FuncOp func,
            llvm::ArrayRef<RankTensors> arguments);

/// The oracle for a module of pipeline stages.
mlir::FailureOr<std::unique_ptr<Engine>>
makePipelineEngine(mlir::ModuleOp module);

} // namespace cleave::check

#endif
