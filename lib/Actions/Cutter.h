// Cuts a function of a pipeline stage into several functions (parts) that run
// one after another.

#ifndef CLEAVE_LIB_ACTIONS_CUTTER_H
#define CLEAVE_LIB_ACTIONS_CUTTER_H

#include "Ports.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <string>
#include <vector>

namespace cleave::actions {

/// A result of the original function that one of the parts must return, in
/// addition to the values that later parts read.
struct ResultPort {
  mlir::Value value;
  mlir::DictionaryAttr attrs;
};

/// Describes how a value is passed from one part of the function to later
/// parts.
struct Kept {
  /// The value's name and role, and `pipe.slot` if the value exists once for
  /// each microbatch in flight.
  mlir::NamedAttrList attrs;
  /// True if the value is an argument that exists once for all microbatches,
  /// such as a parameter, and therefore has no `pipe.slot`.
  bool persistent = false;
  /// The part that computes the value (-1 for an argument), and the last part
  /// that reads it.
  int first = -1, last = -1;
};

/// Cuts one function into `parts` functions. `partOf` maps every operation to
/// the number of its part. The operands of an operation must be computed in the
/// same or an earlier part.
class Cutter {
public:
  Cutter(mlir::func::FuncOp func,
         const llvm::DenseMap<mlir::Operation *, unsigned> &partOf,
         unsigned parts);

  /// For each part, the results of the original function that it returns. The
  /// caller fills this in.
  std::vector<std::vector<ResultPort>> results;
  /// All arguments of the function, and all values that are read by a different
  /// part than the one that computes them, in program order.
  llvm::MapVector<mlir::Value, Kept> kept;

  /// Fills `kept`, from the assignment of operations to parts and from
  /// `results`. Values without a name become residuals named PREFIX0, PREFIX1,
  /// ..., without the names that the function's arguments and results have.
  void analyze(llvm::StringRef prefix);

  /// Builds one function per part, with these names, and erases the original
  /// function. A part without operations and results is omitted, unless
  /// `isKept` returns true for it. Returns null for an omitted part.
  std::vector<mlir::func::FuncOp> build(
      llvm::ArrayRef<std::string> names,
      llvm::function_ref<bool(unsigned)> isKept = [](unsigned) {
        return false;
      });

  /// Returns whether the operation of the value has no operands, so that each
  /// part that reads the value recomputes it.
  static bool isFree(mlir::Value value);

private:
  mlir::DictionaryAttr attrsOf(const Kept &entry);
  bool isKeptAs(const ResultPort &result, unsigned part);
  std::vector<ResultPort> resultsOf(unsigned part);
  void collectInputs(unsigned part, llvm::ArrayRef<mlir::Operation *> ops,
                     llvm::ArrayRef<ResultPort> results,
                     llvm::SetVector<mlir::Value> &inputs,
                     llvm::SetVector<mlir::Value> &free);
  mlir::func::FuncOp createFunction(llvm::StringRef name,
                                    mlir::ValueRange arguments,
                                    mlir::ValueRange results,
                                    mlir::ValueRange free,
                                    llvm::ArrayRef<mlir::Operation *> ops);
  mlir::func::FuncOp buildPart(unsigned part, llvm::StringRef name,
                               bool isKept);
  void forOperands(mlir::Operation *op,
                   llvm::function_ref<void(mlir::Value)> body);

  mlir::func::FuncOp func;
  const llvm::DenseMap<mlir::Operation *, unsigned> &partOf;
};

} // namespace cleave::actions

#endif
