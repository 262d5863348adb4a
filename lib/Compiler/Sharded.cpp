// Models that specify their shardings themselves; see Sharded.h.

#include "cleave/Compiler/Sharded.h"

#include "cleave/Compiler/Dialects.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Support/Errors.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;

namespace cleave::compiler {

bool isSharded(ModuleOp module) {
  return !module.getOps<dist::MeshOp>().empty();
}

static bool isTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() &&
         !llvm::is_contained(tensor.getShape(), 0);
}

/// Adds missing names and roles to the arguments or to the results of a
/// function.
template <typename Set>
static LogicalResult
describe(func::FuncOp func, const std::string &where, const char *kind,
         ArrayRef<Type> types, nn::Role role,
         llvm::function_ref<DictionaryAttr(unsigned)> attrsOf, Set set) {
  Builder builder(func.getContext());
  llvm::StringSet<> names;
  for (auto [index, type] : llvm::enumerate(types)) {
    std::string what = (Twine(kind) + " " + Twine(index)).str();
    if (!isTensor(type)) {
      std::string found;
      llvm::raw_string_ostream(found) << type;
      return configError(func.getContext())
             << where << what << " has type " << found
             << "; expected a tensor whose sizes are known and positive";
    }
    DictionaryAttr attrs = attrsOf(index);
    auto name = attrs ? attrs.getAs<StringAttr>(nn::kNameAttr) : StringAttr();
    if (!name) {
      name = builder.getStringAttr(Twine(kind) + Twine(index));
      set(index, nn::kNameAttr, name);
    }
    if (!names.insert(name.getValue()).second)
      return configError(func.getContext())
             << where << what << " '" << name.getValue()
             << "' has the name of another";
    if (!nn::roleOf(attrs))
      set(index, nn::kRoleAttr, nn::RoleAttr::get(func.getContext(), role));
  }
  return success();
}

LogicalResult prepareSharded(ModuleOp module, const std::string &path,
                             const Config &config) {
  std::string where = "model '" + path + "'";
  auto error = [&] { return configError(module.getContext()); };
  auto meshes = llvm::to_vector(module.getOps<dist::MeshOp>());
  if (meshes.size() != 1)
    return error() << where << " has " << meshes.size()
                   << " meshes; expected one dist.mesh";
  if (!config.mesh.sizes.empty() || !config.shard.empty())
    return error() << where
                   << " has a dist.mesh and is split as it says; leave mesh "
                      "and [[shard]] out of the configuration, or take "
                      "dist.mesh and dist.sharding out of the model";
  func::FuncOp func;
  for (Operation &op : *module.getBody()) {
    if (isa<dist::MeshOp>(op))
      continue;
    auto found = dyn_cast<func::FuncOp>(op);
    if (!found || found.isDeclaration() || func)
      return error() << where << " has "
                     << (found ? "a function @" + found.getName().str()
                               : "an operation " +
                                     op.getName().getStringRef().str())
                     << (func ? " beside @" + func.getName().str()
                              : std::string())
                     << "; expected a dist.mesh and one function with a body";
    func = found;
  }
  if (!func)
    return error() << where
                   << " has a dist.mesh, but no function; expected one, with "
                      "shardings";
  where += ", @" + func.getName().str() + ": ";
  if (!func.getBody().hasOneBlock())
    return error() << where << "has several blocks; expected one";
  BoundaryAttrs boundary(func);
  if (failed(describe(
          func, where, "argument", func.getArgumentTypes(), nn::Role::Input,
          [&](unsigned i) { return func.getArgAttrDict(i); },
          [&](unsigned i, StringRef name, Attribute value) {
            boundary.setArgument(i, name, value);
          })) ||
      failed(describe(
          func, where, "result", func.getResultTypes(), nn::Role::Output,
          [&](unsigned i) { return func.getResultAttrDict(i); },
          [&](unsigned i, StringRef name, Attribute value) {
            boundary.setResult(i, name, value);
          })))
    return failure();
  boundary.apply();
  func.setName(nn::kForwardFunc);
  return success();
}

std::optional<Mesh> meshInFile(const std::string &path) {
  if (!StringRef(path).ends_with(".mlir"))
    return std::nullopt;
  auto file = llvm::MemoryBuffer::getFile(path);
  StringRef text = file ? (*file)->getBuffer() : StringRef();
  if (!text.contains(dist::MeshOp::getOperationName()))
    return std::nullopt;
  MLIRContext context;
  loadDialects(context);
  ScopedDiagnosticHandler quiet(&context,
                                [](Diagnostic &) { return success(); });
  // Usually, the mesh precedes the functions, with or without an explicit
  // `module`. So only the text before the first function is parsed at first,
  // because the model may be large.
  std::string head = text.take_front(text.find("func.func")).str();
  for (const std::string &part : {head, head + "}", text.str()}) {
    auto module = parseSourceString<ModuleOp>(part, &context);
    if (module && isSharded(*module))
      return meshOf(*module, {});
  }
  return std::nullopt;
}

Mesh meshOf(ModuleOp module, const Mesh &other) {
  if (!isSharded(module))
    return other;
  Mesh mesh;
  dist::MeshOp op = *module.getOps<dist::MeshOp>().begin();
  for (dist::MeshAxisAttr axis : op.getMesh().getAxes())
    mesh.axes.emplace_back(axis.getName().str(), axis.getSize());
  return mesh;
}

void removeShardings(ModuleOp module) {
  for (dist::MeshOp mesh : llvm::to_vector(module.getOps<dist::MeshOp>()))
    mesh.erase();
  module.walk([](dist::ConstrainOp constrain) {
    constrain.replaceAllUsesWith(constrain.getInput());
    constrain.erase();
  });
  for (auto func : module.getOps<func::FuncOp>()) {
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      func.removeArgAttr(i, dist::kShardingAttrName);
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      func.removeResultAttr(
          i, StringAttr::get(func.getContext(), dist::kShardingAttrName));
    func.walk([](Operation *op) { op->removeAttr(dist::kShardingAttrName); });
  }
}

} // namespace cleave::compiler
