// Names of operations for users.

#include "cleave/Support/Locations.h"

#include "mlir/IR/BuiltinAttributes.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Path.h"

using namespace mlir;

namespace cleave {

Location locationOf(MLIRContext *context, StringRef node,
                    const NodeSource &source) {
  Location place = UnknownLoc::get(context);
  if (source.line)
    place = FileLineColLoc::get(context, source.file, source.line, 1);
  if (!source.module.empty())
    place = FusedLoc::get(context, {place},
                          StringAttr::get(context, source.module));
  return NameLoc::get(StringAttr::get(context, node), place);
}

/// Returns a text like "model.py:13". The folder is left out, because it is one
/// of the machine that exported the model.
static std::string describeLine(StringRef file, unsigned line) {
  return (llvm::sys::path::filename(file) + ":" + Twine(line)).str();
}

/// Returns a location in a file as a text like "model.py:13"; "" for other
/// locations.
static std::string lineOf(Location location) {
  auto file = dyn_cast<FileLineColLoc>(location);
  return file && file.getLine()
             ? describeLine(file.getFilename().getValue(), file.getLine())
             : "";
}

static std::string withLine(StringRef name, const std::string &line) {
  return line.empty() ? name.str() : (name + " (" + line + ")").str();
}

static std::string describeNode(NameLoc node) {
  Location child = node.getChildLoc();
  auto fused = dyn_cast<FusedLoc>(child);
  auto module =
      fused ? dyn_cast_if_present<StringAttr>(fused.getMetadata()) : nullptr;
  if (!module)
    return withLine(node.getName().getValue(), lineOf(child));
  ArrayRef<Location> places = fused.getLocations();
  return withLine(module.getValue(), places.empty() ? "" : lineOf(places[0]));
}

std::string describeLocation(Location location) {
  if (auto node = dyn_cast<NameLoc>(location))
    return describeNode(node);
  if (auto file = dyn_cast<FileLineColLoc>(location))
    return file.getFilename().str() +
           // A location with line 0 stands for a whole file and is printed
           // without a line.
           (file.getLine() ? ":" + std::to_string(file.getLine()) + ":" +
                                 std::to_string(file.getColumn())
                           : "");
  return "";
}

std::string describeSource(const NodeSource &source) {
  std::string line = source.line ? describeLine(source.file, source.line) : "";
  return source.module.empty() ? line : withLine(source.module, line);
}

namespace {

/// A name split at dots and slashes, up to the first space, as in "blocks.0.fc
/// (model.py:3)". Each separator stays with the part before it.
struct CutName {
  SmallVector<StringRef, 8> parts;
  StringRef rest;

  explicit CutName(StringRef name) {
    size_t end = std::min(name.find(' '), name.size());
    rest = name.drop_front(end);
    for (StringRef left = name.take_front(end); !left.empty();) {
      size_t cut = left.find_first_of("./", left.find_first_not_of("./"));
      size_t length =
          std::min(cut == StringRef::npos ? cut : cut + 1, left.size());
      parts.push_back(left.take_front(length));
      left = left.drop_front(length);
    }
  }

  static bool isNumber(StringRef part) {
    StringRef digits = part.rtrim("./");
    return !digits.empty() && llvm::all_of(digits, llvm::isDigit);
  }
};

} // namespace

std::vector<FoldedName> foldLayers(ArrayRef<std::string> names) {
  std::vector<CutName> cut(names.begin(), names.end());
  llvm::StringMap<size_t> groups; // indices into `folded`
  std::vector<FoldedName> folded;
  for (auto [index, name] : llvm::enumerate(cut)) {
    std::string key;
    for (StringRef part : name.parts)
      key += CutName::isNumber(part) ? "*\n" : part.str();
    auto [group, isNew] =
        groups.try_emplace(key + name.rest.str(), folded.size());
    if (isNew)
      folded.emplace_back();
    folded[group->second].members.push_back(index);
  }
  for (FoldedName &group : folded) {
    const CutName &first = cut[group.members.front()];
    for (auto [at, part] : llvm::enumerate(first.parts)) {
      bool isOne = llvm::all_of(group.members, [&, at = at](size_t member) {
        return cut[member].parts[at] == cut[group.members.front()].parts[at];
      });
      group.text += isOne
                        ? part.str()
                        : "*" + part.drop_front(part.rtrim("./").size()).str();
    }
    group.text += first.rest.str();
  }
  return folded;
}

} // namespace cleave
