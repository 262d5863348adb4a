// Nodes of known operands: exporters write the mask of each layer anew, and
// equal ones are evaluated, or made, once.

#ifndef CLEAVE_LIB_IMPORT_ONNX_EVALUATEDNODES_H
#define CLEAVE_LIB_IMPORT_ONNX_EVALUATEDNODES_H

#include "Build.h"

#include <map>
#include <string>

namespace cleave::importer {

class EvaluatedNodes {
public:
  /// What decides the results of a node whose operands are all known; empty
  /// where one is not, or where there is none.
  static std::string keyOf(const FlatNode &node,
                           llvm::ArrayRef<Operand> operands);

  /// The results of an equal node; null: there was none.
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
