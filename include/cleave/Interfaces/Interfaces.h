// The op interfaces and the types that they speak of.

#ifndef CLEAVE_INTERFACES_INTERFACES_H
#define CLEAVE_INTERFACES_INTERFACES_H

#include "cleave/Interfaces/ShardingRule.h"
#include "cleave/Interfaces/Tensor.h"
#include "cleave/Interfaces/VJPContext.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

namespace cleave {

/// Which kind of kernel an operation becomes.
enum class KernelClass {
  /// One element of the result from one element of each operand.
  Elementwise,
  /// Placement only (broadcast, reshape, transpose, slice, iota, ...): read by
  /// index arithmetic inside the kernel that uses it.
  View,
  /// Rows along the last dimension: norms, softmax, cross-entropy.
  Row,
  /// A reduction over any dimensions.
  Reduction,
  /// Indices that are data: gather, scatter_add, argmax.
  Indexing,
  /// A library call: matrix products, attention.
  Library,
  /// Communication between ranks.
  Collective,
  /// No code: save, rematerialize.
  Identity,
};

/// How an operation takes part in mixed precision (`nn-mixed-precision`).
struct PrecisionRule {
  enum class Kind {
    /// Computes in f32 whatever it reads; what it gives may be rounded.
    Computes,
    /// Places elements: what it gives has the type of what it reads.
    Moves,
    /// Reads bf16 and accumulates in f32; gives either.
    Multiplies,
  };
  Kind kind = Kind::Computes;
  /// The operands that are moved or multiplied; none: all of floating type.
  llvm::SmallVector<unsigned> narrow;
  /// Results that are never rounded: statistics, losses, sums.
  llvm::SmallVector<unsigned> wideResults;
  /// Operands by which the operation chooses: rounding could choose otherwise.
  llvm::SmallVector<unsigned> exact;

  /// Of an operation that says nothing else.
  static PrecisionRule of(KernelClass kernelClass);
};

/// Sum of the sizes of all operands and results in bytes.
int64_t bytesOfOperandsAndResults(mlir::Operation *op);

/// Number of bytes of a tensor of static shape; i1 counts one byte.
int64_t bytesOf(mlir::Type type);

} // namespace cleave

#include "cleave/Interfaces/Interfaces.h.inc"

namespace cleave {

/// Attaches all models to the nn, arith and math operations. Called by every
/// tool that loads these dialects. One function per question and family stands
/// after it.
void registerInterfaceModels(mlir::DialectRegistry &registry);

} // namespace cleave

#endif
