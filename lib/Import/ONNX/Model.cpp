// Loading and checking an ONNX file.

#include "Model.h"
#include "EscapeNames.h"
#include "Functions.h"
#include "Wire.h"

#include "cleave/Import/ONNX/Import.h"

#include "cleave/io/File.h"

#include <onnx/onnx_pb.h>

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <set>

using namespace mlir;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

/// The IR versions that the importer was written for. Newer files are refused,
/// because their operators may have other meanings.
static constexpr int64_t kMinIr = 3, kMaxIr = 14;
static constexpr int64_t kMinOpset = 11, kMaxOpset = 25;

int64_t TensorRef::numElements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

int64_t FlatNode::opset() const {
  std::string domain = proto->domain() == "ai.onnx" ? "" : proto->domain();
  auto it = opsets->find(domain);
  return it == opsets->end() ? 0 : it->second;
}

Model::Model(Location loc) : loc(loc) {}
Model::~Model() = default;

const ::onnx::GraphProto &Model::graph() const { return proto->graph(); }

const TensorRef *Model::findInitializer(StringRef name) const {
  auto it = tensorIndex.find(name.str());
  return it == tensorIndex.end() ? nullptr : &tensors[it->second];
}

std::string shortList(const std::vector<std::string> &lines) {
  constexpr size_t most = 4;
  std::string text;
  for (size_t i = 0; i < lines.size() && (i < most || lines.size() == most + 1);
       ++i)
    text += "\n  " + lines[i];
  if (lines.size() > most + 1)
    text += "\n  and " + std::to_string(lines.size() - most) + " more";
  return text;
}

/// Returns whether the text begins like MLIR. If so, the user has given an MLIR
/// file whose name does not end in .mlir, where an ONNX file was expected.
static bool looksLikeIr(StringRef text) {
  text = text.ltrim();
  // MLIR may begin with the alias of an attribute, such as #loc. Other text may
  // begin with a heading, such as "# Title".
  if (text.size() > 1 && text[0] == '#')
    return llvm::isAlpha(text[1]);
  return llvm::any_of(ArrayRef<StringRef>{"module", "func.func", "//",
                                          "builtin.module", "\"builtin"},
                      [&](StringRef start) { return text.starts_with(start); });
}

std::unique_ptr<Model> Model::load(StringRef path, MLIRContext &context,
                                   const ImportLimits &limits) {
  Location loc = NameLoc::get(StringAttr::get(&context, path));
  std::unique_ptr<Model> model(new Model(loc));
  model->filePath = path.str();
  model->folder = llvm::sys::path::parent_path(path).str();
  if (model->folder.empty())
    model->folder = ".";
  model->fileName = llvm::sys::path::filename(path).str();
  if (failed(model->parse(context)) || failed(model->checkVersions()))
    return nullptr;
  model->describeInitializers();
  if (failed(model->inlineFunctions(limits.inlinedNodes)) ||
      failed(model->sortNodes()))
    return nullptr;
  model->nameDimensions();
  model->notes = Metadata(model->graph());
  return model;
}

LogicalResult Model::parse(MLIRContext &context) {
  if (llvm::sys::fs::is_directory(filePath))
    return emitError(loc) << "is a folder, expected an ONNX file";
  std::string why;
  bytes = mapInput(filePath, why);
  if (!bytes)
    return emitError(loc) << "cannot be read: " << why;
  if (bytes->size() == 0)
    return emitError(loc) << "is empty, expected an ONNX model";
  if (looksLikeIr(bytes->text()))
    return emitError(loc) << "is not an ONNX model but MLIR text, whose file "
                             "name must end in .mlir";
  std::string stripped;
  proto = std::make_unique<::onnx::ModelProto>();
  if (!stripTensors(bytes->text(), stripped) ||
      !proto->ParseFromString(stripped))
    return emitError(loc) << "is not an ONNX model, or is truncated ("
                          << bytes->size()
                          << " bytes); export or copy it again";
  // Other protobuf files may parse by chance, but only a model has these
  // fields.
  if (!proto->has_graph() || !proto->has_ir_version() ||
      proto->opset_import_size() == 0)
    return emitError(loc) << "is not an ONNX model, or is truncated: it has no "
                          << (!proto->has_graph()        ? "graph"
                              : !proto->has_ir_version() ? "IR version"
                                                         : "operator set");
  escapeNames(*proto);
  return success();
}

LogicalResult Model::checkVersions() {
  int64_t ir = proto->ir_version();
  if (ir < kMinIr || ir > kMaxIr)
    return emitError(loc) << "has IR version " << ir << ", expected " << kMinIr
                          << " to " << kMaxIr;
  for (const auto &import : proto->opset_import()) {
    bool isDefault = import.domain().empty() || import.domain() == "ai.onnx";
    if (isDefault &&
        (import.version() < kMinOpset || import.version() > kMaxOpset))
      version = "operator set " + std::to_string(import.version()) +
                ": expected " + std::to_string(kMinOpset) + " to " +
                std::to_string(kMaxOpset) +
                "; convert it (onnx.version_converter.convert_version(model, " +
                std::to_string(std::clamp<int64_t>(import.version(), 18, 23)) +
                ")), or export it with a version in this range";
  }
  return success();
}

