// Everything that prevents the import of a model, reported at once, with one
// line for each reason and operator.

#ifndef CLEAVE_LIB_IMPORT_ONNX_PROBLEMS_H
#define CLEAVE_LIB_IMPORT_ONNX_PROBLEMS_H

#include "Model.h"

#include "cleave/Import/ONNX/OpTable.h"

#include <set>

namespace cleave::importer {

class Problems {
public:
  /// Adds a problem of a node. Nodes with the same operator and the same reason
  /// share a line of the message.
  void add(const FlatNode &node, const std::string &why);
  /// Adds a problem of the ONNX file or of an output.
  void add(const std::string &text) { entries.push_back({text, "", {}}); }
  /// Adds a problem of an input, such as an unbound dimension. Inputs with the
  /// same reason ("has the unbound dimension 'batch'") share a line of the
  /// message.
  void addInput(const std::string &name, const std::string &why);
  /// Counts a node that was not checked because it reads a result of a refused
  /// node.
  void addUnseen() { ++unseen; }

  bool empty() const { return entries.empty() && inputs.empty(); }
  bool onlyInputs() const { return entries.empty(); }
  /// Returns the number of problems of nodes, inputs, outputs and the ONNX
  /// file.
  size_t count() const;
  /// Returns the lines of the message, one for each operator and reason, such
  /// as "h.0.attn (model.py:3): node 'a' (If, opset 18): why" or "63 nodes (If,
  /// opset 18): why: h.*.attn (model.py:3), 'b', ...".
  std::vector<std::string> lines() const;
  /// Returns the whole message. If there are several lines, they follow a
  /// heading such as "cannot be imported (64 places):".
  std::string text() const;

private:
  struct Entry {
    std::string what; // the operator, where there are nodes
    std::string why;
    struct Place {
      std::string name, place; // of a node; of its source, or ""
    };
    std::vector<Place> nodes;
  };
  static std::string placesOf(const Entry &entry);

  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs; // why
  int64_t unseen = 0;
};

/// The values that the outputs depend on.
std::set<std::string> valuesNeededBy(const Model &model,
                                     const std::vector<std::string> &outputs);
/// Returns whether a result of the node has one of these names.
bool makesOneOf(const FlatNode &node, const std::set<std::string> &values);

/// Returns the implementation of the node's operator, or null if it is not
/// supported.
const OnnxOp *entryOf(const FlatNode &node);

/// Returns the reason why an operator is not supported.
std::string whyUnknown(const FlatNode &node);

/// Adds to `problems` the unsupported operators of needed nodes, and an
/// unsupported version of the operator set.
void addUnsupported(const Model &model, const std::set<std::string> &needed,
                    Problems &problems);

} // namespace cleave::importer

#endif
