// Determines the inputs and their roles, the outputs, the sizes of dimensions,
// and the tied weights of a graph.

#include "Build.h"
#include "Dims.h"
#include "Importer.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

Element elementOf(const ::onnx::ValueInfoProto &value) {
  return static_cast<Element>(value.type().tensor_type().elem_type());
}

std::string Importer::spellInputs() const {
  std::string names;
  for (const ::onnx::ValueInfoProto *input : inputs)
    names += (names.empty() ? "'" : ", '") + input->name() + "'";
  return names;
}

/// Returns whether the elements of the input are used as row indices into a
/// weight, as tokens index an embedding table.
bool Importer::looksUpATable(const std::string &input) const {
  llvm::StringSet<> same; // the input in other shapes and types
  same.insert(input);
  for (const FlatNode &node : model.nodes()) {
    StringRef op = node.proto->op_type();
    if (op == "Gather" && node.proto->input_size() > 1 &&
        same.contains(node.proto->input(1)) &&
        model.findInitializer(node.proto->input(0)))
      return true;
    bool keeps = op == "Cast" || op == "Reshape" || op == "Identity" ||
                 op == "Flatten" || op == "Squeeze" || op == "Unsqueeze";
    if (keeps && node.proto->input_size() > 0 &&
        same.contains(node.proto->input(0)))
      same.insert(node.proto->output(0));
  }
  return false;
}

LogicalResult Importer::findInputs() {
  for (const ::onnx::ValueInfoProto &input : model.graph().input())
    if (!model.findInitializer(input.name()) && !failed.count(input.name()))
      inputs.push_back(&input);
  std::vector<std::string> candidates;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    Element type = elementOf(*input);
    if (!options.tokens.empty()
            ? input->name() == options.tokens
            : (type == Element::I64 || type == Element::I32) &&
                  input->type().tensor_type().shape().dim_size() == 2 &&
                  !options.inputs.count(input->name()) &&
                  !options.bound.count(input->name()) &&
                  input->name() != options.labels)
      candidates.push_back(input->name());
  }
  for (const auto &[name, bound] : options.bound)
    if (llvm::none_of(inputs,
                      [&](auto *input) { return input->name() == name; }))
      return error() << "has no input '" << name << "' (--bind " << name << "="
                     << bound.text << "); its inputs are " << spellInputs();
  for (const auto &[name, binding] : options.inputs) {
    // The configuration binds attention_mask and position_ids by default, so it
    // is no error if the model lacks these inputs.
    bool isDefault =
        (name == "attention_mask" && binding == InputBinding::Ones) ||
        (name == "position_ids" && binding == InputBinding::Arange);
    if (!isDefault && llvm::none_of(inputs, [&](auto *input) {
          return input->name() == name;
        }))
      return error() << "has no input '" << name << "' (data.inputs." << name
                     << "); its inputs are " << spellInputs();
  }
  for (const ::onnx::ValueInfoProto *input : inputs)
    if (Element type = elementOf(*input); input->name() == options.tokens &&
                                          type != Element::I64 &&
                                          type != Element::I32)
      return error() << "input '" << options.tokens
                     << "' (data.tokens) takes elements of type "
                     << nameOf(type) << ", and tokens are integers";
  if (candidates.size() == 1)
    tokens = candidates[0];
  else if (!options.tokens.empty()) {
    return error() << "has no input '" << options.tokens
                   << "' (data.tokens); its inputs are " << spellInputs();
  } else if (candidates.empty() && !options.labels.empty() &&
             looksUpATable(options.labels)) {
    return error() << "looks up a table of weights by the input '"
                   << options.labels
                   << "', so that it takes the tokens, but data.labels names "
                      "it, too, and no other input takes them; leave "
                      "data.labels at \"next\", or name the input or array of "
                      "the labels";
  }
  return success();
}

LogicalResult Importer::findOutputs() {
  std::vector<std::string> all;
  for (const auto &output : model.graph().output())
    all.push_back(output.name());
  outputs = options.outputs.empty() ? all : options.outputs;
  for (const std::string &name : outputs)
    if (!llvm::is_contained(all, name))
      return error() << "has no output '" << name << "'; its outputs are '"
                     << llvm::join(all, "', '") << "'";
  if (outputs.empty())
    return error() << "has no outputs";
  return success();
}

/// Returns whether dimension `dim` of an output has the size of the batch
/// according to the IR. The shapes that a file declares for outputs may be
/// wrong.
bool Importer::hasBatchAt(Value value, int64_t dim) const {
  auto type = cast<RankedTensorType>(value.getType());
  for (const Argument &argument : arguments)
    if (argument.batchDim)
      return dim < type.getRank() &&
             type.getDimSize(dim) ==
                 cast<RankedTensorType>(argument.value.getType())
                     .getDimSize(*argument.batchDim);
  return false;
}

std::optional<int64_t>
Importer::batchDimOf(const ::onnx::ValueInfoProto &value) const {
  std::optional<int64_t> found;
  std::string symbol = batchSymbol();
  const auto &shape = value.type().tensor_type().shape();
  for (int index = 0; index < shape.dim_size(); ++index) {
    const auto &dim = shape.dim(index);
    if (dim.dim_param().empty() || dim.dim_param() != symbol)
      continue;
    if (found)
      return std::nullopt;
    found = index;
  }
  return found;
}

