// Finds the nodes that read the elements of an initializer. Splits initializers
// that the user names (train.untie): each node that reads the initializer then
// reads its own copy.

#include "Model.h"
#include "Ties.h"

#include "cleave/io/Pattern.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/STLExtras.h"

#include <set>

using llvm::StringRef;

namespace cleave::importer {

std::map<std::string, std::vector<const FlatNode *>> Model::consumers() const {
  std::map<std::string, std::vector<const FlatNode *>> consumers;
  for (const FlatNode &node : nodes())
    for (const std::string &input : node.proto->input())
      if (!input.empty())
        consumers[input].push_back(&node);
  return consumers;
}

/// Returns whether the result of the operator holds all elements of its first
/// input. Then a use of the result is a use of the whole tensor; a slice is
/// not.
static bool passesOn(StringRef op) {
  return movesFirstInput(op) && op != "Slice";
}

bool readsPart(const ::onnx::NodeProto &node) {
  return node.op_type() == "Slice" || node.op_type() == "Shape";
}

namespace {

/// An operand of a node that reads a tensor, and the nodes before it that only
/// move the elements of the tensor.
struct Path {
  std::vector<size_t> movers; // nodes, in the order of the moves
  size_t node;
  int operand;
};

/// Maps the name of a value to the nodes that read it: the index of each node,
/// and the number of the operand.
using Readers = std::map<std::string, std::vector<std::pair<size_t, int>>>;

Readers readersOf(const std::vector<FlatNode> &nodes) {
  Readers readers;
  for (auto [index, node] : llvm::enumerate(nodes))
    for (int i = 0; i < node.proto->input_size(); ++i)
      if (!node.proto->input(i).empty())
        readers[node.proto->input(i)].push_back({index, i});
  return readers;
}

void addPaths(const std::vector<FlatNode> &nodes, const Readers &readers,
              const std::string &value, std::vector<size_t> movers,
              std::vector<Path> &paths) {
  auto found = readers.find(value);
  if (found == readers.end())
    return;
  for (auto [index, operand] : found->second) {
    const ::onnx::NodeProto &node = *nodes[index].proto;
    if (operand == 0 && passesOn(node.op_type()) &&
        readers.count(node.output(0))) {
      std::vector<size_t> further = movers;
      further.push_back(index);
      addPaths(nodes, readers, node.output(0), further, paths);
    } else {
      paths.push_back({movers, index, operand});
    }
  }
}

/// Returns the name of an operand of the node before exporters merged equal
/// tensors into `tensor`; "" if the ONNX file does not say.
std::string ownName(const Model &model, const TensorRef &tensor,
                    const ::onnx::NodeProto &node, int operand) {
  std::string module = moduleOf(node);
  if (module.empty())
    return "";
  auto withUnderscores = [](std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
  };
  std::vector<std::string> reads = readsOf(node);
  std::string guess =
      module + "." + StringRef(tensor.name).rsplit('.').second.str();
  if (StringRef(tensor.name).contains('.') &&
      (reads.empty() || llvm::is_contained(reads, withUnderscores(guess))))
    return guess;
  // `leaves` gets the names of the module's own tensors that the node reads. If
  // the node has as many initializers as operands, the n-th initializer has the
  // n-th of these names.
  std::vector<std::string> leaves;
  for (StringRef read : reads)
    if (read.consume_front(withUnderscores(module) + "_"))
      leaves.push_back(read.str());
  size_t before = 0, count = 0;
  for (int i = 0; i < node.input_size(); ++i)
    if (model.findInitializer(node.input(i)) || i == operand) {
      before += i < operand;
      ++count;
    }
  return leaves.size() == count ? module + "." + leaves[before] : "";
}

} // namespace

std::map<std::string, std::vector<Model::Use>> Model::uses() const {
  Readers readers = readersOf(flat);
  std::map<std::string, std::vector<Use>> uses;
  for (const TensorRef &tensor : tensors) {
    std::vector<Path> paths;
    addPaths(flat, readers, tensor.name, {}, paths);
    for (const Path &path : paths)
      uses[tensor.name].push_back({&flat[path.node], path.operand});
  }
  return uses;
}

void Model::splitUses(llvm::function_ref<bool(StringRef)> matches) {
  std::set<std::string> taken; // names of values
  for (const FlatNode &node : flat)
    taken.insert(node.proto->output().begin(), node.proto->output().end());
  for (const TensorRef &tensor : tensors)
    taken.insert(tensor.name);
  auto isFree = [&](const std::string &name) {
    return !name.empty() && taken.insert(name).second;
  };
  auto ownedCopy = [&](const FlatNode &node) {
    inlined.push_back(std::make_unique<::onnx::NodeProto>(*node.proto));
    return inlined.back().get();
  };
  std::map<size_t, std::vector<FlatNode>>
      before; // new nodes, by what they precede
  Readers readers = readersOf(flat);
  size_t count = tensors.size();
  for (size_t index = 0; index < count; ++index) {
    if (!isFloat(tensors[index].type) || !matches(tensors[index].name))
      continue;
    tensors[index].isApart = true;
    const TensorRef tensor = tensors[index];
    std::vector<Path> paths;
    addPaths(flat, readers, tensor.name, {}, paths);
    // Each node that reads the whole tensor gets its own copy, except one,
    // which keeps the original. Nodes that read only a part of the tensor, or
    // its shape, get no copy and also keep reading the original.
    llvm::erase_if(paths, [&](const Path &path) {
      return readsPart(*flat[path.node].proto);
    });
    std::vector<std::string> names;
    for (const Path &path : paths)
      names.push_back(
          ownName(*this, tensor, *flat[path.node].proto, path.operand));
    auto keeper = llvm::find(names, tensor.name);
    size_t keeps = keeper == names.end() ? 0 : keeper - names.begin();
    for (auto [use, path] : llvm::enumerate(paths)) {
      if (use == keeps)
        continue;
      TensorRef copy = tensor;
      copy.name = names[use];
      if (!isFree(copy.name))
        for (size_t number = use + 1;; ++number) {
          copy.name = tensor.name + ".use" + std::to_string(number);
          if (isFree(copy.name))
            break;
        }
      std::string value = copy.name;
      for (size_t mover : path.movers) {
        ::onnx::NodeProto *moved = ownedCopy(flat[mover]);
        moved->set_input(0, value);
        value = copy.name + "." + moved->op_type();
        while (!isFree(value))
          value += "'";
        moved->clear_output();
        moved->add_output(value);
        FlatNode node = flat[mover];
        node.proto = moved;
        before[path.node].push_back(node);
      }
      ::onnx::NodeProto *reader = ownedCopy(flat[path.node]);
      reader->set_input(path.operand, value);
      flat[path.node].proto = reader;
      tensorIndex[copy.name] = tensors.size();
      tensors.push_back(std::move(copy));
    }
  }
  std::vector<FlatNode> nodes;
  for (auto [index, node] : llvm::enumerate(flat)) {
    for (const FlatNode &added : before[index])
      nodes.push_back(added);
    nodes.push_back(node);
  }
  flat = std::move(nodes);
}

std::unique_ptr<Model> loadSplit(StringRef path, const ImportOptions &options,
                                 mlir::MLIRContext &context) {
  std::unique_ptr<Model> model = Model::load(path, context, options.limits);
  if (!model || options.untie.empty())
    return model;
  std::set<std::string> names;
  for (const std::string &pattern : options.untie) {
    if (std::string mistake = checkPattern(pattern); !mistake.empty()) {
      mlir::emitError(model->location())
          << "pattern '" << pattern
          << "' of train.untie is malformed: " << mistake;
      return nullptr;
    }
    bool isUsed = false;
    for (const TensorRef &tensor : model->initializers())
      if (isFloat(tensor.type) && matchesPattern(pattern, tensor.name)) {
        names.insert(tensor.name);
        isUsed = true;
      }
    if (!isUsed) {
      mlir::emitError(model->location())
          << "has no float initializer that pattern '" << pattern
          << "' of train.untie matches as a whole; `cleave import --summary` "
             "lists their names";
      return nullptr;
    }
  }
  model->splitUses(
      [&](StringRef name) { return names.count(name.str()) != 0; });
  return model;
}

} // namespace cleave::importer
