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

/// A copy of `func` under another name, behind the last function of the module.
mlir::func::FuncOp cloneAs(mlir::func::FuncOp func, llvm::StringRef name);

/// Whether a regular expression of the list matches the whole name of the
/// tensor of the file that an argument with these attributes is. Of the parts
/// of a stack all must match, or none. What is malformed is reported on `op`.
mlir::FailureOr<bool> matchesAny(mlir::Operation *op,
                                 llvm::ArrayRef<std::string> patterns,
                                 mlir::DictionaryAttr attrs);

/// Refuses patterns that match one of two tensors of the file that are tied.
/// `key` is the configuration's name of the list.
mlir::LogicalResult checkTied(mlir::func::FuncOp func,
                              llvm::ArrayRef<std::string> patterns,
                              llvm::StringRef key);

/// Refuses, or warns of, patterns that match no parameter's name: they are
/// probably misspelt. `key` is the configuration's name of the list.
mlir::LogicalResult reportIdle(mlir::func::FuncOp func,
                               llvm::ArrayRef<std::string> patterns,
                               llvm::StringRef key, bool refuse);

} // namespace cleave::autodiff

#endif
