// Reads metadata of exporters. libonnx 1.12 knows only the metadata of models;
// that of values and nodes is read from unknown fields.

#include "Metadata.h"

#include "FrozenRow.h"

#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using llvm::StringRef;

namespace cleave::importer {

namespace {

constexpr int kValueMetadata = 4, kNodeMetadata = 9;
constexpr StringRef kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr StringRef kPersistent =
    "pkg.torch.export.graph_signature.InputSpec.persistent";
constexpr StringRef kFoldedFrom = "pkg.onnxscript.optimizer.folded_from";
constexpr StringRef kNameScopes = "pkg.torch.onnx.name_scopes";
constexpr StringRef kNamespace = "namespace";
constexpr StringRef kStackTrace = "pkg.torch.onnx.stack_trace";
constexpr StringRef kFxNode = "pkg.torch.onnx.fx_node";
constexpr StringRef kEmbedding = "aten.embedding.default](args = (";

/// Calls `body` for all keys and values of `metadata_props`.
template <typename Body>
void forEachEntry(const google::protobuf::Message &message, int number,
                  const Body &body) {
  const auto &fields = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto &field = fields.field(i);
    ::onnx::StringStringEntryProto entry;
    if (field.number() == number &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
        entry.ParseFromString(field.length_delimited()))
      body(StringRef(entry.key()), StringRef(entry.value()));
  }
}

std::string metadataOf(const ::onnx::NodeProto &node, StringRef key) {
  std::string found;
  forEachEntry(node, kNodeMetadata, [&](StringRef name, StringRef value) {
    if (name == key)
      found = value.str();
  });
  return found;
}

/// Parses a list of strings as Python prints it: ['a', 'b'].
std::vector<std::string> listOf(StringRef text) {
  std::vector<std::string> items;
  while (true) {
    size_t begin = text.find_first_of("'\"");
    if (begin == StringRef::npos)
      return items;
    size_t end = text.find(text[begin], begin + 1);
    if (end == StringRef::npos)
      return items;
    items.push_back(text.slice(begin + 1, end).str());
    text = text.drop_front(end + 1);
  }
}

HeldAs kindOf(StringRef value) {
  return llvm::StringSwitch<HeldAs>(value)
      .Case("PARAMETER", HeldAs::Parameter)
      .Case("BUFFER", HeldAs::Buffer)
      .Case("CONSTANT_TENSOR", HeldAs::Number)
      .Default(HeldAs::Unknown);
}

} // namespace

Metadata::Metadata(const ::onnx::GraphProto &graph) {
  auto read = [&](const ::onnx::ValueInfoProto &value) {
    HeldAs kind = HeldAs::Unknown;
    bool isPersistent = true;
    forEachEntry(value, kValueMetadata, [&](StringRef key, StringRef text) {
      if (key == kKind)
        kind = kindOf(text);
      else if (key == kPersistent)
        isPersistent = text != "False";
      else if (key == kFoldedFrom)
        folded[value.name()] = listOf(text);
    });
    // A buffer that is not in the state_dict is treated like a literal number
    // of the model's source code.
    if (kind == HeldAs::Buffer && !isPersistent)
      kind = HeldAs::Number;
    if (kind != HeldAs::Unknown)
      kinds[value.name()] = kind;
  };
  for (const ::onnx::ValueInfoProto &value : graph.value_info())
    read(value);
  for (const ::onnx::ValueInfoProto &value : graph.input())
    read(value);
}

HeldAs Metadata::heldAs(StringRef tensor) const {
  auto found = kinds.find(tensor.str());
  return found == kinds.end() ? HeldAs::Unknown : found->second;
}

const std::vector<std::string> &Metadata::foldedFrom(StringRef tensor) const {
  static const std::vector<std::string> none;
  auto found = folded.find(tensor.str());
  return found == folded.end() ? none : found->second;
}

/// Returns the innermost module in a namespace such as ": Model/blocks.0:
/// Block/blocks.0.qkv: Linear/linear: aten.linear.default". It lists the model,
/// its modules from the outermost one, and the operation, each with its class.
static std::string moduleOfNamespace(StringRef text) {
  llvm::SmallVector<StringRef> scopes;
  text.split(scopes, '/');
  return scopes.size() < 2
             ? ""
             : scopes[scopes.size() - 2].split(": ").first.trim().str();
}

std::string moduleOf(const ::onnx::NodeProto &node) {
  // The model, its modules from the outermost one, and the operation.
  std::vector<std::string> scopes = listOf(metadataOf(node, kNameScopes));
  if (scopes.empty())
    return moduleOfNamespace(metadataOf(node, kNamespace));
  return scopes.size() < 2 ? "" : scopes[scopes.size() - 2];
}

/// Returns whether a source file, named in a stack trace, is a part of PyTorch
/// and not of the model.
static bool isOfPyTorch(StringRef file) {
  return file.contains("site-packages/torch/") ||
         file.contains("dist-packages/torch/");
}

/// Reads a stack trace with lines such as `File "model.py", line 13, in
/// forward`, whose innermost call is last. Stores the file and the line of the
/// innermost call that is not code of PyTorch in `source`.
static void readStackTrace(StringRef trace, NodeSource &source) {
  while (!trace.empty()) {
    auto [text, rest] = trace.split('\n');
    trace = rest;
    text = text.trim();
    unsigned line = 0;
    if (!text.consume_front("File \""))
      continue;
    auto [file, after] = text.split("\", line ");
    if (file.empty() || isOfPyTorch(file) ||
        after.take_while(llvm::isDigit).getAsInteger(10, line) || line == 0)
      continue;
    source.file = file.str();
    source.line = line;
  }
}

NodeSource sourceOf(const ::onnx::NodeProto &node) {
  NodeSource source;
  source.module = moduleOf(node);
  readStackTrace(metadataOf(node, kStackTrace), source);
  return source;
}

std::optional<int64_t> frozenRowOf(const ::onnx::NodeProto &node) {
  // ...target=torch.ops.aten.embedding.default](args = (%p_w, %ids, 0), ...
  std::string text = metadataOf(node, kFxNode);
  auto [before, after] = StringRef(text).split(kEmbedding);
  after = after.take_until([](char c) { return c == ')'; });
  llvm::SmallVector<StringRef> arguments;
  after.split(arguments, ',');
  int64_t row = -1;
  if (arguments.size() < 3 || arguments[2].trim().getAsInteger(10, row) ||
      row < 0)
    return std::nullopt;
  return row;
}

std::vector<std::string> readsOf(const ::onnx::NodeProto &node) {
  std::vector<std::string> reads;
  std::string text = metadataOf(node, kFxNode);
  auto isLetter = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  for (size_t at = text.find('%'); at != std::string::npos;
       at = text.find('%', at + 1)) {
    StringRef name = StringRef(text).drop_front(at + 1).take_while(isLetter);
    // %p_NAME is a parameter, %b_NAME a buffer.
    if (name.consume_front("p_") || name.consume_front("b_"))
      if (!llvm::is_contained(reads, name))
        reads.push_back(name.str());
  }
  return reads;
}

} // namespace cleave::importer
