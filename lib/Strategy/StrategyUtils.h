// Helpers shared by the strategies: the mesh, roles, and shardings of
// arguments.

#ifndef CLEAVE_LIB_STRATEGY_STRATEGYUTILS_H
#define CLEAVE_LIB_STRATEGY_STRATEGYUTILS_H

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Dialect/NN/IR/Ports.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::strategy {

/// Returns the only mesh of the module. It is an error if there is none or more
/// than one, or if the mesh lacks the axis.
mlir::FailureOr<dist::MeshOp> meshWithAxis(mlir::ModuleOp module,
                                           llvm::StringRef axis);

using nn::isOneOf, nn::nameOf, nn::Role, nn::roleOf;
dist::ShardingAttr shardingOf(mlir::DictionaryAttr attrs);

/// Returns whether tensors of this role can have a dimension that enumerates
/// the samples of a microbatch.
bool holdsSamples(std::optional<Role> role);
/// Returns whether tensors of this role are sent from one pipeline stage to
/// another.
bool crossesStages(std::optional<Role> role);

/// The axes that split each dimension of a tensor. closedSharding returns a
/// sharding with these axes, in which all dimensions are closed.
using Axes = llvm::SmallVector<llvm::SmallVector<dist::AxisRefAttr>>;
dist::ShardingAttr
closedSharding(dist::MeshOp mesh, const Axes &axes,
               llvm::ArrayRef<dist::AxisRefAttr> partial = {});
/// Returns, for each of `rank` dimensions, the axes that split it; no axes if
/// the sharding is null.
Axes axesOf(dist::ShardingAttr sharding, int64_t rank);

/// Returns whether the pattern of a [[shard]] entry matches the whole name of a
/// parameter.
bool matchesWhole(llvm::StringRef pattern, llvm::StringRef name);

/// Returns whether the user gives the parameter's sharding by an entry of the
/// module attribute `nn.shard`.
bool hasOverride(mlir::ModuleOp module, llvm::StringRef parameter);

/// Emits a remark for each dimension that is padded because its axes do not
/// divide it.
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
