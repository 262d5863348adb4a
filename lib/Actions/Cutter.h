// Cutting a function into parts that run one after another.

#ifndef CLEAVE_LIB_ACTIONS_CUTTER_H
#define CLEAVE_LIB_ACTIONS_CUTTER_H

#include "Ports.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

#include <string>
#include <vector>

namespace cleave::actions {

/// What a part returns beside what later parts read.
struct ResultPort {
  mlir::Value value;
  mlir::DictionaryAttr attrs;
};

/// Where a value lies between parts.
struct Kept {
  /// Name and role, and, for what a schedule keeps, `pipe.slot`.
  mlir::NamedAttrList attrs;
  /// An argument that all parts share, without a slot.
  bool persistent = false;
  /// The part that makes it (-1: it arrives), and the last that reads it.
  int first = -1, last = -1;
};

/// One function becomes `parts` functions; every operation has a part, and
/// operands come from the same or an earlier one.
class Cutter {
public:
  Cutter(mlir::func::FuncOp func,
         const llvm::DenseMap<mlir::Operation *, unsigned> &partOf,
         unsigned parts);

  /// Results of each part; the caller distributes those of the function.
  std::vector<std::vector<ResultPort>> results;
  /// Every value that more than one part has to do with, in program order, and
  /// every argument.
  llvm::MapVector<mlir::Value, Kept> kept;

  /// Fills `kept` from the parts and `results`: names (residuals are called
  /// PREFIX0, PREFIX1, ...), makers and last readers.
  void analyze(llvm::StringRef prefix);

  /// Builds the parts, named so, and erases the function. Parts without
  /// operations and results are left out. Returns them by part, null where left
  /// out.
  /// `isKept`: also where nothing is in it.
  std::vector<mlir::func::FuncOp> build(
      llvm::ArrayRef<std::string> names,
      llvm::function_ref<bool(unsigned)> isKept = [](unsigned) {
        return false;
      });

  /// Made again by each part that reads it.
  static bool isFree(mlir::Value value);

private:
  mlir::func::FuncOp buildPart(unsigned part, llvm::StringRef name,
                               bool isKept);
  void forOperands(mlir::Operation *op,
                   llvm::function_ref<void(mlir::Value)> body);

  mlir::func::FuncOp func;
  const llvm::DenseMap<mlir::Operation *, unsigned> &partOf;
};

} // namespace cleave::actions

#endif
