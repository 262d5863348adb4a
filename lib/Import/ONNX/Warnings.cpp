// Warnings about parameters whose treatment may surprise the user.

#include "Importer.h"

#include "cleave/io/Pattern.h"

using namespace mlir;
using llvm::StringRef;

namespace cleave::importer {

/// Formats a list of names: 'a', 'b' and 'c'. A long list has only the first
/// names and the number of the others. `suffix` follows each name.
static std::string quoted(
    ArrayRef<std::string> names,
    llvm::function_ref<std::string(const std::string &)> suffix =
        [](const std::string &) { return std::string(); }) {
  constexpr size_t most = 6;
  std::string text;
  size_t shown = names.size() > most + 1 ? most : names.size();
  for (size_t i = 0; i < shown; ++i)
    text += (i == 0                  ? "'"
             : i + 1 == names.size() ? " and '"
                                     : ", '") +
            names[i] + "'" + suffix(names[i]);
  if (shown < names.size())
    text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

std::string patternOf(const Model &model, StringRef name) {
  // The dots of the name are left unescaped if the pattern still matches no
  // other tensor.
  bool isPlain = name.find_first_of("\"\\") == StringRef::npos &&
                 checkPattern(name.str()).empty() && matchesPattern(name, name);
  if (isPlain && llvm::none_of(model.initializers(), [&](const TensorRef &t) {
        return t.name != name && matchesPattern(name, t.name);
      }))
    return "\"" + name.str() + "\"";
  return quotedPattern(name);
}

/// Formats names as a list of patterns, quoted for the configuration, such as
/// for train.trainable.
static std::string patternsOf(const Model &model, ArrayRef<std::string> names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + patternOf(model, name);
  return "[" + text + "]";
}

std::vector<std::string> Importer::trained(std::vector<std::string> names) {
  llvm::erase_if(names, [&](const std::string &name) {
    return (options.isFrozen && options.isFrozen(name)) ||
           llvm::none_of(arguments, [&](const Argument &argument) {
             return argument.name == name &&
                    argument.role == nn::Role::Parameter &&
                    !isModuleBuffer(*argument.tensor);
           });
  });
  return names;
}

// Exporters store equal initializers once. In a model that was never trained,
// all gains are 1 and all biases are 0. So all of these may become one tensor,
// which is then imported as one parameter.
void Importer::warnOfMerged() {
  std::vector<std::string> names;
  std::map<std::string, int> uses;
  for (const MergedTensor &tensor : mergedTensors(model)) {
    names.push_back(tensor.name);
    uses[tensor.name] = tensor.uses;
  }
  names = trained(names);
  if (names.empty())
    return;
  bool isOne = names.size() == 1;
  std::string list = quoted(names, [&](const std::string &name) {
    return " by " + std::to_string(uses[name]);
  });
  emitWarning(model.location())
      << names.size() << (isOne ? " tensor is" : " tensors are")
      << " read by several nodes each, " << list << ", and "
      << (isOne ? "trains as one parameter" : "train as one parameter each")
      << ": exporters merge tensors of equal bytes, such as gains and biases "
         "before any training, or copies of a layer; train.untie = "
      << patternsOf(model, ArrayRef(names).take_front(1))
      << " gives each use a parameter of its own (also those of one module, "
         "which export with optimize=False keeps one); ones and zeros that "
         "stand for the gain and bias of norms without them belong into "
         "train.frozen";
}

void Importer::warnOfWholes() {
  auto uses = model.uses();
  for (const TensorRef &tensor : model.initializers()) {
    auto found = uses.find(tensor.name);
    if (!tensor.isApart || found == uses.end() || found->second.size() < 2 ||
        !llvm::all_of(found->second, [](const Model::Use &use) {
          return readsPart(*use.node->proto);
        }))
      continue;
    emitWarning(model.location())
        << "train.untie parts nothing of '" << tensor.name << "': its "
        << found->second.size()
        << " uses are slices, which stay parts of one parameter; part the "
           "tensor in the file";
  }
}

// Exporters' optimizers evaluate values that depend only on parameters. Such a
// value is then trained separately from the parameter that it was computed
// from. Comparing initializers cannot detect this, since their elements differ.
void Importer::warnOfFolded() {
  const Metadata &notes = model.metadata();
  std::map<std::string, std::vector<std::string>> made; // by source
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) && isFoldedFromTensor(notes, tensor.name))
      for (const std::string &source : notes.foldedFrom(tensor.name))
        if (!isNamedLikeNumber(source))
          made[source].push_back(tensor.name);
  std::vector<std::string> apart;
  for (const auto &[source, tensors] : made) {
    std::vector<std::string> names = trained(tensors);
    if (trained({source}).empty() ? names.size() > 1 : !names.empty())
      for (const std::string &name : names)
        apart.push_back("'" + name + "' of '" + source + "'");
  }
  if (apart.empty())
    return;
  constexpr size_t kShown = 3;
  bool isOne = apart.size() == 1;
  emitWarning(model.location())
      << "the exporter computed "
      << (isOne ? "a tensor" : std::to_string(apart.size()) + " tensors")
      << " from parameters ("
      << llvm::join(ArrayRef(apart).take_front(kShown), ", ")
      << (apart.size() > kShown ? ", ..." : "") << "), which "
      << (isOne ? "trains" : "train")
      << " apart from them, as the file has no operation between them; export "
         "with optimize=False";
}

