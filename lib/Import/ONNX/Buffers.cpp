// Detects tensors that look like buffers of a PyTorch module but are imported
// as trained parameters, and constants that may be parameters of a module. Most
// exporters do not record which tensors are parameters and which are buffers.
// So this is a heuristic, and leads only to warnings.

#include "Build.h"
#include "Classify.h"
#include "Node.h"

#include <onnx/onnx_pb.h>

#include <optional>

using llvm::StringRef;

namespace cleave::importer {

namespace {

/// The sizes of a tensor's dimensions; -1 for a symbolic size.
using Sizes = llvm::SmallVector<int64_t, 4>;

/// Finds tensors of the file that normalize an input of the graph, such as a
/// mean and a standard deviation. A search starts at the input. It follows
/// casts, transposes, and additions, subtractions, multiplications and
/// divisions with such a tensor. It ends at any other operation that combines
/// the input with a parameter, such as a matrix product.
class Normalisation {
public:
  Normalisation(Model &model, const Constants &constants)
      : model(model), constants(constants) {}

  /// Returns the tensors that shift or scale an input of the graph, in the
  /// order of their first uses.
  std::vector<std::string> run();

private:
  void visit(const ::onnx::NodeProto &node);
  std::optional<Sizes> sizesOf(const ::onnx::ValueInfoProto &input) const;
  const TensorRef *tensorOf(const std::string &value) const {
    auto found = moved.find(value);
    return model.findInitializer(found == moved.end() ? value : found->second);
  }

