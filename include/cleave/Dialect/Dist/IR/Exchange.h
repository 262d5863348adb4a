//===- Exchange.h - what an exchange moves ----------------------*- C++ -*-===//

#ifndef CLEAVE_DIALECT_DIST_IR_EXCHANGE_H
#define CLEAVE_DIALECT_DIST_IR_EXCHANGE_H

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "cleave/exchange.h"

namespace cleave::dist {

/// The axes as the program spells them, with indices of the mesh's axes.
std::vector<program::SubAxis> subAxes(MeshAttr mesh,
                                      llvm::ArrayRef<AxisRefAttr> axes);

/// An exchange over `axes` as the program spells it.
program::Exchange describeExchange(MeshAttr mesh,
                                   llvm::ArrayRef<AxisRefAttr> axes,
                                   ShardingAttr from, ShardingAttr to,
                                   llvm::ArrayRef<int64_t> shape,
                                   int64_t rounds);

/// The boxes of one group of ranks, which are its members.
program::ExchangePlan planExchange(MeshAttr mesh,
                                   const program::Exchange &exchange,
                                   llvm::ArrayRef<int64_t> group);

/// Elements that each rank of the mesh sends and receives.
struct ExchangeCount {
  std::vector<int64_t> sent, received;
};
ExchangeCount countExchange(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes,
                            ShardingAttr from, ShardingAttr to,
                            llvm::ArrayRef<int64_t> shape, int64_t rounds);

/// Checks (EX1) to (EX4) of operand `i` of an exchange.
mlir::LogicalResult verifyExchanged(ExchangeOp op, unsigned i, MeshAttr mesh);

} // namespace cleave::dist

#endif
