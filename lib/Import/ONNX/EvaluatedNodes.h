// Results of nodes with known operands. Exporters repeat the mask for each
// layer, so equal nodes are evaluated, or emitted, once.

#ifndef CLEAVE_LIB_IMPORT_ONNX_EVALUATEDNODES_H
#define CLEAVE_LIB_IMPORT_ONNX_EVALUATEDNODES_H

#include "Build.h"

#include <map>
#include <string>

namespace cleave::importer {

class EvaluatedNodes {
public:
  /// A key that decides the results of a node; empty if an operand is not
  /// known, or if there is none.
  static std::string keyOf(const FlatNode &node,
                           llvm::ArrayRef<Operand> operands);

  /// The results of an equal node; null if there was none.
  const llvm::SmallVector<Operand> *find(const std::string &key) const;

  /// Remembers results: known ones, and values, which were made before whatever
  /// reads them. The operands are kept with them, so
  /// that no other tensor gets their place in memory, which is in the key.
  void add(const std::string &key, llvm::ArrayRef<Operand> operands,
           llvm::ArrayRef<Operand> results);

private:
  struct Entry {
    llvm::SmallVector<Operand> operands, results;
  };
  std::map<std::string, Entry> entries;
};

} // namespace cleave::importer

#endif
