// Helpers shared by the strategies: the mesh, roles, and shardings of
// arguments.

#ifndef CLEAVE_LIB_STRATEGY_STRATEGYUTILS_H
#define CLEAVE_LIB_STRATEGY_STRATEGYUTILS_H

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Dialect/NN/IR/Ports.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::strategy {

/// The module's only mesh; an error if there is not exactly one, or if it lacks
/// the axis.
mlir::FailureOr<dist::MeshOp> meshWithAxis(mlir::ModuleOp module,
                                           llvm::StringRef axis);

using nn::isOneOf, nn::nameOf, nn::Role, nn::roleOf;
dist::ShardingAttr shardingOf(mlir::DictionaryAttr attrs);

/// Whether tensors of this role can have a dimension of one microbatch's
/// samples.
bool holdsSamples(std::optional<Role> role);
/// Whether tensors of this role are sent from one pipeline stage to another.
bool crossesStages(std::optional<Role> role);

/// A sharding with these axes for each dimension; all dimensions are closed.
using Axes = llvm::SmallVector<llvm::SmallVector<dist::AxisRefAttr>>;
dist::ShardingAttr
closedSharding(dist::MeshOp mesh, const Axes &axes,
               llvm::ArrayRef<dist::AxisRefAttr> partial = {});
/// The axes of a sharding for each dimension; empty lists if it is null.
Axes axesOf(dist::ShardingAttr sharding, int64_t rank);

/// Whether the pattern of an override matches the whole name.
bool matchesWhole(llvm::StringRef pattern, llvm::StringRef name);

/// Whether an entry of `nn.shard` gives the parameter's sharding.
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
