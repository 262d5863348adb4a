// Small questions and helpers that the patterns of this folder share.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_DATAFLOW_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_DATAFLOW_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/IR/PatternMatch.h"

#include <optional>

namespace cleave::nn {

using Dims = llvm::SmallVector<int64_t, 6>;

inline mlir::RankedTensorType tensorTypeOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return tensorTypeOf(value).getShape();
}
inline int64_t rankOf(mlir::Value value) {
  return tensorTypeOf(value).getRank();
}

/// Whether each element of the one result follows from the same element of each
/// operand, all of one shape, and the operation has no effects.
bool isElementwise(mlir::Operation *op);

/// The same operation on operands of another shape.
mlir::Value cloneElementwise(mlir::OpBuilder &builder, mlir::Operation *op,
                             mlir::ValueRange operands,
                             llvm::ArrayRef<int64_t> shape);

/// The number that a constant repeats, seen through broadcasts and reshapes.
std::optional<double> splatOf(mlir::Value value);
/// The same number, exactly, in another shape; null where it is none.
mlir::Value reshapedSplat(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value value, llvm::ArrayRef<int64_t> shape);
bool isSplat(mlir::Value value, double number, double tolerance = 0);

/// [0, rank) in order.
Dims allDims(int64_t rank);
Dims inverse(llvm::ArrayRef<int64_t> permutation);
bool isIdentity(llvm::ArrayRef<int64_t> permutation);

// Builders that give back the operand where there is nothing to do.
mlir::Value reshapeTo(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value value, llvm::ArrayRef<int64_t> shape);
mlir::Value transposeTo(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value value, llvm::ArrayRef<int64_t> permutation);
mlir::Value broadcastTo(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value value, llvm::ArrayRef<int64_t> shape,
                        llvm::ArrayRef<int64_t> dims);

/// A value without the broadcast that made it: `dims[i]` is the dimension of
/// the value that dimension i of the source becomes.
struct Narrow {
  mlir::Value source;
  Dims dims;
};
Narrow narrow(mlir::Value value);

// Pattern sets; see the files of the same names.
void populateMovementPatterns(mlir::RewritePatternSet &patterns);
void populateEinsumPatterns(mlir::RewritePatternSet &patterns);
void populateLogicPatterns(mlir::RewritePatternSet &patterns);
/// Transposes that could not go elsewhere end in the einsum that made them.
void populateEinsumResultPatterns(mlir::RewritePatternSet &patterns);
/// The letters of every einsum become a, b, ... in order of first use, so that
/// equal contractions read alike.
void renameLetters(mlir::Operation *root);
void populateRaiseNormPatterns(mlir::RewritePatternSet &patterns);
void populateRaiseGeluPatterns(mlir::RewritePatternSet &patterns);
void populateRaiseRotaryPatterns(mlir::RewritePatternSet &patterns);
void populateRaiseAttentionPatterns(mlir::RewritePatternSet &patterns);

} // namespace cleave::nn

#endif
