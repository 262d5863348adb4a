// The op interfaces and the types that their methods use.

#ifndef CLEAVE_INTERFACES_INTERFACES_H
#define CLEAVE_INTERFACES_INTERFACES_H

#include "cleave/Interfaces/ShardingRule.h"
#include "cleave/Interfaces/Tensor.h"
#include "cleave/Interfaces/VJPContext.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

namespace cleave {

/// The kind of kernel that an operation becomes.
enum class KernelClass {
  /// An element of the result depends on one element of each operand.
  Elementwise,
  /// Shape operations (broadcast, reshape, transpose, slice, iota, ...), which
  /// become index arithmetic inside the kernel that reads the result.
  View,
  /// Operations on rows along the last dimension: norms, softmax,
  /// cross-entropy.
  Row,
  /// A reduction over any dimensions.
  Reduction,
  /// Operations with indices given by a tensor: gather, scatter_add, argmax.
  Indexing,
  /// A library call: matrix products, attention.
  Library,
  /// Communication between ranks.
  Collective,
  /// Operations for which no code is generated: save, rematerialize.
  Identity,
};

/// How an operation takes part in mixed precision (`nn-mixed-precision`).
struct PrecisionRule {
  enum class Kind {
    /// Computes in f32 for any operand type; the results may be rounded to
    /// bf16.
    Computes,
    /// Only moves elements: the results have the type of the operands.
    Moves,
    /// Reads bf16 and accumulates in f32; the results may be bf16 or f32.
    Multiplies,
  };
  Kind kind = Kind::Computes;
  /// The indices of the operands that the operation moves or multiplies; an
  /// empty list stands for all floating-point operands.
  llvm::SmallVector<unsigned> narrow;
  /// The indices of the results that are never rounded to bf16: statistics,
  /// losses, sums.
  llvm::SmallVector<unsigned> wideResults;
  /// The indices of the operands by which the operation chooses elements, such
  /// as the scores of a top-k. They are not rounded to bf16, since the choice
  /// could then be different.
  llvm::SmallVector<unsigned> exact;

  /// Returns the rule for an operation that defines no precision rule itself;
  /// the rule depends on the operation's kernel class.
  static PrecisionRule of(KernelClass kernelClass);
};

/// Returns the sum of the sizes of all operands and results, in bytes.
int64_t bytesOfOperandsAndResults(mlir::Operation *op);

/// Returns the number of bytes of a tensor of static shape; i1 counts as one
/// byte.
int64_t bytesOf(mlir::Type type);

} // namespace cleave

#include "cleave/Interfaces/Interfaces.h.inc"

namespace cleave {

/// Attaches the implementations of all interfaces to the nn, arith and math
/// operations. Every tool that loads these dialects calls this function.
void registerInterfaceModels(mlir::DialectRegistry &registry);

} // namespace cleave

#endif
