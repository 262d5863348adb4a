//===- BlockVJP.h - reverse mode over one block -----------------*- C++ -*-===//
//
// Differentiates the operations of a block in reverse order. The class keeps
// track of active values (those whose cotangents are computed), adds up
// cotangents, and asks each operation for its own derivative. nn-differentiate
// uses it for the body of a function, and the derivative of nn.scan uses it for
// the body of the loop.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_INTERFACES_BLOCKVJP_H
#define CLEAVE_INTERFACES_BLOCKVJP_H

#include "cleave/Interfaces/Interfaces.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace cleave {

class BlockVJP : public VJPContext {
public:
  /// `builder` inserts the operations of the backward pass.
  explicit BlockVJP(mlir::OpBuilder builder) : build(builder) {}

  /// Marks a value as active, that is, as one whose cotangent is needed.
  void activate(mlir::Value value) { active.insert(value); }
  bool isActive(mlir::Value value) const { return active.contains(value); }
  /// Activates the float results of all operations of `block` that read an
  /// active value. Returns these operations in order.
  llvm::SmallVector<mlir::Operation *> activateResults(mlir::Block &block);

  /// Adds a term to the cotangent of a forward value.
  void add(mlir::Value forward, mlir::Value cotangent);
  /// Returns the cotangent of a forward value, or null if it is zero.
  mlir::Value cotangentOf(mlir::Value forward) const {
    return cotangents.lookup(forward);
  }
  /// Builds the derivatives of the operations, in reverse order. Skips
  /// operations whose results all have no cotangent. Reports an error for an
  /// operation that has no derivative.
  mlir::LogicalResult visit(llvm::ArrayRef<mlir::Operation *> forward);

  mlir::OpBuilder &builder() override { return build; }
  mlir::Location loc() override { return location; }
  mlir::Value cotangent(unsigned result) override;
  mlir::Value cotangentOrZero(unsigned result) override;
  bool wanted(unsigned operand) override;
  void set(unsigned operand, mlir::Value cotangent) override;
  mlir::Value residual(mlir::Value forward) override;
  void replaceForward(mlir::Operation *op, mlir::ValueRange values) override;
  /// Erases the operations that replaceForward has replaced.
  void eraseReplaced();

protected:
  /// Returns the value that the backward pass reads in place of a constant of
  /// the forward pass.
  virtual mlir::Value readConstant(mlir::Value constant) { return constant; }
  /// Returns the value that the backward pass reads in place of an argument of
  /// the block.
  virtual mlir::Value readArgument(mlir::BlockArgument argument) {
    return argument;
  }
  /// Saves a value that an operation of the forward pass computes; returns the
  /// value that the backward pass reads.
  virtual mlir::Value save(mlir::OpResult value) = 0;

private:
  /// Clones an operation of the forward pass that only changes the shape (such
  /// as a reshape) into the backward pass, where it reads the saved operands.
  /// Such an operation costs nothing, so its result need not be saved.
  mlir::Value remake(mlir::OpResult result);

  mlir::OpBuilder build;
  mlir::Operation *current = nullptr;
  mlir::Location location = build.getUnknownLoc();
  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, mlir::Value> cotangents, residuals;
  llvm::SmallVector<mlir::Operation *> replaced;
};

} // namespace cleave

#endif
