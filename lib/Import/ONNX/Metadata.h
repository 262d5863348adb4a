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

/// How a module of the original model holds a tensor. A Number is a constant in
/// the code, or a buffer that is not in the state_dict.
enum class HeldAs { Unknown, Parameter, Buffer, Number };

class Metadata {
public:
  Metadata() = default;
  /// Metadata of initializers by PyTorch's exporter:
  /// `pkg.torch.export.graph_signature.InputSpec.kind`, `.persistent` and
  /// `pkg.onnxscript.optimizer.folded_from`.
  explicit Metadata(const ::onnx::GraphProto &graph);

  HeldAs heldAs(llvm::StringRef tensor) const;
  /// Returns true if the file declares for some tensors that they are
  /// parameters. A tensor without such a declaration is then no parameter.
  bool namesParameters() const { return !kinds.empty(); }
  /// Returns the names of the model's tensors from which an exporter computed
  /// this initializer ahead of time; empty if it is no such result.
  const std::vector<std::string> &foldedFrom(llvm::StringRef tensor) const;

private:
  std::map<std::string, HeldAs> kinds;
  std::map<std::string, std::vector<std::string>> folded;
};

/// The origin of a node: the path of the module whose code created it
/// ("h.0.attn"; "" if unknown, or if it is the model itself), and the line of
/// that code (`pkg.torch.onnx.name_scopes` or `namespace`, and
/// `pkg.torch.onnx.stack_trace`).
NodeSource sourceOf(const ::onnx::NodeProto &node);
/// The module of that source alone.
std::string moduleOf(const ::onnx::NodeProto &node);

/// The parameters and buffers that the node read before the export, with "_"
/// for "." in their names ("h_0_attn_scale"); empty if unknown.
std::vector<std::string> readsOf(const ::onnx::NodeProto &node);

} // namespace cleave::importer

#endif
