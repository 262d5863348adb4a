// Checks a model in nn IR, which may be handwritten, for everything that the
// phases assume.

#include "NnModel.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Support/Errors.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace cleave::compiler {

namespace {

class Checker {
public:
  Checker(func::FuncOp func, const std::string &path)
      : func(func), where("model '" + path + "', @forward: ") {}

  LogicalResult run(const Config &config) {
    if (func.isExternal())
      return fail("has no body");
    if (!func.getBody().hasOneBlock())
      return fail("has several blocks; expected one, without branches");
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (failed(port(
              "argument", i, func.getArgumentTypes()[i], func.getArgAttrDict(i),
              {nn::Role::Parameter, nn::Role::Buffer, nn::Role::Constant,
               nn::Role::Tokens, nn::Role::Labels, nn::Role::Input})))
        return failure();
    names.clear();
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (failed(port("result", i, func.getResultTypes()[i],
                      func.getResultAttrDict(i), {nn::Role::Output})))
        return failure();
    return success(succeeded(checkDims(config)) &&
                   succeeded(checkKeys(config)));
  }

private:
  LogicalResult fail(const Twine &why) {
    return configError(func.getContext()) << where << why;
  }

  LogicalResult port(const char *kind, unsigned index, Type type,
                     DictionaryAttr attrs,
                     std::initializer_list<nn::Role> roles) {
    std::string what = (Twine(kind) + " " + Twine(index)).str();
    StringRef name = nn::nameOf(attrs);
    std::optional<nn::Role> role = nn::roleOf(attrs);
    if (name.empty())
      return fail(what + " has no name; give it nn.name = \"...\"");
    what += (" '" + name + "'").str();
    if (!names.insert(name).second)
      return fail(what + " has the name of another");
    if (!nn::isOneOf(role, roles))
      return fail(
          what + " has " +
          (role ? "the role '" + nn::spell(role) + "'" : "no role") +
          "; expected nn.role to be one of " +
          llvm::join(llvm::map_range(
                         roles, [](nn::Role each) { return nn::spell(each); }),
                     ", "));
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !tensor.hasStaticShape() ||
        llvm::is_contained(tensor.getShape(), 0)) {
      std::string found;
      llvm::raw_string_ostream(found) << type;
      return fail(what + " has type " + found +
                  "; expected a tensor whose sizes are known and positive");
    }
    return success();
  }

  /// Checks the keys of the configuration that name inputs of the model, and
  /// reports keys that only apply to ONNX files.
  LogicalResult checkKeys(const Config &config) {
    llvm::StringMap<std::optional<nn::Role>> inputs; // by name
    for (unsigned i = 0; i < func.getNumArguments(); ++i) {
      std::optional<nn::Role> role = nn::roleOf(func, i);
      if (nn::isOneOf(role,
                      {nn::Role::Tokens, nn::Role::Labels, nn::Role::Input}))
        inputs[nn::nameOf(func, i)] = role;
    }
    if (const std::string &name = config.data.tokens;
        !name.empty() && inputs.lookup(name) != nn::Role::Tokens)
      return fail("has no input '" + name +
                  "' with nn.role = #nn.role<tokens> (data.tokens)");
    Config defaults;
    for (const auto &[name, source] : config.data.inputs) {
      auto standard = defaults.data.inputs.find(name);
      if (!inputs.count(name) && (standard == defaults.data.inputs.end() ||
                                  standard->second != source))
        return fail("has no input '" + name + "' (data.inputs." + name + ")");
    }
    for (const auto &[name, size] : config.dims)
      if (name != "batch" && name != "sequence")
        return fail("has no symbolic dimensions, but dims." + name +
                    " binds one; leave the key out");
    if (!config.train.tie.empty())
      return fail(
          "has the ties that its values say; train.tie is for ONNX models, "
          "leave it out");
    return success();
  }

  /// The sizes of an IR file are fixed, so the sizes in the configuration must
  /// agree with them.
  LogicalResult checkDims(const Config &config) {
    for (unsigned i = 0; i < func.getNumArguments(); ++i) {
      std::optional<nn::Role> role = nn::roleOf(func, i);
      auto type = cast<RankedTensorType>(func.getArgumentTypes()[i]);
      if (!nn::isOneOf(role, {nn::Role::Tokens, nn::Role::Input}) ||
          type.getRank() == 0)
        continue;
      int64_t batch = type.getDimSize(0) * config.train.microbatches;
      if (failed(agree(config, "batch", batch)))
        return failure();
      return role == nn::Role::Tokens && type.getRank() > 1
                 ? agree(config, "sequence", type.getDimSize(1))
                 : success();
    }
    return success();
  }

  LogicalResult agree(const Config &config, const char *key, int64_t size) {
    auto found = config.dims.find(key);
    if (found == config.dims.end() || found->second == size)
      return success();
    return fail("has " + std::string(key) + " " + Twine(size) +
                (key == std::string("batch") && config.train.microbatches > 1
                     ? " in " + std::to_string(config.train.microbatches) +
                           " microbatches"
                     : std::string()) +
                ", but dims." + key + " = " + Twine(found->second) +
                "; leave the key out or change the file");
  }

  func::FuncOp func;
  std::string where;
  llvm::StringSet<> names;
};

} // namespace

LogicalResult checkNnModel(ModuleOp module, const std::string &path,
                           const Config &config) {
  auto forward = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
  if (!forward) {
    std::string found;
    for (auto func : module.getOps<func::FuncOp>())
      found += (found.empty() ? "@" : ", @") + func.getName().str();
    return configError(module.getContext())
           << "model '" << path << "' has "
           << (found.empty() ? "no functions" : "only " + found)
           << "; expected a function @forward from parameters and inputs to "
              "outputs, or a dist.mesh and one function with shardings";
  }
  for (Operation &op : *module.getBody())
    if (auto func = dyn_cast<func::FuncOp>(op); func && func != forward)
      return configError(module.getContext())
             << "model '" << path << "' has a function @" << func.getName()
             << "; expected @forward alone, the others are derived from it";
  return Checker(forward, path).run(config);
}

} // namespace cleave::compiler
