// Finds, for each kind of fault that `cleave check --inject` can inject, the
// places in a per-rank program where it can be injected.

#ifndef CLEAVE_LIB_CHECK_FAULTPLACES_H
#define CLEAVE_LIB_CHECK_FAULTPLACES_H

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::check {

/// A possible fault: the operation that it changes (for messages), and the
/// function that injects the fault.
struct Place {
  mlir::Operation *op;
  std::function<void()> apply;
};
using Places = std::vector<Place>;

// Faults of collectives.
Places dropCollective(mlir::ModuleOp module);
Places sumForMean(mlir::ModuleOp module);
Places wrongGroup(mlir::ModuleOp module);
Places biasTwice(mlir::ModuleOp module);
Places normTwice(mlir::ModuleOp module);

// Faults of other operations than collectives.
Places swappedAxes(mlir::ModuleOp module);
Places padIdentity(mlir::ModuleOp module);
Places randomOffset(mlir::ModuleOp module);
Places staleBuffer(mlir::ModuleOp module);
Places gradientOff(mlir::ModuleOp module);
Places missingWaits(mlir::ModuleOp module);
/// Always returns an empty list. Some kinds of faults can only be injected into
/// the command lists of a pipeline, which are not part of the module.
Places ofPipelines(mlir::ModuleOp module);

/// Describes an operation for messages: its name, its function and the node of
/// the ONNX graph that it comes from.
std::string describe(mlir::Operation *op);

/// Returns the name of a function without the pipeline stage: "update" for
/// @update.0.1.
llvm::StringRef functionName(mlir::func::FuncOp func);

/// Calls `visit` for each operation of the functions that a check runs.
void walkChecked(mlir::ModuleOp module,
                 llvm::function_ref<void(mlir::Operation *)> visit);

/// Returns the mesh that `op` refers to.
dist::MeshAttr meshOf(mlir::Operation *op, mlir::FlatSymbolRefAttr name);

/// Returns the axes of the mesh with more than one rank that do not overlap
/// `axes`. With `size`, only axes of this size.
llvm::SmallVector<dist::AxisRefAttr>
otherAxes(dist::MeshAttr mesh, dist::AxisListAttr axes, int64_t size = 0);

/// Creates a splat constant before `op`.
mlir::Value splatBefore(mlir::Operation *op, mlir::Type type, double value);

} // namespace cleave::check

#endif