void Importer::warnOfBuffers() {
  std::vector<std::string> names = trained(likelyBuffers(model, constants));
  llvm::erase_if(names, [&](const std::string &name) {
    return options.trainable.count(name) != 0;
  });
  if (names.empty())
    return;
  bool isOne = names.size() == 1;
  emitWarning(model.location())
      << quoted(names)
      << (isOne ? " looks like a buffer" : " look like buffers")
      << " (numbers that shift or scale an input, or a table that follows from "
         "positions), which the file does not tell from parameters, and "
      << (isOne ? "trains" : "train") << "; to keep " << (isOne ? "it" : "them")
      << " as in the file: train.frozen = " << patternsOf(model, names)
      << "; spelled out in train.trainable, " << (isOne ? "it is" : "they are")
      << " meant to train";
}

// Warns of tensors that heuristics took for tables, masks or parameters because
// the ONNX file does not say what they are.
void Importer::warnOfRules() {
  std::vector<std::string> names = likelyParameters(model, constants);
  llvm::erase_if(names, [&](const std::string &name) {
    return !values.count(name) || (options.isFrozen && options.isFrozen(name));
  });
  if (!names.empty()) {
    bool isOne = names.size() == 1;
    emitWarning(model.location())
        << quoted(names,
                  [&](const std::string &name) {
                    return " (" + spell(constants[name]).str() + ")";
                  })
        << (isOne ? " is" : " are")
        << " taken for constants, by use or elements, as the file does not "
           "tell them from parameters, and "
        << (isOne ? "does" : "do") << " not train; if modules learn "
        << (isOne ? "it" : "them") << ": train.trainable = [\".*\", "
        << StringRef(patternsOf(model, names)).drop_front()
        << "; named in train.frozen, " << (isOne ? "it is" : "they are")
        << " meant to stay";
  }
  std::set<std::string> fixed = likelyFixed(model, tokens, options);
  names = trained({fixed.begin(), fixed.end()});
  llvm::erase_if(names, [&](const std::string &name) {
    return options.trainable.count(name) != 0;
  });
  if (names.empty())
    return;
  bool isOne = names.size() == 1;
  emitWarning(model.location())
      << quoted(names)
      << (isOne ? " is a parameter, as the file says, and trains, though it "
                  "holds"
                : " are parameters, as the file says, and train, though they "
                  "hold")
      << " a mask or a table of positions; no file says which parameters are "
         "frozen (requires_grad): to keep "
      << (isOne ? "it" : "them")
      << " as in the file: train.frozen = " << patternsOf(model, names)
      << "; spelled out in train.trainable, " << (isOne ? "it is" : "they are")
      << " meant to train";
}

// A learned temperature without dimensions looks like a literal number of the
// model's source code. With dimensions it looks like a parameter.
void Importer::warnOfScalars() {
  if (!scalars.empty()) {
    bool isOne = scalars.size() == 1;
    emitWarning(model.location())
        << quoted(scalars) << (isOne ? " has" : " have") << " one element and "
        << (isOne ? "is" : "are") << " taken for "
        << (isOne ? "a number that does" : "numbers that do")
        << " not train; if modules learn " << (isOne ? "it" : "them")
        << ": train.trainable = [\".*\", "
        << StringRef(patternsOf(model, scalars)).drop_front();
  }
  std::vector<std::string> numbers;
  for (const TensorRef &tensor : model.initializers())
    if (tensor.numElements() == 1 && !options.trainable.count(tensor.name) &&
        !isNamedLikeParameter(tensor.name) &&
        model.metadata().heldAs(tensor.name) == HeldAs::Unknown)
      numbers.push_back(tensor.name);
  numbers = trained(numbers);
  if (numbers.empty())
    return;
  bool isOne = numbers.size() == 1;
  emitWarning(model.location())
      << quoted(numbers) << (isOne ? " has" : " have") << " one element, "
      << (isOne ? "is a weight, or adds to or scales"
                : "are weights, or add to or scale")
      << " what parameters compute, and " << (isOne ? "trains" : "train")
      << "; if " << (isOne ? "it is a number" : "they are numbers")
      << " of the program: train.frozen = " << patternsOf(model, numbers);
}

} // namespace cleave::importer
