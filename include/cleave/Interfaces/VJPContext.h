// What an operation is told, and what it answers, when it is differentiated.

#ifndef CLEAVE_INTERFACES_VJPCONTEXT_H
#define CLEAVE_INTERFACES_VJPCONTEXT_H

#include "mlir/IR/Builders.h"

namespace cleave {

/// One vector-Jacobian product. The operation reads the cotangents of its
/// results, and sets those of the operands that are wanted.
class VJPContext {
public:
  virtual ~VJPContext() = default;

  /// Where the backward pass is being built.
  virtual mlir::OpBuilder &builder() = 0;
  virtual mlir::Location loc() = 0;

  /// The cotangent of a result, or null where it is zero.
  virtual mlir::Value cotangent(unsigned result) = 0;
  /// Like `cotangent`, but a tensor of zeros in place of null.
  virtual mlir::Value cotangentOrZero(unsigned result) = 0;

  /// Whether the cotangent of an operand is asked for.
  virtual bool wanted(unsigned operand) = 0;
  /// Adds to the cotangent of an operand; the types agree.
  virtual void set(unsigned operand, mlir::Value cotangent) = 0;

  /// A forward value as the backward pass may read it (after nn.save).
  virtual mlir::Value residual(mlir::Value forward) = 0;
};

} // namespace cleave

#endif
