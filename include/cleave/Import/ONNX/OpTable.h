// The operators that the importer supports, in a table that is shared by the
// import, `cleave ops` and the documentation.

#ifndef CLEAVE_IMPORT_ONNX_OPTABLE_H
#define CLEAVE_IMPORT_ONNX_OPTABLE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <vector>

namespace cleave {

namespace importer {
class Node;
}

struct OnnxOp {
  /// The operator's name, preceded by its domain unless that is the default
  /// domain.
  llvm::StringRef name;
  /// The range of opset versions whose semantics the lowering implements.
  int64_t first, last;
  /// 1 for operators that current language models need, 2 for operators that
  /// are common in other models.
  int tier;
  /// The names of the operations that the operator is lowered to, separated by
  /// blanks. Empty for an operator that is evaluated during import, or that
  /// only returns its operand or a shape.
  llvm::StringRef becomes;
  llvm::Error (*lower)(importer::Node &);
  /// The operands from this index on are weights, whatever their shape. -1 if
  /// the index of an operand does not tell whether it is a weight.
  int weightsFrom = -1;
  /// True if the operator accepts a sequence of tensors; all other operators
  /// reject sequences.
  bool readsSequence = false;
};

/// Returns the table of all supported operators, sorted by name.
const std::vector<OnnxOp> &onnxOps();
/// Returns the entry of the operator `name` that covers version `opset` of the
/// operator's domain, or null if there is none.
const OnnxOp *findOnnxOp(llvm::StringRef name, int64_t opset);

} // namespace cleave

#endif