/// Names the dimensions of inputs for which the ONNX file has neither a name
/// nor a size (or the size -1). They get the names that the configuration uses:
/// dimension 0 is called "batch", and dimension 1 of token ids "sequence".
void Model::nameDimensions() {
  for (::onnx::ValueInfoProto &input :
       *proto->mutable_graph()->mutable_input()) {
    if (findInitializer(input.name()) || !input.type().has_tensor_type())
      continue;
    auto *tensor = input.mutable_type()->mutable_tensor_type();
    auto type = static_cast<Element>(tensor->elem_type());
    bool isTokens = tensor->shape().dim_size() == 2 &&
                    (type == Element::I64 || type == Element::I32);
    for (int index = 0; index < tensor->shape().dim_size(); ++index) {
      auto &dim = *tensor->mutable_shape()->mutable_dim(index);
      if (dim.has_dim_value() ? dim.dim_value() >= 0 : !dim.dim_param().empty())
        continue;
      dim.clear_value();
      if (index == 0 || (index == 1 && isTokens))
        dim.set_dim_param(index == 0 ? "batch" : "sequence");
    }
  }
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// Refuses a location that leaves the model's folder.
static llvm::Error checkLocation(StringRef folder, StringRef location) {
  namespace path = llvm::sys::path;
  if (location.empty())
    return reason("its external data has no location");
  if (path::is_absolute(location) || location.contains('\\'))
    return reason("its external data '" + location +
                  "' is outside the model's folder: paths must be relative");
  llvm::SmallString<256> prefix(folder);
  for (StringRef component :
       llvm::make_range(path::begin(location), path::end(location))) {
    if (component == "..")
      return reason("its external data '" + location +
                    "' is outside the model's folder: '..' is not allowed");
    path::append(prefix, component);
    if (llvm::sys::fs::is_symlink_file(prefix))
      return reason("its external data '" + location +
                    "' leads through the "
                    "symbolic link '" +
                    component + "', which may leave the model's folder");
  }
  return llvm::Error::success();
}

llvm::Error Model::locate(const ::onnx::TensorProto &tensorProto,
                          TensorRef &tensor) {
  if (tensorProto.data_location() != ::onnx::TensorProto::EXTERNAL)
    return llvm::Error::success();
  std::string location;
  uint64_t offset = 0, length = 0;
  bool hasLength = false;
  for (const auto &entry : tensorProto.external_data()) {
    auto number = [&](uint64_t &value) -> llvm::Error {
      if (StringRef(entry.value()).getAsInteger(10, value))
        return reason("its external data has the " + entry.key() + " '" +
                      entry.value() + "', expected a number");
      return llvm::Error::success();
    };
    if (entry.key() == "location")
      location = entry.value();
    if (entry.key() == "offset")
      if (llvm::Error error = number(offset))
        return error;
    if (entry.key() == "length") {
      if (llvm::Error error = number(length))
        return error;
      hasLength = true;
    }
  }
  uint64_t want = tensor.numElements() * byteSize(tensor.type);
  tensor.inFile = true;
  if (location == kSelfLocation) {
    tensor.range = {fileName, offset, length};
    if (length != want)
      return reason("it holds " + Twine(length) + " bytes, expected " +
                    Twine(want));
    return llvm::Error::success();
  }
  if (llvm::Error error = checkLocation(folder, location))
    return error;
  if (hasLength && length != want)
    return reason("its external data has length " + Twine(length) +
                  ", expected " + Twine(want));
  tensor.range = {location, offset, want};
  llvm::SmallString<256> file(folder);
  llvm::sys::path::append(file, location);
  uint64_t size;
  if (std::error_code error = llvm::sys::fs::file_size(file, size))
    tensor.missing = "its external data '" + location +
                     "' cannot be read: " + error.message();
  else if (!llvm::sys::fs::is_regular_file(file))
    return reason("its external data '" + location + "' is not a regular file");
  else if (offset > size || want > size - offset)
    tensor.missing =
        ("its external data '" + Twine(location) + "' has " + Twine(size) +
         " bytes, expected at least " + Twine(offset + want))
            .str();
  return llvm::Error::success();
}

llvm::Expected<TensorRef>
Model::describe(const ::onnx::TensorProto &tensorProto) {
  TensorRef tensor;
  tensor.proto = &tensorProto;
  tensor.name = tensorProto.name();
  tensor.type = static_cast<Element>(tensorProto.data_type());
  int64_t count = 1;
  for (int64_t size : tensorProto.dims()) {
    if (size < 0 || llvm::MulOverflow(count, size, count) ||
        count > (int64_t(1) << 48))
      return reason("it has an impossible size " + Twine(size));
    tensor.shape.push_back(size);
  }
  if (byteSize(tensor.type) == 0)
    return reason("its element type is " + nameOf(tensor.type) +
                  ", which is not supported");
  if (llvm::Error error = locate(tensorProto, tensor))
    return std::move(error);
  return tensor;
}

void Model::describeInitializers() {
  const ::onnx::GraphProto &graph = proto->graph();
  for (const auto &sparse : graph.sparse_initializer())
    refused.push_back({sparse.values().name(), "it is sparse"});
  for (const ::onnx::TensorProto &initializer : graph.initializer()) {
    if (tensorIndex.count(initializer.name())) {
      refused.push_back({initializer.name(), "it occurs twice"});
      continue;
    }
    llvm::Expected<TensorRef> tensor = describe(initializer);
    if (!tensor) {
      refused.push_back(
          {initializer.name(), llvm::toString(tensor.takeError())});
      continue;
    }
    tensorIndex[initializer.name()] = tensors.size();
    tensors.push_back(std::move(*tensor));
  }
}

llvm::Expected<StringRef> Model::read(const ByteRange &range) {
  const MappedFile *file = bytes.get();
  if (range.file != fileName) {
    auto &external = externalFiles[range.file];
    if (!external) {
      llvm::SmallString<256> path(folder);
      llvm::sys::path::append(path, range.file);
      std::string why;
      external = mapInput(path.str().str(), why);
      if (!external)
        return reason("'" + range.file + "' cannot be read: " + why);
    }
    file = external.get();
  }
  uint64_t size = file->size();
  if (range.offset > size || range.length > size - range.offset)
    return reason("'" + range.file + "' has " + Twine(size) +
                  " bytes, expected at least " +
                  Twine(range.offset + range.length));
  return StringRef(file->text()).substr(range.offset, range.length);
}

LogicalResult Model::checkWhole() const {
  const MappedFile *cut = bytes->isCut() ? bytes.get() : nullptr;
  for (const auto &[name, file] : externalFiles)
    if (file && file->isCut())
      cut = file.get();
  if (cut)
    return emitError(loc) << "'" << cut->path()
                          << "' became shorter while it was read; import it "
                             "when it is written";
  return success();
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

LogicalResult Model::inlineFunctions(int64_t most) {
  FunctionInliner inliner(*proto, inlined, most);
  if (llvm::Error error = inliner.run(flat))
    return emitError(loc) << llvm::toString(std::move(error));
  return success();
}

LogicalResult Model::sortNodes() {
  std::map<std::string, size_t> producer;
  for (auto [index, node] : llvm::enumerate(flat)) {
    if (node.name.empty())
      node.name = node.proto->op_type() + "_" + std::to_string(index);
    if (node.proto->output_size() == 0)
      return emitError(loc)
             << "has node '" << node.name << "' (" << node.proto->op_type()
             << ") without outputs, expected one or more";
    for (const std::string &output : node.proto->output()) {
      if (!output.empty() && !producer.try_emplace(output, index).second)
        return emitError(loc) << "makes the value '" << output << "' twice";
      // PyTorch's exporter names results after operators.
      if (findInitializer(output))
        return emitError(loc)
               << "has two values called '" << output
               << "', an initializer and a result of node '" << node.name
               << "': rename the one that the module holds, and export again";
    }
  }
  // Orders nodes depth-first from the outputs along operands, so that the order
  // does not depend on names or on the order in the ONNX file. Nodes that no
  // output needs come last.
  std::vector<size_t> roots;
  for (const auto &output : proto->graph().output())
    if (auto it = producer.find(output.name()); it != producer.end())
      roots.push_back(it->second);
  for (size_t index = 0; index < flat.size(); ++index)
    roots.push_back(index);
  enum State : char { New, Open, Done };
  std::vector<State> state(flat.size(), New);
  std::vector<FlatNode> sorted;
  sorted.reserve(flat.size());
  for (size_t root : roots) {
    std::vector<std::pair<size_t, int>> stack;
    if (state[root] == New)
      stack.push_back({root, 0});
    while (!stack.empty()) {
      auto &[index, input] = stack.back();
      state[index] = Open; // a node that is met while open is in a cycle
      if (input == flat[index].proto->input_size()) {
        state[index] = Done;
        sorted.push_back(flat[index]);
        stack.pop_back();
        continue;
      }
      auto it = producer.find(flat[index].proto->input(input++));
      if (it == producer.end() || state[it->second] == Done)
        continue;
      if (state[it->second] == Open)
        return emitError(loc)
               << "has a cycle through node '" << flat[it->second].name << "'";
      stack.push_back({it->second, 0});
    }
  }
  flat = std::move(sorted);
  return success();
}

} // namespace cleave::importer
