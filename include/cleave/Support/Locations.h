// What a person knows an operation by: the module of the model that it comes
// from and the line of its source, or the name of its node.

#ifndef CLEAVE_SUPPORT_LOCATIONS_H
#define CLEAVE_SUPPORT_LOCATIONS_H

#include "mlir/IR/Location.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace cleave {

/// What an exporter notes about a node. All but the node's name may be missing.
struct NodeSource {
  std::string module; ///< its path: "blocks.0.qkv"
  std::string file;   ///< of the model's source, as the exporter wrote it
  unsigned line = 0;  ///< from 1; 0: not known
};

/// loc("node_MatMul_116"(fused<"blocks.0.qkv">["model.py":13:1])): the outer
/// name identifies the node, the metadata is the module's path.
mlir::Location locationOf(mlir::MLIRContext *context, llvm::StringRef node,
                          const NodeSource &source);

/// "blocks.0.qkv (model.py:13)"; without a module the node's name instead;
/// "file:line:column" of a file; "" where the location says nothing.
std::string describeLocation(mlir::Location location);

/// The same of a source that has a module or a line; "" of another one.
std::string describeSource(const NodeSource &source);

/// Names of equal layers as one: "blocks.0.fc", "blocks.1.fc" and "head" are
/// "blocks.*.fc" and "head". A number that all of a group share stays. Groups
/// are in the order of their first members.
struct FoldedName {
  std::string text;
  std::vector<size_t> members; ///< indices into what was folded
};
std::vector<FoldedName> foldLayers(llvm::ArrayRef<std::string> names);

} // namespace cleave

#endif
