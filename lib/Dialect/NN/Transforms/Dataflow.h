// Queries and builders that the patterns in this folder share.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_DATAFLOW_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_DATAFLOW_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/IR/PatternMatch.h"

#include <optional>

namespace cleave::nn {

using cleave::shapeOf;
using cleave::typeOf;

using Dims = llvm::SmallVector<int64_t, 6>;

inline int64_t rankOf(mlir::Value value) { return typeOf(value).getRank(); }

/// Returns whether the operation is elementwise: it has one result, operands of
/// the same shape and no side effects.
bool isElementwise(mlir::Operation *op);

/// Clones an elementwise operation with new operands, which all have the shape
/// `shape`; the result has this shape.
mlir::Value cloneElementwise(mlir::OpBuilder &builder, mlir::Operation *op,
                             mlir::ValueRange operands,
                             llvm::ArrayRef<int64_t> shape);

/// Returns the number that all elements of a splat constant have. Looks through
/// data movement, such as broadcasts and reshapes. Returns nullopt for other
/// values.
std::optional<double> splatOf(mlir::Value value);
/// Returns a splat constant with the elements of `value`, bit by bit, in the
/// shape `shape`; null if `value` is no splat.
mlir::Value reshapedSplat(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value value, llvm::ArrayRef<int64_t> shape);
bool isSplat(mlir::Value value, double number, double tolerance = 0);

/// [0, rank) in order.
Dims allDims(int64_t rank);
Dims inverse(llvm::ArrayRef<int64_t> permutation);
bool isIdentity(llvm::ArrayRef<int64_t> permutation);

// Each of these builders returns the operand itself if it already has the
// wanted shape.
mlir::Value reshapeTo(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value value, llvm::ArrayRef<int64_t> shape);
mlir::Value transposeTo(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value value, llvm::ArrayRef<int64_t> permutation);
mlir::Value broadcastTo(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value value, llvm::ArrayRef<int64_t> shape,
                        llvm::ArrayRef<int64_t> dims);

/// The source of a broadcast: dimension i of `source` is dimension `dims[i]` of
/// the broadcast value. The source is repeated along the other dimensions.
struct Narrow {
  mlir::Value source;
  Dims dims;
};
Narrow narrow(mlir::Value value);

// Each function adds the patterns of the file after which it is named, such as
// MovementPatterns.cpp.
void populateMovementPatterns(mlir::RewritePatternSet &patterns);
void populateEinsumPatterns(mlir::RewritePatternSet &patterns);
void populateLogicPatterns(mlir::RewritePatternSet &patterns);
/// Adds patterns that fold transposes of an einsum's result into the letters of
/// its equation. They run last, when the movement patterns have moved
/// transposes as far as possible.
void populateEinsumResultPatterns(mlir::RewritePatternSet &patterns);
/// Renames the letters of every einsum to a, b, ... in order of first use, so
/// that equal contractions have equal text.
void renameLetters(mlir::Operation *root);
void populateRaiseNormPatterns(mlir::RewritePatternSet &patterns);
void populateRaiseGeluPatterns(mlir::RewritePatternSet &patterns);
void populateRaiseRotaryPatterns(mlir::RewritePatternSet &patterns);
void populateRaiseAttentionPatterns(mlir::RewritePatternSet &patterns);

} // namespace cleave::nn

#endif
