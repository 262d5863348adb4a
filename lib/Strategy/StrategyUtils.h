// What strategies share: the mesh, roles, and shardings of arguments.

#ifndef CLEAVE_LIB_STRATEGY_STRATEGYUTILS_H
#define CLEAVE_LIB_STRATEGY_STRATEGYUTILS_H

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Dialect/NN/IR/Ports.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::strategy {

/// The one mesh of the module, if it has the axis; else an error.
mlir::FailureOr<dist::MeshOp> meshWithAxis(mlir::ModuleOp module,
                                           llvm::StringRef axis);

using nn::isOneOf, nn::nameOf, nn::Role, nn::roleOf;
dist::ShardingAttr shardingOf(mlir::DictionaryAttr attrs);

/// Whether the role is one of tensors that can hold one microbatch's samples.
bool holdsSamples(std::optional<Role> role);
/// Whether it is of what a pipeline stage sends to another.
bool crossesStages(std::optional<Role> role);

/// Axes per dimension, all closed.
using Axes = llvm::SmallVector<llvm::SmallVector<dist::AxisRefAttr>>;
dist::ShardingAttr
closedSharding(dist::MeshOp mesh, const Axes &axes,
               llvm::ArrayRef<dist::AxisRefAttr> partial = {});
/// The axes of a sharding, or none of them for a null one.
Axes axesOf(dist::ShardingAttr sharding, int64_t rank);

/// Whether the pattern of an override matches the name, all of it.
bool matchesWhole(llvm::StringRef pattern, llvm::StringRef name);

/// Whether an entry of `nn.shard` gives the parameter's sharding.
bool hasOverride(mlir::ModuleOp module, llvm::StringRef parameter);

/// Says of each dimension that its axes do not divide that it is padded.
void remarkOnPadding(mlir::Location loc, llvm::StringRef parameter,
                     mlir::RankedTensorType type, const Axes &axes,
                     dist::MeshAttr mesh);

/// Calls `visit(type, attributes)` for each argument and result of all
/// functions with a body, and sets the sharding that it returns, if any.
void setBoundaryShardings(mlir::ModuleOp module,
                          llvm::function_ref<dist::ShardingAttr(
                              mlir::RankedTensorType, mlir::DictionaryAttr)>
                              visit);

} // namespace cleave::strategy

#endif