/// Warns of inputs that no output depends on, if the user assigned them a role,
/// or if they are the tokens.
void Importer::warnOfUnread() {
  std::vector<std::string> unread;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    const std::string &name = input->name();
    auto bound = options.inputs.find(name);
    bool isMadeUp =
        bound != options.inputs.end() && bound->second != InputBinding::Data;
    if (!isMadeUp && !options.bound.count(name) && !needed.count(name) &&
        name != options.labels)
      unread.push_back("'" + name + "'");
  }
  if (!unread.empty())
    emitWarning(model.location())
        << (unread.size() == 1 ? "input " : "inputs ")
        << llvm::join(unread, ", ") << (unread.size() == 1 ? " is" : " are")
        << " read by no node, so that what is given for "
        << (unread.size() == 1 ? "it" : "them")
        << " changes nothing; an exporter merges inputs that were one tensor: "
           "if it should be read, export with different ones";
}

void Importer::bindInputs() {
  std::vector<std::string> unread;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    const std::string &name = input->name();
    Element type = elementOf(*input);
    Type element = toType(type, &context);
    auto complain = [&](const Twine &why) {
      problems.addInput(name, why.str());
      failed.insert(name);
    };
    auto bound = options.inputs.find(name);
    bool isData =
        bound == options.inputs.end() || bound->second == InputBinding::Data;
    nn::Role role = name == tokens           ? nn::Role::Tokens
                    : name == options.labels ? nn::Role::Labels
                                             : nn::Role::Input;
    // No output depends on the input, so its type and sizes do not matter.
    if (isData && role == nn::Role::Input && !options.bound.count(name) &&
        !needed.count(name)) {
      unread.push_back(name);
      continue;
    }
    if (!input->type().has_tensor_type()) {
      complain("is no tensor");
      continue;
    }
    if (!element && (isData || !isInteger(type))) {
      complain("has type " + Twine(nameOf(type)) + ", which is not supported");
      continue;
    }
    Expected<Shape> shape = shapeOf(*input);
    if (!shape) {
      complain(llvm::toString(shape.takeError()));
      continue;
    }
    if (auto given = options.bound.find(name); given != options.bound.end()) {
      Expected<HostTensor> tensor = boundTensor(given->second, type, *shape);
      if (tensor)
        values[name] = Operand(*tensor);
      else
        complain(llvm::toString(tensor.takeError()));
      continue;
    }
    if (!isData) {
      if (bound->second == InputBinding::Arange) {
        HostTensor range(type, {shape->empty() ? 1 : shape->back()});
        for (int64_t i = 0; i < range.size(); ++i)
          range.setInt(i, i);
        if (shape->empty())
          range = range.reshaped({});
        values[name] = Operand(range.broadcastTo(*shape));
      } else {
        values[name] = Operand(HostTensor::splat(
            type, *shape, bound->second == InputBinding::Ones));
      }
      continue;
    }
    values[name] = Operand(addArgument(RankedTensorType::get(*shape, element),
                                       name, role, nullptr));
    arguments.back().batchDim = batchDimOf(*input);
  }
  warnOfUnread();
  if (!unread.empty())
    (*module)->setAttr(
        kUnreadAttr, builder.getStrArrayAttr(
                         SmallVector<StringRef>(unread.begin(), unread.end())));
}

Expected<HostTensor> Importer::boundTensor(const BoundInput &bound,
                                           Element type,
                                           ArrayRef<int64_t> shape) const {
  auto is = [](Element type) {
    return type == Element::Bool ? "bool" : isFloat(type) ? "float" : "integer";
  };
  auto wrong = [&](const std::string &found) {
    return reason("is bound to " + found + " (--bind), but has type " +
                  nameOf(type) + spell(shape));
  };
  if (bound.isNumber) {
    if (!isFloat(type) && !bound.integer)
      return wrong(bound.text);
    HostTensor one(type, {});
    if (isFloat(type))
      one.setFloat(0, bound.number);
    else
      one.setInt(0, *bound.integer);
    if (!isFloat(type) && one.intAt(0) != *bound.integer)
      return wrong(bound.text + ", beyond it");
    return one.reshaped(Shape(shape.size(), 1)).broadcastTo(shape);
  }
  Element given = Element::Undefined;
  for (int32_t number = 1; number <= int32_t(Element::BF16); ++number)
    if (nameOf(Element(number)) == bound.dtype)
      given = Element(number);
  std::string found = bound.text + " of " + bound.dtype + spell(bound.shape);
  if (StringRef(is(given)) != is(type) || ArrayRef(bound.shape) != shape)
    return wrong(found);
  Expected<HostTensor> array =
      HostTensor::fromBytes(given, bound.shape, bound.bytes);
  if (!array)
    return array.takeError();
  HostTensor made = array->cast(type);
  if (!isFloat(type) && made.ints() != array->ints())
    return wrong(found + " with values beyond it");
  return made.compressed();
}

LogicalResult Importer::bindTies() {
  for (const Tie &tie : options.ties) {
    const TensorRef *primary = model.findInitializer(tie.primary);
    const TensorRef *copy = model.findInitializer(tie.copy);
    if (!primary || !copy)
      return error() << "has no initializer '"
                     << (primary ? tie.copy : tie.primary) << "' to tie";
    Shape want = copy->shape;
    if (tie.transposed)
      std::reverse(want.begin(), want.end());
    if (primary->shape != want || primary->type != copy->type ||
        primary == copy)
      return error() << "cannot tie '" << tie.copy << "' of shape "
                     << spell(copy->shape) << " to '" << tie.primary
                     << "' of shape " << spell(primary->shape);
    tieOfCopy[tie.copy] = &tie;
    tiesOf[tie.primary].push_back(&tie);
  }
  return success();
}

} // namespace cleave::importer
