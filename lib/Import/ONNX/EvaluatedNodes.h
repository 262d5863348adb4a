// Caches the results of nodes whose operands are known during import. Exporters
// repeat the computation of the attention mask for each layer. With the cache,
// equal nodes are evaluated, or emitted, only once.

#ifndef CLEAVE_LIB_IMPORT_ONNX_EVALUATEDNODES_H
#define CLEAVE_LIB_IMPORT_ONNX_EVALUATEDNODES_H

#include "Build.h"

#include <map>
#include <string>

namespace cleave::importer {

class EvaluatedNodes {
public:
  /// Returns a key that determines the results of a node; empty if the elements
  /// of an operand are not known during import, or the node has no operands.
  static std::string keyOf(const FlatNode &node,
                           llvm::ArrayRef<Operand> operands);

  /// Returns the results of an earlier node with this key, which equal those of
  /// the present node; null if there was none.
  const llvm::SmallVector<Operand> *find(const std::string &key) const;

  /// Stores results: known tensors, and IR values, which dominate all later
  /// nodes. The operands are kept alive with them, because the key has their
  /// addresses, which must not be reused.
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
