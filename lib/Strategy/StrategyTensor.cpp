// strategy-tensor: chooses the dimensions of parameters to split.

#include "StrategyUtils.h"
#include "TensorPlan.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Strategy/Passes.h"

#include "llvm/ADT/StringSwitch.h"

#include <map>

namespace cleave {
#define GEN_PASS_DEF_STRATEGYTENSORPASS
#include "cleave/Strategy/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

/// The gain of sharding a dimension class is the number of FLOPs divided among
/// ranks per byte communicated. A class is not sharded if its gain is less than
/// the largest gain of all classes with communication, divided by this number.
constexpr double kGainRange = 32;
/// A dimension is not sharded if its padded size is more than this many times
/// its size.
constexpr double kMostPadding = 1.5;

struct StrategyTensorPass
    : cleave::impl::StrategyTensorPassBase<StrategyTensorPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<std::string> names(axes.begin(), axes.end());
    if (layout == "1d")
      names = {axis};
    if (failed(checkAxes(module, names)))
      return signalPassFailure();
    scheme = makeScheme(&getContext(), layout, names, batchAxes, sequenceAxes,
                        sequence, savedInput == "full");
    ways = dist::axesSize(mesh.getMesh(), scheme.inner.features);
    if (dist::axesSize(mesh.getMesh(), refs(names)) == 1)
      return;
    // @loss_grad contains the dimensions of the forward and the backward pass.
    // A program for inference has only @forward.
    auto func = module.lookupSymbol<func::FuncOp>(nn::kLossGradFunc);
    if (!func)
      func = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
    if (!func) {
      module.emitError(
          "the module has neither @loss_grad nor @forward to shard");
      return signalPassFailure();
    }
    DimClasses classes(func);
    ParameterPlans plans = planParameters(
        func, classes, choose(classes), scheme, mesh.getMesh(),
        [&](int64_t size, const TensorScheme::List &axes) {
          return padding(size, dist::axesSize(mesh.getMesh(), axes)) <=
                 kMostPadding;
        });
    Colours colours(func, classes, plans, scheme);
    if (sequence && !colours.hasSequence()) {
      func.emitError("@")
          << func.getName()
          << " has no dimension of positions to split over axis '" << axis
          << "': sequence parallelism needs tokens, or an input, of "
          << "shape [batch, sequence, ...]; of several, data.tokens names the "
             "one";
      return signalPassFailure();
    }
    Products products = findProducts(func, plans, scheme, colours);
    if (scheme.pins)
      findPartialGradients(func, plans, scheme, colours, products);
    report(func, plans);
    place(plans);
    if (!scheme.pins)
      return;
    pinProducts(func, mesh, scheme, colours, products);
    for (auto other : module.getOps<func::FuncOp>()) {
      if (other == func || other.isDeclaration() || !readsParameters(other))
        continue;
      DimClasses classes(other);
      Colours colours(other, classes, plans, scheme);
      pinProducts(other, mesh, scheme, colours,
                  findProducts(other, plans, scheme, colours));
    }
  }

  /// Checks that the mesh has all named axes, and that their number is what the
  /// layout requires.
  LogicalResult checkAxes(ModuleOp module, ArrayRef<std::string> names) {
    size_t count = llvm::StringSwitch<size_t>(layout)
                       .Case("1d", 1)
                       .Case("2d", 2)
                       .Cases({"2.5d", "3d"}, 3)
                       .Default(0);
    if (count == 0)
      return module.emitError("unknown layout '")
             << layout << "'; expected 1d, 2d, 2.5d or 3d";
    if (names.size() != count)
      return module.emitError("layout ")
             << layout << " of tensor parallelism takes " << count
             << " axes, found " << names.size();
    for (StringRef name :
         llvm::concat<const std::string>(names, batchAxes, sequenceAxes)) {
      FailureOr<dist::MeshOp> found = meshWithAxis(module, name);
      if (failed(found))
        return failure();
      mesh = *found;
    }
    return success();
  }

  TensorScheme::List refs(ArrayRef<std::string> names) {
    TensorScheme::List list;
    for (const std::string &name : names)
      list.push_back(dist::AxisRefAttr::get(&getContext(), name));
    return list;
  }

  /// Returns whether the function belongs to the model, rather than to the
  /// optimizer update.
  static bool readsParameters(func::FuncOp func) {
    bool gradients = false, parameters = false;
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
      std::optional<Role> role = roleOf(func.getArgAttrDict(arg));
      parameters |= role == Role::Parameter;
      gradients |= role == Role::State;
    }
    return parameters && !gradients && func.getName() != nn::kUpdateFunc;
  }

  static double padding(int64_t size, int64_t ways) {
    return double(dist::tileSize(size, ways) * ways) / size;
  }

  /// Padded size over size of the dimension.
  double padding(const DimClass &dims) const {
    return padding(dims.size, ways);
  }

  SmallVector<const DimClass *> choose(const DimClasses &classes) {
    SmallVector<const DimClass *> chosen;
    std::vector<bool> divided(classes.contractionFlops().size(), false);
    double largest = 0;
    while (true) {
      const DimClass *next = nullptr;
      double nextGain = 0;
      for (const DimClass &dims : classes.classes()) {
        if (!dims.splittable || dims.parameterDims.empty() ||
            padding(dims) > kMostPadding)
          continue;
        int64_t newly = 0;
        for (unsigned contraction : dims.divides)
          if (!divided[contraction])
            newly += classes.contractionFlops()[contraction];
        double gain = double(newly) / std::max<int64_t>(dims.partialBytes, 1);
        if (gain > nextGain)
          next = &dims, nextGain = gain;
      }
      if (!next || nextGain * kGainRange < largest)
        break;
      // Other classes are not compared with one that needs no communication.
      if (next->partialBytes > 0)
        largest = std::max(largest, nextGain);
      chosen.push_back(next);
      for (unsigned contraction : next->divides)
        divided[contraction] = true;
    }
    return chosen;
  }

  /// Emits one diagnostic for all parameters that are not split, and one for
  /// all that get the same padding.
  void report(func::FuncOp func, const ParameterPlans &plans) {
    std::vector<std::string> whole;
    int64_t elements = 0, wholeElements = 0; // of matrices
    std::map<std::pair<int64_t, int64_t>, std::vector<std::string>> padded;
    for (const auto &[name, plan] : plans) {
      if (hasOverride(getOperation(), name))
        continue; // strategy-shard reports it
      bool split = false;
      for (auto [dim, list] : llvm::enumerate(plan.stored)) {
        int64_t parts = dist::axesSize(mesh.getMesh(), list);
        split |= parts > 1;
        int64_t size = plan.type.getDimSize(dim);
        if (size % parts == 0)
          continue;
        std::vector<std::string> &names = padded[{size, parts}];
        if (names.empty() || StringRef(names.back()) != name)
          names.push_back(name.str());
      }
      if (plan.type.getRank() < 2)
        continue;
      elements += plan.type.getNumElements();
      if (split)
        continue;
      wholeElements += plan.type.getNumElements();
      whole.push_back(name.str());
    }
    for (const auto &[sizes, names] : padded)
      reportPadding(func, sizes.first, sizes.second, names);
    // Every rank repeats the work on parameters that are not split. If these
    // have more than a tenth of the elements, this is a warning, otherwise a
    // remark.
    if (!whole.empty())
      (10 * wholeElements > elements ? emitWarning(func.getLoc())
                                     : emitRemark(func.getLoc()))
          << listed(whole) << (whole.size() == 1 ? " stays" : " stay")
          << " whole on the " << ways << " ranks of axis '"
          << scheme.inner.features.front().getName().getValue() << "'"
          << headsThatAreWhole(func);
  }

  /// Returns a text such as "; 6 heads of keys (5 layers) do not divide by
  /// them". In the message, "them" refers to the ranks.
  std::string headsThatAreWhole(func::FuncOp func) {
    int64_t layers = 0, heads = 0;
    func.walk([&](nn::AttentionOp attention) {
      int64_t keys = attention.getQuery().getType().getDimSize(2);
      if (keys % ways == 0)
        return;
      ++layers;
      heads = keys;
    });
    if (layers == 0)
      return "";
    return "; " + std::to_string(heads) + (heads == 1 ? " head" : " heads") +
           " of keys (" + std::to_string(layers) +
           (layers == 1 ? " layer)" : " layers)") +
           (heads == 1 ? " does" : " do") + " not divide by them";
  }

  /// Reports the padding of dimensions of size `size` that are split over
  /// `parts` ranks. It is a warning if more than 10 % of the elements are
  /// padding, otherwise a remark.
  void reportPadding(func::FuncOp func, int64_t size, int64_t parts,
                     ArrayRef<std::string> names) {
    int64_t whole = dist::tileSize(size, parts) * parts;
    bool isMuch = 10 * (whole - size) > whole;
    InFlightDiagnostic said =
        isMuch ? emitWarning(func.getLoc()) : emitRemark(func.getLoc());
    // Counts the layers whose attention has `size` KV heads, or `size` query
    // heads. If there are any, the message calls the dimension heads and states
    // this number of layers.
    int64_t layers = 0;
    func.walk([&](nn::AttentionOp attention) {
      ArrayRef<int64_t> shape = attention.getQuery().getType().getShape();
      layers += shape[2] == size || shape[2] * shape[3] == size;
    });
    if (layers)
      said << size << " heads over " << parts << " ranks";
    else
      said << "a dimension of " << size << " over " << parts << " ranks ("
           << listed(names) << ")";
    said << (layers ? " are" : " is") << " padded to " << whole << ": "
         << percentOf(whole - size, whole) << " of it is wasted";
    if (layers)
      said << " (" << layers << (layers == 1 ? " layer)" : " layers)");
  }

  /// Returns a share for messages, such as "4 %". A share that would be rounded
  /// to 0 is "under 1 %".
  static std::string percentOf(int64_t part, int64_t whole) {
    int64_t percent = (100 * part + whole / 2) / whole;
    return percent == 0 && part > 0 ? "under 1 %"
                                    : std::to_string(percent) + " %";
  }

  /// Returns text like "parameter 'a'", or "12 parameters, 'a', 'b', 'c', ...".
  static std::string listed(ArrayRef<std::string> names) {
    if (names.size() == 1)
      return "parameter '" + names[0] + "'";
    std::string text = std::to_string(names.size()) + " parameters, ";
    for (size_t i = 0; i < std::min<size_t>(3, names.size()); ++i)
      text += (i ? ", '" : "'") + names[i] + "'";
    return text + (names.size() > 3 ? ", ..." : "");
  }

  void place(const ParameterPlans &plans) {
    auto ofParameter = [&](StringRef name, bool isGradient) {
      auto plan = plans.find(name);
      if (plan == plans.end())
        return dist::ShardingAttr();
      TensorScheme::List partial;
      if (isGradient)
        partial = plan->second.partial;
      return closedSharding(mesh, plan->second.stored, partial);
    };
    // Returns the axes of the tensor-parallel layout that split the batch. A
    // sum over the batch is partial over these axes.
    auto own = [&](const TensorScheme::List &batch) {
      TensorScheme::List list = batch;
      list.erase(list.begin(), list.begin() + scheme.samples.size());
      return list;
    };
    setBoundaryShardings(
        getOperation(),
        [&](RankedTensorType type, DictionaryAttr attrs) -> dist::ShardingAttr {
          std::optional<Role> role = roleOf(attrs);
          StringRef name = nameOf(attrs);
          int64_t rank = type.getRank();
          if (role == Role::Parameter || role == Role::Gradient ||
              role == Role::Tap)
            return ofParameter(name, role == Role::Gradient);
          if (role == Role::State)
            return ofParameter(name.rsplit('.').first, false);
          if (!scheme.pins)
            return {};
          if (role == Role::Loss && !own(scheme.inner.batch).empty())
            return closedSharding(mesh, Axes(), own(scheme.inner.batch));
          if (role == Role::Accumulator && !own(scheme.inner.batch).empty())
            return closedSharding(mesh, Axes(rank), own(scheme.inner.batch));
          if (role == Role::Weight && !own(scheme.inputs).empty())
            return closedSharding(mesh, Axes(), own(scheme.inputs));
          std::optional<int64_t> batch = nn::batchDimOf(attrs, rank);
          if (!holdsSamples(role) || role == Role::Output || rank == 0)
            return {};
          Axes axes(rank);
          if (batch)
            addAxes(axes, *batch, own(scheme.inputs));
          return closedSharding(mesh, axes);
        });
  }

  dist::MeshOp mesh;
  TensorScheme scheme;
  int64_t ways = 1;
};

} // namespace
