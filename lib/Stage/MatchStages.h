// Finds for each operation the stages whose pattern (parallel.pipeline.stages)
// matches a name of the operation or of its parameters.

#ifndef CLEAVE_LIB_STAGE_MATCHSTAGES_H
#define CLEAVE_LIB_STAGE_MATCHSTAGES_H

#include "StageGraph.h"

#include <string>

namespace cleave::stage {

/// Returns, for each operation that belongs to a stage (StageGraph::staged),
/// the stages whose patterns match its name or the name of a parameter that it
/// reads. Reports malformed patterns and patterns that match nothing.
mlir::FailureOr<llvm::SmallVector<llvm::SmallVector<int64_t, 1>>>
matchStages(mlir::func::FuncOp func, const StageGraph &graph,
            llvm::ArrayRef<std::string> patterns);

/// Reports an operation that is in another stage than its patterns require. A
/// pattern that matches a parameter is also satisfied if any operation that
/// reads this parameter is in the required stage (for example, a tied
/// embedding).
mlir::LogicalResult
checkStages(mlir::func::FuncOp func, const StageGraph &graph,
            llvm::ArrayRef<std::string> patterns,
            llvm::ArrayRef<llvm::SmallVector<int64_t, 1>> wants,
            llvm::ArrayRef<int64_t> stages);

} // namespace cleave::stage

#endif