  Model &model;
  const Constants &constants;
  std::map<std::string, Sizes> inputs; // inputs, shifted and scaled
  // Maps values to the tensors in the file that they are copies of.
  std::map<std::string, std::string> moved;
  std::vector<std::string> found;
};

std::optional<Sizes>
Normalisation::sizesOf(const ::onnx::ValueInfoProto &input) const {
  if (!input.type().tensor_type().has_shape())
    return std::nullopt;
  Sizes sizes;
  for (const auto &dim : input.type().tensor_type().shape().dim())
    sizes.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
  return sizes;
}

std::vector<std::string> Normalisation::run() {
  for (const auto &input : model.graph().input())
    if (!model.findInitializer(input.name()))
      if (std::optional<Sizes> sizes = sizesOf(input))
        inputs[input.name()] = *sizes;
  for (const FlatNode &node : model.nodes())
    visit(*node.proto);
  return std::move(found);
}

/// Returns whether a tensor of shape `shape` can be broadcast to an input of
/// shape `sizes` without changing the input's shape.
bool fitsInto(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> sizes) {
  if (shape.size() > sizes.size())
    return false;
  sizes = sizes.take_back(shape.size());
  for (auto [size, whole] : llvm::zip(shape, sizes))
    if (size != 1 && size != whole)
      return false;
  return true;
}

void Normalisation::visit(const ::onnx::NodeProto &node) {
  StringRef op = node.op_type();
  if (node.input_size() == 0 || node.output_size() == 0)
    return;
  auto source = inputs.find(node.input(0));
  bool isPlain = op == "Cast" || op == "Identity";
  if (source != inputs.end() && isPlain)
    inputs[node.output(0)] = source->second;
  if (source != inputs.end() && op == "Transpose") {
    Sizes sizes(llvm::reverse(source->second));
    for (const auto &attribute : node.attribute())
      if (attribute.name() == "perm" &&
          attribute.ints_size() == int(sizes.size()))
        for (int i = 0; i < attribute.ints_size(); ++i)
          if (attribute.ints(i) >= 0 && attribute.ints(i) < int(sizes.size()))
            sizes[i] = source->second[attribute.ints(i)];
    inputs[node.output(0)] = sizes;
  }
  if (isPlain)
    if (const TensorRef *tensor = tensorOf(node.input(0)))
      moved[node.output(0)] = tensor->name;
  bool divides = op == "Sub" || op == "Div";
  if (node.input_size() != 2 || (!divides && op != "Add" && op != "Mul"))
    return;
  bool isSecond = source == inputs.end();
  if (isSecond)
    source = inputs.find(node.input(1));
  const TensorRef *tensor = tensorOf(node.input(isSecond ? 0 : 1));
  if (source == inputs.end() || !tensor || !isFloat(tensor->type) ||
      !fitsInto(tensor->shape, source->second))
    return;
  inputs[node.output(0)] = source->second;
  // A tensor that is added and varies along several dimensions is not reported,
  // since it could be a learned position embedding.
  int64_t wide =
      llvm::count_if(tensor->shape, [](int64_t size) { return size != 1; });
  if (!constants.count(tensor->name) && (divides || wide <= 1) &&
      !llvm::is_contained(found, tensor->name))
    found.push_back(tensor->name);
}

/// Returns whether the tensor's elements depend only on the difference of the
/// last two indices. An exporter may have expanded such a tensor from a table
/// of relative positions.
bool holdsDifferences(Model &model, const TensorRef &tensor) {
  constexpr int64_t fewest = 8, values = 4;
  int64_t rank = tensor.shape.size();
  if (rank < 2 || !tensor.inFile || !tensor.missing.empty())
    return false;
  int64_t rows = tensor.shape[rank - 2], columns = tensor.shape[rank - 1];
  int64_t width = byteSize(tensor.type), size = rows * columns * width;
  if (rows < fewest || columns < fewest)
    return false;
  llvm::Expected<StringRef> bytes = model.read(tensor.range);
  if (!bytes) {
    llvm::consumeError(bytes.takeError()); // the import itself says so
    return false;
  }
  std::set<StringRef> distinct;
  for (StringRef rest = *bytes; !rest.empty(); rest = rest.drop_front(size)) {
    StringRef matrix = rest.take_front(size);
    for (int64_t i = 0; i + 1 < rows; ++i) {
      StringRef row = matrix.substr(i * columns * width, columns * width),
                next =
                    matrix.substr((i + 1) * columns * width, columns * width);
      if (row.drop_back(width) != next.drop_front(width))
        return false;
    }
    for (int64_t j = 0; j < columns && distinct.size() < values; ++j)
      distinct.insert(matrix.substr(j * width, width));
  }
  return distinct.size() >= values;
}

/// Returns whether the tensor is a mask between positions, such as the causal
/// mask, but not an identity matrix.
bool isMaskOfPositions(Model &model, const TensorRef &tensor) {
  llvm::Expected<HostTensor> contents = Node::contents(model, tensor);
  if (!contents) {
    llvm::consumeError(contents.takeError()); // the import itself says so
    return false;
  }
  if (!isBand(*contents))
    return false;
  int64_t zeros = 0, longest = *llvm::max_element(tensor.shape);
  forEach(&*contents, contents->shape(),
          [&](const int64_t *at) { zeros += contents->floatAt(*at) == 0; });
  return std::min(zeros, tensor.numElements() - zeros) > longest;
}

/// Returns whether the name is typical for tensors that a module computes once,
/// such as inv_freq, pe or cos_cached.
bool isNamedLikeTable(StringRef name) {
  std::string last = name.rsplit('.').second.empty()
                         ? name.lower()
                         : name.rsplit('.').second.lower();
  return last == "pe" || last == "sin" || last == "cos" ||
         llvm::any_of(
             llvm::ArrayRef<StringRef>{"freq", "rotary", "rope", "sinus",
                                       "sin_", "cos_", "cache", "mask", "tril",
                                       "triu", "causal", "buffer"},
             [&](StringRef part) { return StringRef(last).contains(part); });
}

} // namespace

std::vector<std::string> likelyParameters(Model &model,
                                          const Constants &constants) {
  std::vector<std::string> names;
  for (const auto &[name, kind] : constants) {
    const TensorRef &tensor = *model.findInitializer(name);
    bool byRule = kind == ConstantKind::Positions ||
                  kind == ConstantKind::Mask ||
                  kind == ConstantKind::PositionTable;
    // Older exporters number parameters as well as constants. So if a tensor
    // with several elements has only a number as its name, it may be either.
    if (byRule && tensor.numElements() > 1 &&
        model.metadata().heldAs(name) == HeldAs::Unknown &&
        !isNamedLikeTable(name) &&
        !(kind == ConstantKind::Mask && isMaskOfPositions(model, tensor)))
      names.push_back(name);
  }
  return names;
}

std::vector<std::string> likelyBuffers(Model &model,
                                       const Constants &constants) {
  std::vector<std::string> names = Normalisation(model, constants).run();
  std::map<std::string, std::vector<Model::Use>> uses = model.uses();
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) && tensor.numElements() > 1 &&
        !constants.count(tensor.name) && uses.count(tensor.name) &&
        !llvm::is_contained(names, tensor.name) &&
        (holdsPositions(model, tensor) || holdsDifferences(model, tensor)))
      names.push_back(tensor.name);
  llvm::erase_if(names, [&](const std::string &name) {
    return model.metadata().heldAs(name) == HeldAs::Parameter;
  });
  return names;
}

} // namespace cleave::importer
