// Collects the operands of an nn.scan and the operations of its region, and
// then creates the scan with those that are read.

#ifndef CLEAVE_INTERFACES_DERIVATIVE_SCANPARTS_H
#define CLEAVE_INTERFACES_DERIVATIVE_SCANPARTS_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace cleave::derivative {

/// The operands and results of a scan while its region is being built.
struct ScanParts {
  explicit ScanParts(int64_t trips) : trips(trips) {}

  /// Returns a builder at the end of `block`, which is not part of a region
  /// yet.
  mlir::OpBuilder builder(mlir::MLIRContext *context) {
    mlir::OpBuilder b(context);
    b.setInsertionPointToEnd(&block);
    return b;
  }

  /// Each of these functions adds an operand of the scan (to `inits`, `slices`
  /// or `captures`) and an argument of the region, and returns the argument.
  mlir::BlockArgument carry(mlir::Value init) {
    inits.push_back(init);
    return carried.emplace_back(
        block.addArgument(init.getType(), init.getLoc()));
  }
  mlir::BlockArgument slice(mlir::Value whole) {
    slices.push_back(whole);
    auto type = mlir::cast<mlir::RankedTensorType>(whole.getType());
    return sliced.emplace_back(block.addArgument(
        mlir::RankedTensorType::get(type.getShape().drop_front(),
                                    type.getElementType()),
        whole.getLoc()));
  }
  mlir::BlockArgument capture(mlir::Value value) {
    captures.push_back(value);
    return captured.emplace_back(
        block.addArgument(value.getType(), value.getLoc()));
  }

  /// Creates the scan. It gets the operations of `block` without those that
  /// nothing reads, and only the slices and captures that are read.
  nn::ScanOp create(mlir::OpBuilder &b, mlir::Location loc,
                    llvm::ArrayRef<mlir::Value> next,
                    llvm::ArrayRef<mlir::Value> stacked, bool reverse) {
    llvm::SmallVector<mlir::Value> yielded(next);
    llvm::append_range(yielded, stacked);
    mlir::OpBuilder inner = builder(b.getContext());
    nn::YieldOp::create(inner, loc, yielded);
    for (mlir::Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (mlir::isOpTriviallyDead(&op))
        op.erase();
    dropUnread(slices, sliced);
    dropUnread(captures, captured);
    auto scan =
        nn::ScanOp::create(b, loc, trips, inits, slices, captures,
                           mlir::TypeRange(mlir::ValueRange(stacked)), reverse);
    for (auto [from, to] : {std::pair(&carried, scan.getCarriedArguments()),
                            std::pair(&sliced, scan.getSliceArguments()),
                            std::pair(&captured, scan.getCaptureArguments())})
      for (auto [before, after] : llvm::zip_equal(*from, to))
        before.replaceAllUsesWith(after);
    mlir::Block *body = scan.getBody();
    body->getOperations().splice(body->end(), block.getOperations());
    return scan;
  }

  static void dropUnread(llvm::SmallVector<mlir::Value> &operands,
                         llvm::SmallVector<mlir::BlockArgument> &arguments) {
    for (size_t index = arguments.size(); index-- > 0;)
      if (arguments[index].use_empty()) {
        operands.erase(operands.begin() + index);
        arguments.erase(arguments.begin() + index);
      }
  }

  int64_t trips;
  mlir::Block block;
  llvm::SmallVector<mlir::Value> inits, slices, captures;
  llvm::SmallVector<mlir::BlockArgument> carried, sliced, captured;
};

} // namespace cleave::derivative

#endif
