// strategy-shard: user-defined shardings of parameters.

#include "StrategyUtils.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Interfaces/MatchNames.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Strategy/Passes.h"

#include "llvm/ADT/MapVector.h"

namespace cleave {
#define GEN_PASS_DEF_STRATEGYSHARDPASS
#include "cleave/Strategy/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

/// One entry of `nn.shard`.
struct Override {
  StringRef match;
  SmallVector<dist::AxisListAttr> dims;
  SmallVector<int64_t> view;
};

template <typename Range> std::string join(const Range &sizes) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << '[';
  llvm::interleaveComma(sizes, out);
  out << ']';
  return text;
}

struct StrategyShardPass
    : cleave::impl::StrategyShardPassBase<StrategyShardPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto list = module->getAttrOfType<ArrayAttr>(kShardAttr);
    if (!list)
      return;
    module->removeAttr(kShardAttr);
    FailureOr<dist::MeshOp> found = onlyMesh(module);
    if (failed(found) || failed(read(list)))
      return signalPassFailure();
    mesh = *found;
    llvm::MapVector<StringRef, Axes> chosen;
    for (auto func : module.getOps<func::FuncOp>())
      for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
        DictionaryAttr attrs = func.getArgAttrDict(arg);
        if (roleOf(attrs) != Role::Parameter || chosen.count(nameOf(attrs)))
          continue;
        FailureOr<std::optional<Axes>> axes =
            choose(func.getLoc(),
                   cast<RankedTensorType>(func.getArgumentTypes()[arg]), attrs);
        if (failed(axes))
          return signalPassFailure();
        if (!*axes)
          continue;
        chosen[nameOf(attrs)] = **axes;
        remarkOnPadding(func.getLoc(), nameOf(attrs),
                        cast<RankedTensorType>(func.getArgumentTypes()[arg]),
                        **axes, mesh.getMesh());
      }
    // A stage does not have all parameters, so for a pipeline the patterns are
    // checked on the whole model, before it is cut into stages.
    auto matches = llvm::map_to_vector(
        overrides, [](const Override &entry) { return entry.match.str(); });
    if (!module->hasAttr(kStageAttr) &&
        failed(checkShardMatches(module, matches)))
      return signalPassFailure();
    place(chosen);
  }

  static FailureOr<dist::MeshOp> onlyMesh(ModuleOp module) {
    auto meshes = llvm::to_vector(module.getOps<dist::MeshOp>());
    if (meshes.size() == 1)
      return meshes.front();
    return module.emitError("expected one dist.mesh, found ") << meshes.size();
  }

  LogicalResult read(ArrayAttr list) {
    for (Attribute attr : list) {
      auto entry = cast<nn::ShardAttr>(attr);
      if (!llvm::all_of(entry.getDims(), llvm::IsaPred<dist::AxisListAttr>))
        return getOperation().emitError("nn.shard: expected dims, a list of "
                                        "#dist.axes, found ")
               << attr;
      Override &made = overrides.emplace_back();
      made.match = entry.getMatch();
      for (Attribute dim : entry.getDims())
        made.dims.push_back(cast<dist::AxisListAttr>(dim));
      if (DenseI64ArrayAttr view = entry.getView())
        made.view = llvm::to_vector(view.asArrayRef());
    }
    return success();
  }

  /// Returns the axes of the [[shard]] entry that matches the parameter. It is
  /// an error if several entries match and their axes differ.
  FailureOr<std::optional<Axes>> choose(Location loc, RankedTensorType type,
                                        DictionaryAttr attrs) {
    std::optional<Axes> axes;
    const Override *first = nullptr;
    for (const Override &entry : overrides) {
      FailureOr<bool> match = matches(loc, type, attrs, entry);
      if (failed(match))
        return failure();
      if (!*match)
        continue;
      FailureOr<Axes> here = axesOfEntry(loc, type, attrs, entry);
      if (failed(here))
        return failure();
      if (first && *axes != *here)
        return emitError(loc, "parameter '")
               << nameOf(attrs) << "': [[shard]] match = '" << first->match
               << "' asks for " << closedSharding(mesh, *axes)
               << " and [[shard]] match = '" << entry.match << "' for "
               << closedSharding(mesh, *here) << "; make the patterns distinct";
      axes = *here;
      first = &entry;
    }
    if (axes && failed(verifySubAxes(loc, nameOf(attrs), *first, *axes)))
      return failure();
    return axes;
  }

  /// Returns whether the [[shard]] entry matches a parameter. It is an error if
  /// it matches some, but not all, of the model file's tensors that are stacked
  /// into this parameter.
  FailureOr<bool> matches(Location loc, RankedTensorType type,
                          DictionaryAttr attrs, const Override &entry) {
    StringRef with, without;
    for (StringRef name : nn::fileNamesOf(attrs))
      (matchesWhole(entry.match, name) ? with : without) = name;
    if (with.empty() || without.empty())
      return !with.empty();
    return emitError(loc) << "[[shard]] match = '" << entry.match
                          << "' matches '" << with << "' and not '" << without
                          << "', which are experts of one layer and laid out "
                             "as one tensor "
                          << join(type.getShape())
                          << "; match all of its experts, or none";
  }

  /// Checks that all sub-axes of a mesh axis belong to one factorization of the
  /// axis.
  LogicalResult verifySubAxes(Location loc, StringRef parameter,
                              const Override &entry, const Axes &axes) {
    std::string what = ("parameter '" + parameter + "' ([[shard]] match = '" +
                        entry.match + "')")
                           .str();
    for (ArrayRef<dist::AxisRefAttr> dim : axes)
      for (dist::AxisRefAttr axis : dim) {
        if (axis.isWhole() || !subAxes.try_emplace(axis, what).second)
          continue;
        for (const auto &[other, whatOther] : subAxes)
          if (dist::crosses(mesh.getMesh(), other, axis))
            return emitError(loc) << dist::explainCrossing(
                       mesh.getMesh(), other, whatOther, axis, what);
      }
    return success();
  }

  /// Returns the axes of a [[shard]] entry, translated from the shape that the
  /// user sees to the parameter's shape in the program.
  FailureOr<Axes> axesOfEntry(Location loc, RankedTensorType type,
                              DictionaryAttr attrs, const Override &entry) {
    std::string what = ("parameter '" + nameOf(attrs) +
                        "', [[shard]] match = '" + entry.match + "': ")
                           .str();
    nn::ViewAttr fileView = nn::viewOf(attrs);
    // `file` is the parameter's shape in the model file. `seen` is its shape in
    // the program, with dimensions in the order of the model file.
    SmallVector<int64_t> file(type.getShape()), seen(type.getShape());
    ArrayRef<int64_t> permutation;
    if (fileView && fileView.getPermutation())
      permutation = fileView.getPermutation();
    for (auto [to, from] : llvm::enumerate(permutation))
      seen[from] = type.getDimSize(to);
    if (permutation.empty() == false)
      file = seen;
    if (fileView)
      file = llvm::to_vector(fileView.getShape().asArrayRef());
    ArrayRef<int64_t> spoken = entry.view.empty() ? file : entry.view;
    if (entry.dims.size() != spoken.size())
      return emitError(loc) << what << "dims has " << entry.dims.size()
                            << " entries, expected " << spoken.size()
                            << ", one for each dimension of " << join(spoken);
    if (llvm::product_of(spoken) != llvm::product_of(seen) ||
        !nests(file, spoken))
      return emitError(loc)
             << what << "view " << join(spoken)
             << " does not cut the dimensions of the file's " << join(file);
    dist::MeshAttr meshAttr = mesh.getMesh();
    Axes asked;
    for (dist::AxisListAttr list : entry.dims)
      asked.emplace_back(list.getAxes().begin(), list.getAxes().end());
    if (failed(dist::verifySharding(
            [&] { return emitError(loc) << what; }, closedSharding(mesh, asked),
            RankedTensorType::get(spoken, type.getElementType()), meshAttr)))
      return failure();
    FailureOr<Axes> cut = translate(loc, what, spoken, asked, seen);
    if (failed(cut) || permutation.empty())
      return cut;
    Axes permuted(type.getRank());
    for (auto [to, from] : llvm::enumerate(permutation))
      permuted[to] = (*cut)[from];
    return permuted;
  }

  /// Returns whether each size in `coarse` is a product of consecutive sizes in
  /// `fine`.
  static bool nests(ArrayRef<int64_t> coarse, ArrayRef<int64_t> fine) {
    size_t at = 0;
    for (int64_t size : coarse) {
      int64_t made = 1;
      while (at < fine.size() && (made < size || fine[at] == 1))
        made *= fine[at++];
      if (made != size)
        return false;
    }
    return at == fine.size();
  }

  /// A [[shard]] entry gives the mesh axes `asked` for the dimensions of a
  /// tensor of shape `from`. Returns the corresponding axes for the dimensions
  /// of shape `to`, which the tensor has in the program. Both shapes list the
  /// elements in the same, row-major order.
  FailureOr<Axes> translate(Location loc, const std::string &what,
                            ArrayRef<int64_t> from, const Axes &asked,
                            ArrayRef<int64_t> to) {
    if (from == to)
      return asked;
    auto refuse = [&](size_t dim) -> FailureOr<Axes> {
      InFlightDiagnostic error = emitError(loc);
      error << what << "dimension " << dim << " of " << join(from)
            << " cannot be split over ";
      llvm::interleaveComma(asked[dim], error, [&](dist::AxisRefAttr axis) {
        error << "'" << axis.getName().getValue() << "'";
      });
      return error << ": the program sees the tensor as " << join(to)
                   << "; give that as view, and a dimension of it";
    };
    // Splits the dimensions of both shapes into their common divisors, major
    // first, as the sharding rule of a reshape does.
    struct Part {
      size_t dim;
      int64_t size;
    };
    SmallVector<SmallVector<Part>> parts(from.size());
    size_t j = 0;
    int64_t left = to.empty() ? 1 : to[0];
    for (size_t i = 0; i < from.size(); ++i)
      for (int64_t size = from[i]; size > 1;) {
        while (left == 1 && j + 1 < to.size())
          left = to[++j];
        int64_t common = std::min(size, left);
        if (common < 2 || size % common || left % common)
          return refuse(i);
        parts[i].push_back({j, common});
        size /= common;
        left /= common;
      }
    Axes axes(to.size());
    // A dimension is the product of its common divisors (see above). True for a
    // dimension of `to` with a divisor that is not split into single elements:
    // then no divisor minor to it may be split, since the tiles of the
    // dimension would not be contiguous.
    SmallVector<bool> blocked(to.size(), false);
    for (size_t i = 0; i < from.size(); ++i) {
      bool alone = parts[i].size() == 1 && to[parts[i][0].dim] == from[i];
      for (dist::AxisRefAttr axis : asked[i]) {
        Part *part =
            llvm::find_if(parts[i], [](const Part &p) { return p.size > 1; });
        int64_t ways = dist::axisSize(mesh.getMesh(), axis);
        if (part == parts[i].end() || blocked[part->dim] ||
            (!alone && part->size % ways != 0))
          return refuse(i);
        axes[part->dim].push_back(axis);
        if (!alone)
          part->size /= ways;
      }
      for (const Part &part : parts[i])
        if (part.size > 1)
          blocked[part.dim] = true;
    }
    return axes;
  }

  void place(const llvm::MapVector<StringRef, Axes> &chosen) {
    setBoundaryShardings(
        getOperation(),
        [&](RankedTensorType, DictionaryAttr attrs) -> dist::ShardingAttr {
          std::optional<Role> role = roleOf(attrs);
          StringRef name = nameOf(attrs);
          if (role == Role::State)
            name = name.rsplit('.').first;
          else if (role != Role::Parameter && role != Role::Gradient &&
                   role != Role::Tap)
            return {};
          auto it = chosen.find(name);
          if (it == chosen.end())
            return {};
          SmallVector<dist::AxisRefAttr> partial;
          if (dist::ShardingAttr given = shardingOf(attrs))
            for (dist::AxisRefAttr axis : given.getPartial())
              if (llvm::none_of(it->second, [&](auto &list) {
                    return llvm::any_of(list, [&](dist::AxisRefAttr other) {
                      return dist::overlaps(mesh.getMesh(), axis, other);
                    });
                  }))
                partial.push_back(axis);
          return closedSharding(mesh, it->second, partial);
        });
  }

  dist::MeshOp mesh;
  SmallVector<Override> overrides;
  /// Each sub-axis that a [[shard]] entry names, with a text that names the
  /// first parameter that the sub-axis splits.
  llvm::MapVector<dist::AxisRefAttr, std::string> subAxes;
};

} // namespace

LogicalResult cleave::checkShardMatches(ModuleOp module,
                                        ArrayRef<std::string> matches) {
  llvm::MapVector<StringRef, DictionaryAttr> parameters;
  for (auto func : module.getOps<func::FuncOp>())
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg)
      if (DictionaryAttr attrs = func.getArgAttrDict(arg);
          roleOf(attrs) == Role::Parameter)
        parameters.insert({nameOf(attrs), attrs});
  auto all =
      llvm::map_to_vector(parameters, [](auto &entry) { return entry.second; });
  for (StringRef match : matches)
    if (llvm::none_of(parameters, [&](auto &entry) {
          return matchesWhole(match, entry.first);
        }))
      return module.emitError("[[shard]] match = '")
             << match << "'" << describeNoMatch(match, all);
  return success();
}
