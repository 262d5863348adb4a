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
  /// The operations that the operator is lowered to, separated by blanks. Empty
  /// for an operator that is evaluated during import, or that only returns its
  /// operand or a shape.
  llvm::StringRef becomes;
  llvm::Error (*lower)(importer::Node &);
  /// Operands from this index on are weights, independently of their shape. -1
  /// means that no operand is a weight because of its position.
  int weightsFrom = -1;
  /// True if the operator accepts a sequence of tensors; all other operators
  /// reject sequences.
  bool readsSequence = false;
};

/// Sorted by name.
const std::vector<OnnxOp> &onnxOps();
/// Returns the entry for an operator at a version of its domain, or null.
const OnnxOp *findOnnxOp(llvm::StringRef name, int64_t opset);

} // namespace cleave

#endif
