// The results of a program on one device, and how far another run may deviate
// from them.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_ORACLE_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_ORACLE_H

#include "Generator.h"

#include "cleave/Interpreter/Interpreter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::random {

/// The tolerance of a result: the largest magnitude of a value from which it is
/// computed, and whether it must agree bit by bit.
struct Tolerance {
  double magnitude = 0;
  bool exact = true;
};

/// Small random integers. Indices are sometimes out of range.
Tensor randomTensor(Random &random, mlir::RankedTensorType type);

/// The results of the program on one device, and their tolerances.
struct Oracle {
  std::vector<Tensor> results;
  llvm::SmallVector<Tolerance> tolerances;

  static mlir::FailureOr<Oracle> of(mlir::func::FuncOp func,
                                    llvm::ArrayRef<Tensor> arguments);
};

/// A description of the difference; empty if both agree.
std::string difference(const Tensor &want, const Tensor &got,
                       Tolerance tolerance);

} // namespace cleave::random

#endif
