// What an operation reads and sets when its derivative is built.

#ifndef CLEAVE_INTERFACES_VJPCONTEXT_H
#define CLEAVE_INTERFACES_VJPCONTEXT_H

#include "mlir/IR/Builders.h"

namespace cleave {

/// The vector-Jacobian product of one operation, which reads the cotangents of
/// its results and sets the cotangents of those operands that are wanted.
class VJPContext {
public:
  virtual ~VJPContext() = default;

  /// Returns the builder that inserts the operations of the backward pass.
  virtual mlir::OpBuilder &builder() = 0;
  virtual mlir::Location loc() = 0;

  /// Returns the cotangent of a result, or null if it is zero.
  virtual mlir::Value cotangent(unsigned result) = 0;
  /// Like `cotangent`, but returns a tensor of zeros in place of null.
  virtual mlir::Value cotangentOrZero(unsigned result) = 0;

  /// Returns whether the cotangent of an operand is needed.
  virtual bool wanted(unsigned operand) = 0;
  /// Adds `cotangent`, which must have the type of the operand, to the
  /// cotangent of the operand. Does nothing if the operand's cotangent is not
  /// wanted.
  virtual void set(unsigned operand, mlir::Value cotangent) = 0;

  /// Returns the value that the backward pass must read in place of the value
  /// `forward` of the forward pass, and marks `forward` as saved (nn.save) if
  /// necessary.
  virtual mlir::Value residual(mlir::Value forward) = 0;

  /// Replaces an operation of the forward pass, whose derivative is being
  /// built, by an operation with `values` in place of its results. The replaced
  /// operation stays in the block, without uses, until the backward pass is
  /// complete.
  virtual void replaceForward(mlir::Operation *op, mlir::ValueRange values) = 0;
};

} // namespace cleave

#endif
