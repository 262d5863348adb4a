// Building functions of the logical program: arguments and results with names
// and roles.

#ifndef CLEAVE_LIB_AUTODIFF_BUILDFUNCTIONS_H
#define CLEAVE_LIB_AUTODIFF_BUILDFUNCTIONS_H

#include "cleave/Dialect/NN/IR/Ports.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace cleave::autodiff {

using nn::isOneOf, nn::nameOf, nn::portAttrs, nn::resultRoleOf, nn::roleOf;

/// Replaces the function's return and its result types and attributes.
void setResults(mlir::func::FuncOp func, llvm::ArrayRef<mlir::Value> values,
                llvm::ArrayRef<mlir::DictionaryAttr> attrs);

/// Copies `func` under another name and inserts the copy at the end of the
/// module.
mlir::func::FuncOp cloneAs(mlir::func::FuncOp func, llvm::StringRef name);

/// Returns whether any of the regular expressions `patterns` matches the whole
/// name that an argument with these attributes has in the model's file. If the
/// argument stacks several tensors of the file, either all or none of them must
/// match; otherwise an error is reported on `op`.
mlir::FailureOr<bool> matchesAny(mlir::Operation *op,
                                 llvm::ArrayRef<std::string> patterns,
                                 mlir::DictionaryAttr attrs);

/// Reports an error if the patterns match some, but not all, of the names of a
/// tied parameter. `key` is the configuration key that holds the list of
/// patterns.
mlir::LogicalResult checkTied(mlir::func::FuncOp func,
                              llvm::ArrayRef<std::string> patterns,
                              llvm::StringRef key);

/// Reports patterns that match no parameter's name and are probably misspelt:
/// as errors if `refuse` is set, otherwise as warnings. `key` is the
/// configuration key that holds the list of patterns.
mlir::LogicalResult reportIdle(mlir::func::FuncOp func,
                               llvm::ArrayRef<std::string> patterns,
                               llvm::StringRef key, bool refuse);

/// Returns the type of a function's first result, which is the loss. Reports an
/// error if the function has no result, or one of another kind of type.
mlir::FailureOr<mlir::RankedTensorType> lossTypeOf(mlir::func::FuncOp func);

} // namespace cleave::autodiff

#endif
