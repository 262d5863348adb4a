// The information that exporters store beside a graph, in the metadata of its
// values and nodes. Any of it may be missing in a file.

#ifndef CLEAVE_LIB_IMPORT_ONNX_METADATA_H
#define CLEAVE_LIB_IMPORT_ONNX_METADATA_H

#include "cleave/Support/Locations.h"

#include "llvm/ADT/StringRef.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace onnx {
class GraphProto;
class NodeProto;
} // namespace onnx

namespace cleave::importer {

/// What a tensor is in the PyTorch model that was exported: a parameter or a
/// buffer of a module, or a Number, which is a constant in the code, or a
/// buffer that is not in the state_dict.
enum class HeldAs { Unknown, Parameter, Buffer, Number };

class Metadata {
public:
  Metadata() = default;
  /// Reads the metadata that PyTorch's exporter stores for initializers:
  /// `pkg.torch.export.graph_signature.InputSpec.kind`, `.persistent` and
  /// `pkg.onnxscript.optimizer.folded_from`.
  explicit Metadata(const ::onnx::GraphProto &graph);

  HeldAs heldAs(llvm::StringRef tensor) const;
  /// Returns true if the ONNX file declares for some tensors that they are
  /// parameters. A tensor without such a declaration is then no parameter.
  bool namesParameters() const { return !kinds.empty(); }
  /// Returns the names of the model's tensors from which an exporter computed
  /// this initializer ahead of time; empty if it is no such result.
  const std::vector<std::string> &foldedFrom(llvm::StringRef tensor) const;

private:
  std::map<std::string, HeldAs> kinds;
  std::map<std::string, std::vector<std::string>> folded;
};

/// Returns the origin of a node: the path of the module whose code created it
/// ("h.0.attn"; "" if unknown, or if it is the model itself), and the line of
/// that code. The metadata `pkg.torch.onnx.name_scopes` or `namespace` has the
/// module, `pkg.torch.onnx.stack_trace` the line.
NodeSource sourceOf(const ::onnx::NodeProto &node);
/// Returns only the module of a node's origin.
std::string moduleOf(const ::onnx::NodeProto &node);

/// Returns the names of the parameters and buffers that the node read before
/// the export, with "_" for "." ("h_0_attn_scale"); empty if unknown.
std::vector<std::string> readsOf(const ::onnx::NodeProto &node);

} // namespace cleave::importer

#endif
