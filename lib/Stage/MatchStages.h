// Finds the stages that name patterns allow for each operation.

#ifndef CLEAVE_LIB_STAGE_MATCHSTAGES_H
#define CLEAVE_LIB_STAGE_MATCHSTAGES_H

#include "StageGraph.h"

#include <string>

namespace cleave::stage {

/// Returns, for each staged operation, the stages whose patterns match its name
/// or the name of a parameter that it reads. Reports malformed patterns and
/// patterns that match nothing.
mlir::FailureOr<llvm::SmallVector<llvm::SmallVector<int64_t, 1>>>
matchStages(mlir::func::FuncOp func, const StageGraph &graph,
            llvm::ArrayRef<std::string> patterns);

/// Reports an operation that is not in the stage that the patterns require for
/// it, unless another reader of the matching parameter is in the required
/// stage.
mlir::LogicalResult
checkStages(mlir::func::FuncOp func, const StageGraph &graph,
            llvm::ArrayRef<std::string> patterns,
            llvm::ArrayRef<llvm::SmallVector<int64_t, 1>> wants,
            llvm::ArrayRef<int64_t> stages);

} // namespace cleave::stage

#endif
