//===- Exchange.h - messages of dist.exchange -------------------*- C++ -*-===//

#ifndef CLEAVE_DIALECT_DIST_IR_EXCHANGE_H
#define CLEAVE_DIALECT_DIST_IR_EXCHANGE_H

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "cleave/exchange.h"

namespace cleave::dist {

/// Converts axes from attributes to the form in which the compiled program
/// stores them, where an axis is an index into the axes of the mesh.
std::vector<program::SubAxis> subAxes(MeshAttr mesh,
                                      llvm::ArrayRef<AxisRefAttr> axes);

/// Describes an exchange over `axes` in the form in which the compiled program
/// stores exchanges.
program::Exchange describeExchange(MeshAttr mesh,
                                   llvm::ArrayRef<AxisRefAttr> axes,
                                   ShardingAttr from, ShardingAttr to,
                                   llvm::ArrayRef<int64_t> shape,
                                   int64_t rounds);

/// Computes which rectangular ranges of elements (boxes) each rank of `group`
/// sends to which other rank of `group` in the exchange.
program::ExchangePlan planExchange(MeshAttr mesh,
                                   const program::Exchange &exchange,
                                   llvm::ArrayRef<int64_t> group);

/// The numbers of elements that each rank of the mesh sends and receives in an
/// exchange.
struct ExchangeCount {
  std::vector<int64_t> sent, received;
};
ExchangeCount countExchange(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes,
                            ShardingAttr from, ShardingAttr to,
                            llvm::ArrayRef<int64_t> shape, int64_t rounds);

/// Checks the constraints (EX1) to (EX4) in the description of `dist.exchange`
/// (DistOps.td) for operand `i` of the operation.
mlir::LogicalResult verifyExchanged(ExchangeOp op, unsigned i, MeshAttr mesh);

} // namespace cleave::dist

#endif
