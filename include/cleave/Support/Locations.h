// Names of operations for users: the module of the model that an operation
// comes from and the line of its source, or the name of its node.

#ifndef CLEAVE_SUPPORT_LOCATIONS_H
#define CLEAVE_SUPPORT_LOCATIONS_H

#include "mlir/IR/Location.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace cleave {

/// The source of a node as noted by an exporter. All fields except the node's
/// name may be missing.
struct NodeSource {
  std::string module; ///< its path: "blocks.0.qkv"
  std::string file;   ///< of the model's source, as the exporter wrote it
  unsigned line = 0;  ///< from 1; 0: not known
};

/// Returns a location like
/// loc("node_MatMul_116"(fused<"blocks.0.qkv">["model.py":13:1])). The outer
/// name identifies the node, and the metadata is the module's path.
mlir::Location locationOf(mlir::MLIRContext *context, llvm::StringRef node,
                          const NodeSource &source);

/// Returns a text like "blocks.0.qkv (model.py:13)". Without a module, the text
/// has the node's name instead; for a location in a file it is
/// "file:line:column", and for other locations "".
std::string describeLocation(mlir::Location location);

/// Like describeLocation, for the source of a node. The source must have a
/// module or a line; otherwise the result is "".
std::string describeSource(const NodeSource &source);

/// Merges the names of equal layers: "blocks.0.fc", "blocks.1.fc" and "head"
/// become "blocks.*.fc" and "head". A number that is equal in all names of a
/// group stays. Groups are in the order of their first members.
struct FoldedName {
  std::string text;
  std::vector<size_t> members; ///< indices into what was folded
};
std::vector<FoldedName> foldLayers(llvm::ArrayRef<std::string> names);

} // namespace cleave

#endif
