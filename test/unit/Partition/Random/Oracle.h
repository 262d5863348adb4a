// What a program computes on one device, and how far another run of it may be
// away from that.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_ORACLE_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_ORACLE_H

#include "Generator.h"

#include "cleave/Interpreter/Interpreter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::random {

/// What the ranks may differ by: of each result, the largest magnitude of a
/// value that it is computed from, and whether it must agree to the bit.
struct Tolerance {
  double magnitude = 0;
  bool exact = true;
};

/// Small integers. Indices are beyond their tables now and then.
Tensor randomTensor(Random &random, mlir::RankedTensorType type);

/// The results of the program on one device, and their tolerances.
struct Oracle {
  std::vector<Tensor> results;
  llvm::SmallVector<Tolerance> tolerances;

  static mlir::FailureOr<Oracle> of(mlir::func::FuncOp func,
                                    llvm::ArrayRef<Tensor> arguments);
};

/// Empty where both agree.
std::string difference(const Tensor &want, const Tensor &got,
                       Tolerance tolerance);

} // namespace cleave::random

#endif
