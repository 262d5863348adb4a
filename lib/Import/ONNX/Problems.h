// What of a model cannot be imported: all of it at once, a line for each reason
// and operator.

#ifndef CLEAVE_LIB_IMPORT_ONNX_PROBLEMS_H
#define CLEAVE_LIB_IMPORT_ONNX_PROBLEMS_H

#include "Model.h"

#include "cleave/Import/ONNX/OpTable.h"

#include <set>

namespace cleave::importer {

class Problems {
public:
  /// Of a node. Nodes of one operator with the same reason share a line.
  void add(const FlatNode &node, const std::string &why);
  /// Of the file or an output.
  void add(const std::string &text) { entries.push_back({text, "", {}}); }
  /// Of an input, whose dimensions may only be unbound. Inputs with the same
  /// reason, such as "has the unbound dimension 'batch'", share a line.
  void addInput(const std::string &name, const std::string &why);
  /// A node that reads what a refused one makes.
  void addUnseen() { ++unseen; }

  bool empty() const { return entries.empty() && inputs.empty(); }
  bool onlyInputs() const { return entries.empty(); }
  /// Of nodes and others.
  size_t count() const;
  /// "h.0.attn (model.py:3): node 'a' (If, opset 18): why", "63 nodes (If,
  /// opset 18): why: h.*.attn (model.py:3), 'b', ...".
  std::vector<std::string> lines() const;
  /// The line, where there is one; or "cannot be imported (64 places):" and the
  /// lines.
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
/// Whether one of the node's results is among them.
bool makesOneOf(const FlatNode &node, const std::set<std::string> &values);

/// The node's operator as it is implemented; null: it is not.
const OnnxOp *entryOf(const FlatNode &node);

/// Adds the operators of needed nodes that are not supported, and a version of
/// the operators that is not.
void addUnsupported(const Model &model, const std::set<std::string> &needed,
                    Problems &problems);

} // namespace cleave::importer

#endif
