// Compares the names in a file of weights with those of the model.

#include "cleave/io/WeightNames.h"
#include "cleave/io/Error.h"

#include <cstring>
#include <set>

namespace cleave {

static void append(std::string &list, const std::string &entry) {
  list += (list.empty() ? "" : ", ") + entry;
}

/// Returns a hint for messages about a matrix in the file whose name the model
/// does not have: it may be a tied parameter under another of its names. A
/// model file may use one name of a tied parameter, and its state_dict()
/// another name or both.
static std::string whatItMayBe(const ArrayView &view,
                               const SafetensorsReader &file,
                               const std::vector<WantedTensor> &wanted) {
  if (view.shape.size() < 2)
    return "";
  const WantedTensor *missing = nullptr;
  for (const WantedTensor &tensor : wanted) {
    if (tensor.shape != view.shape)
      continue;
    const ArrayView *other = file.find(tensor.name);
    if (!other) {
      if (missing)
        return ""; // several tensors are missing
      missing = &tensor;
    } else if (other->dtype == view.dtype && other->shape == view.shape &&
               std::memcmp(other->data, view.data, view.byteSize()) == 0) {
      return " (the same as '" + tensor.name +
             "': if they are tied, leave it out)";
    }
  }
  return missing ? " (of the shape of '" + missing->name +
                       "': if they are tied, rename it)"
                 : "";
}

void requireTensors(const std::string &path, const SafetensorsReader &file,
                    const std::vector<WantedTensor> &wanted,
                    const std::string &model) {
  std::set<std::string> known;
  std::string missing, misshapen, extra;
  for (const WantedTensor &tensor : wanted) {
    std::vector<std::string> names = {tensor.name};
    names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
    bool isFound = false;
    for (const std::string &name : names) {
      known.insert(name);
      const ArrayView *view = file.find(name);
      if (!view)
        continue;
      isFound = true;
      if (view->shape != tensor.shape)
        append(misshapen, "'" + name + "' has shape " +
                              shapeToString(view->shape) + ", expected " +
                              shapeToString(tensor.shape));
      else if (isFloat(view->dtype) != tensor.isFloat)
        append(misshapen,
               "'" + name + "' has element type " + view->dtype +
                   ", expected " +
                   (tensor.isFloat ? "a floating type" : "an integer type"));
    }
    if (!isFound)
      append(missing, "'" + tensor.name + "'");
  }
  for (const std::string &name : file.names())
    if (!known.count(name))
      append(extra,
             "'" + name + "'" + whatItMayBe(*file.find(name), file, wanted));
  std::string text;
  auto say = [&](const std::string &list, const std::string &what) {
    if (!list.empty())
      text += (text.empty() ? "" : "; ") + what + list;
  };
  say(missing, "missing: ");
  say(extra, "not of the model: ");
  say(misshapen, "");
  if (!text.empty())
    throw InputError(path + ": does not fit the " + model + ": " + text);
}

} // namespace cleave
