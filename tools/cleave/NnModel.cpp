// A model in nn IR, as a person may have written it: what the phases take for
// granted is checked here.

#include "NnModel.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace cleave::driver {

namespace {

class Checker {
public:
  Checker(func::FuncOp func, const std::string &path)
      : func(func), where("model '" + path + "', @forward: ") {}

  void run(const Config &config) {
    if (func.isExternal())
      fail("has no body");
    if (!func.getBody().hasOneBlock())
      fail("has several blocks; expected one, without branches");
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      port("argument", i, func.getArgumentTypes()[i], func.getArgAttrDict(i),
           {"parameter", "buffer", "constant", "tokens", "labels", "input"});
    names.clear();
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      port("result", i, func.getResultTypes()[i], func.getResultAttrDict(i),
           {"output"});
    checkDims(config);
    checkKeys(config);
  }

private:
  [[noreturn]] void fail(const Twine &why) {
    throw Failure(BadUsage, (where + why).str());
  }

  void port(const char *kind, unsigned index, Type type, DictionaryAttr attrs,
            ArrayRef<StringRef> roles) {
    std::string what = (Twine(kind) + " " + Twine(index)).str();
    auto text = [&](StringRef key) {
      auto value = attrs ? attrs.getAs<StringAttr>(key) : nullptr;
      return value ? value.getValue() : StringRef();
    };
    StringRef name = text(nn::kNameAttr), role = text(nn::kRoleAttr);
    if (name.empty())
      fail(what + " has no name; give it nn.name = \"...\"");
    what += (" '" + name + "'").str();
    if (!names.insert(name).second)
      fail(what + " has the name of another");
    if (!llvm::is_contained(roles, role))
      fail(what + " has " +
           (role.empty() ? "no role" : "the role '" + role + "'") +
           "; expected nn.role to be one of " + llvm::join(roles, ", "));
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !tensor.hasStaticShape() ||
        llvm::is_contained(tensor.getShape(), 0)) {
      std::string found;
      llvm::raw_string_ostream(found) << type;
      fail(what + " has type " + found +
           "; expected a tensor whose sizes are known and positive");
    }
  }

  /// Keys that choose among what an ONNX file leaves open.
  void checkKeys(const Config &config) {
    llvm::StringMap<StringRef> inputs; // name to role
    for (unsigned i = 0; i < func.getNumArguments(); ++i) {
      auto role =
          func.getArgAttrOfType<StringAttr>(i, nn::kRoleAttr).getValue();
      if (role == "tokens" || role == "labels" || role == "input")
        inputs[func.getArgAttrOfType<StringAttr>(i, nn::kNameAttr).getValue()] =
            role;
    }
    if (const std::string &name = config.data.tokens;
        !name.empty() && inputs.lookup(name) != "tokens")
      fail("has no input '" + name +
           "' with nn.role = \"tokens\" (data.tokens)");
    Config defaults;
    for (const auto &[name, source] : config.data.inputs) {
      auto standard = defaults.data.inputs.find(name);
      if (!inputs.count(name) && (standard == defaults.data.inputs.end() ||
                                  standard->second != source))
        fail("has no input '" + name + "' (data.inputs." + name + ")");
    }
    for (const auto &[name, size] : config.dims)
      if (name != "batch" && name != "sequence")
        fail("has no symbolic dimensions, but dims." + name +
             " binds one; leave the key out");
    if (!config.train.tie.empty())
      fail("has the ties that its values say; train.tie is for ONNX models, "
           "leave it out");
  }

  /// The sizes of an IR file are fixed: the configuration can only agree.
  void checkDims(const Config &config) {
    for (unsigned i = 0; i < func.getNumArguments(); ++i) {
      auto role =
          func.getArgAttrOfType<StringAttr>(i, nn::kRoleAttr).getValue();
      auto type = cast<RankedTensorType>(func.getArgumentTypes()[i]);
      if ((role != "tokens" && role != "input") || type.getRank() == 0)
        continue;
      int64_t batch = type.getDimSize(0) * config.train.microbatches;
      agree(config, "batch", batch);
      if (role == "tokens" && type.getRank() > 1)
        agree(config, "sequence", type.getDimSize(1));
      return;
    }
  }

  void agree(const Config &config, const char *key, int64_t size) {
    auto found = config.dims.find(key);
    if (found == config.dims.end() || found->second == size)
      return;
    fail("has " + std::string(key) + " " + Twine(size) +
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

void checkNnModel(ModuleOp module, const std::string &path,
                  const Config &config) {
  auto forward = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
  if (!forward) {
    std::string found;
    for (auto func : module.getOps<func::FuncOp>())
      found += (found.empty() ? "@" : ", @") + func.getName().str();
    throw Failure(BadUsage,
                  "model '" + path + "' has " +
                      (found.empty() ? "no functions" : "only " + found) +
                      "; expected a function @forward from parameters and "
                      "inputs to outputs, or a dist.mesh and one function "
                      "with shardings");
  }
  for (Operation &op : *module.getBody())
    if (auto func = dyn_cast<func::FuncOp>(op); func && func != forward)
      throw Failure(BadUsage, "model '" + path + "' has a function @" +
                                  func.getName().str() +
                                  "; expected @forward alone, the others are "
                                  "derived from it");
  Checker(forward, path).run(config);
}

} // namespace cleave::driver
