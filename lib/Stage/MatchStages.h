// Which stages an operation may be in by patterns of names.

#ifndef CLEAVE_LIB_STAGE_MATCHSTAGES_H
#define CLEAVE_LIB_STAGE_MATCHSTAGES_H

#include "StageGraph.h"

#include <string>

namespace cleave::stage {

/// For each staged operation the stages whose patterns match its name or the
/// name of a parameter that it reads. A malformed pattern, and one that matches
/// nothing, is reported.
mlir::FailureOr<llvm::SmallVector<llvm::SmallVector<int64_t, 1>>>
matchStages(mlir::func::FuncOp func, const StageGraph &graph,
            llvm::ArrayRef<std::string> patterns);

/// Reports an operation in a stage that it does not want, unless another reader
/// of the parameter that matched is in the wanted one.
mlir::LogicalResult
checkStages(mlir::func::FuncOp func, const StageGraph &graph,
            llvm::ArrayRef<std::string> patterns,
            llvm::ArrayRef<llvm::SmallVector<int64_t, 1>> wants,
            llvm::ArrayRef<int64_t> stages);

} // namespace cleave::stage

#endif
