// nn-add-optimizer: adds @update, which updates the parameters with the
// gradients of @loss_grad, and @init_state, which computes the initial
// optimizer state.

#include "BuildFunctions.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Support/ValueUtils.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <map>

namespace cleave {
#define GEN_PASS_DEF_ADDOPTIMIZERPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

/// A trained parameter, and the positions of its arguments in @update.
struct Trained {
  StringRef name;
  RankedTensorType type;
  DictionaryAttr attrs;
  double decay;
  int64_t began;     // number of the parameter's set (see readSets)
  unsigned firstArg; // index of its argument in @update; its state follows

  /// Returns the pipeline stages that share this parameter; null if only one
  /// stage has it.
  DenseI64ArrayAttr stages() const {
    auto all = attrs.getAs<DenseI64ArrayAttr>(pipe::kStagesAttr);
    return all && all.size() > 1 ? all : DenseI64ArrayAttr();
  }
};

struct AddOptimizerPass : cleave::impl::AddOptimizerPassBase<AddOptimizerPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto grad = module.lookupSymbol<func::FuncOp>(nn::kLossGradFunc);
    if (!grad || grad.isExternal()) {
      module.emitError("the module has no function @loss_grad with gradients");
      return signalPassFailure();
    }
    if (optimizer != "adamw" && optimizer != "sgd") {
      grad.emitError("optimizer '")
          << optimizer << "' is unknown; expected adamw or sgd";
      return signalPassFailure();
    }
    if (apart && clipNorm != 0) {
      grad.emitError("updates after each microbatch have no norm of all "
                     "gradients, which clip-norm reads");
      return signalPassFailure();
    }
    stage = pipe::stageOf(module);
    auto scalar = module->getAttrOfType<TypeAttr>(pipe::kScalarAttr);
    if (stage && (!scalar || !isa<RankedTensorType>(scalar.getValue()))) {
      module.emitError(
          "the module is a stage without pipe.scalar, the type of the loss");
      return signalPassFailure();
    }
    FailureOr<RankedTensorType> loss =
        stage ? cast<RankedTensorType>(scalar.getValue()) : lossTypeOf(grad);
    if (failed(loss))
      return signalPassFailure();
    real = *loss;
    FailureOr<SmallVector<Trained>> parameters = collect(grad);
    if (failed(parameters))
      return signalPassFailure();
    buildUpdate(grad, *parameters);
    buildInitState(grad, *parameters);
  }

  SmallVector<StringRef> stateNames() {
    return optimizer == "adamw" ? SmallVector<StringRef>{"m", "v"}
                                : SmallVector<StringRef>{"velocity"};
  }

  FailureOr<SmallVector<Trained>> collect(func::FuncOp grad) {
    SmallVector<Trained> parameters;
    FailureOr<llvm::StringMap<int64_t>> sets = readSets(grad);
    // A pattern of parameters without weight decay that matches nothing is an
    // error only for a whole model. In a pipeline stage, the match may be in
    // another stage.
    if (failed(sets) || (!stage && failed(checkNoDecay(grad, noDecay))))
      return failure();
    for (unsigned arg = 0; arg < grad.getNumArguments(); ++arg) {
      if (roleOf(grad, arg) != nn::Role::Parameter)
        continue;
      StringRef name = nameOf(grad, arg);
      auto type = cast<RankedTensorType>(grad.getArgumentTypes()[arg]);
      // The gradient norm, the learning rate and the loss are scalars of one
      // type, so all parameters must have this type.
      if (type.getElementType() != real.getElementType())
        return grad.emitError("parameter '")
               << name << "' is " << type.getElementType() << ", but the loss "
               << real.getElementType()
               << ": trained parameters have the type of the loss; store it as "
               << real.getElementType()
               << " and cast it in the model, or name it in train.frozen";
      DictionaryAttr attrs = grad.getArgAttrDict(arg);
      int64_t rank =
          nn::fileRankOf(attrs, nn::fileShapeOf(attrs, type.getShape()).size());
      FailureOr<bool> exempt = matchesAny(grad, noDecay, attrs);
      if (failed(exempt))
        return failure();
      FailureOr<int64_t> set = setOf(grad, *sets, attrs);
      if (failed(set))
        return failure();
      parameters.push_back({name, type, attrs,
                            rank >= 2 && !*exempt ? weightDecay : 0.0, *set,
                            0});
      if (DenseI64ArrayAttr sharing = parameters.back().stages();
          sharing && apart)
        return grad.emitError("parameter '")
               << name << "' is shared by stages " << sharing.asArrayRef()
               << ", whose updates after each microbatch would differ; choose "
                  "a schedule that updates once in a step, or a model without "
                  "tied parameters";
    }
    if (parameters.empty() && !stage)
      return grad.emitError("@loss_grad has no parameter to train");
    return parameters;
  }

  DictionaryAttr attrs(StringRef name, nn::Role role) {
    return portAttrs(&getContext(), name, role);
  }

  Location named(const Twine &name) {
    return NameLoc::get(StringAttr::get(&getContext(), name));
  }

  /// Parameters that began to train at the same step form a set and share a
  /// step count. Reads the sets from the option `began` (train.began). Returns
  /// the number of the set for each parameter that the option names; all other
  /// parameters are in set 0.
  FailureOr<llvm::StringMap<int64_t>> readSets(func::FuncOp grad) {
    llvm::StringSet<> names;
    for (unsigned arg = 0; arg < grad.getNumArguments(); ++arg)
      if (roleOf(grad, arg) == nn::Role::Parameter ||
          grad.getArgAttr(arg, nn::kFrozenAttr))
        for (StringRef name : nn::fileNamesOf(grad.getArgAttrDict(arg)))
          names.insert(name);
    llvm::StringMap<int64_t> sets;
    for (const std::string &entry : began) {
      auto [number, name] = StringRef(entry).split(':');
      int64_t set = 0;
      if (number.getAsInteger(10, set) || set < 1)
        return grad.emitError(
                   "option began: expected SET:NAME with a set of at "
                   "least 1, found '")
               << entry << "'";
      // A name without a match is no error in a pipeline stage, since the
      // parameter may be in another stage.
      if (!stage && !names.contains(name))
        return grad.emitError("train.began names '")
               << name << "', which is no parameter of the model";
      sets[name] = set;
    }
    return sets;
  }

  /// Returns the number of a parameter's set, that is, of the group of
  /// parameters that began to train at the same step. A parameter may stack
  /// several tensors of the model file (equal layers); they must all be in the
  /// same set.
  FailureOr<int64_t> setOf(func::FuncOp grad,
                           const llvm::StringMap<int64_t> &sets,
                           DictionaryAttr attrs) {
    SmallVector<StringRef, 1> names = nn::fileNamesOf(attrs);
    int64_t set = sets.lookup(names.front());
    for (StringRef other : names)
      if (sets.lookup(other) != set)
        return grad.emitError("'")
               << names.front() << "' and '" << other
               << "' are updated together (equal layers), but train.began "
                  "says that they began at different steps; freeze or train "
                  "them together";
    return set;
  }

  /// The AdamW step count of one set of parameters, which began to train at the
  /// same step.
  struct Count {
    unsigned arg = 0;
    Value next; // including the current update
  };

  RankedTensorType countType() {
    return RankedTensorType::get({}, IntegerType::get(&getContext(), 64));
  }

  static std::string countName(int64_t set) {
    return "count." + std::to_string(set);
  }

  /// Returns the attributes of a tensor of the optimizer state. For a moment of
  /// AdamW they include the name of the step count that corrects its bias.
  DictionaryAttr stateAttrs(const Trained &parameter, StringRef slot) {
    NamedAttrList list(
        attrs((parameter.name + "." + slot).str(), nn::Role::State));
    if (optimizer == "adamw")
      list.append(nn::kCountAttr,
                  StringAttr::get(&getContext(), countName(parameter.began)));
    return list.getDictionary(&getContext());
  }

  /// Returns an entry for each set of parameters that has its own AdamW step
  /// count.
  std::map<int64_t, Count> countsOf(ArrayRef<Trained> parameters) {
    std::map<int64_t, Count> counts;
    if (optimizer == "adamw")
      for (const Trained &parameter : parameters)
        counts[parameter.began];
    return counts;
  }

  /// Sums over all pipeline stages of the model: the squares of the gradients,
  /// the loss sum, and the weight of the loss.
  struct Sums {
    Value squares, loss, weight;
  };

  /// @update under construction: the positions of its arguments and the results
  /// so far.
  struct Update {
    func::FuncOp func;
    std::map<int64_t, Count> counts;
    unsigned firstGradient = 0, loss = 0, lr = 0; // arguments
    bool hasLoss = false;                         // if so, its weight follows
    SmallVector<Value> results;
    SmallVector<DictionaryAttr> resultAttrs;

    void add(Value value, DictionaryAttr attrs) {
      results.push_back(value);
      resultAttrs.push_back(attrs);
    }
  };

  void buildUpdate(func::FuncOp grad, MutableArrayRef<Trained> parameters) {
    Update update = declareUpdate(grad.getLoc(), parameters);
    func::FuncOp func = update.func;
    OpBuilder b(func.getBody().front().getTerminator());
    SmallVector<Value> gradients(
        func.getArguments().slice(update.firstGradient, parameters.size()));
    Sums sums;
    if (update.hasLoss) {
      sums.loss = func.getArgument(update.loss);
      sums.weight = func.getArgument(update.loss + 1);
    }
    Value norm, scale, finite;
    if (apart) {
      scale = nn::createSplat(b, grad.getLoc(), real, 1.0);
    } else {
      if (stage)
        sumOverStages(b, parameters, gradients, sums);
      else
        sums.squares = squaresOf(b, named("grad_norm"), gradients);
      std::tie(norm, scale) = normAndScale(b, named("grad_norm"), sums);
      finite = isFinite(b, named("finite"), norm, sums.loss);
    }
    addSteps(b, update, parameters, gradients, scale, finite);
    auto addResult = [&](Value value, StringRef name, nn::Role role) {
      update.add(value, attrs(name, role));
    };
    if (!apart) {
      addResult(sums.loss, "loss", nn::Role::Metric);
      addResult(sums.weight, "weight", nn::Role::Metric);
      addResult(norm, "grad_norm", nn::Role::Metric);
    }
    if (finite)
      addResult(arith::UIToFPOp::create(b, named("finite"), real, finite),
                "finite", nn::Role::Metric);
    if (tapGradients)
      for (auto [index, parameter] : llvm::enumerate(parameters))
        addResult(gradients[index], parameter.name, nn::Role::Tap);
    setResults(func, update.results, update.resultAttrs);
  }

  /// Creates @update with its arguments and an empty body.
  Update declareUpdate(Location loc, MutableArrayRef<Trained> parameters) {
    Update update;
    SmallVector<Type> argTypes;
    SmallVector<DictionaryAttr> argAttrs;
    auto addArg = [&](Type type, DictionaryAttr attr) {
      argTypes.push_back(type);
      argAttrs.push_back(attr);
      return static_cast<unsigned>(argTypes.size() - 1);
    };
    for (Trained &parameter : parameters) {
      parameter.firstArg = addArg(parameter.type, parameter.attrs);
      for (StringRef state : stateNames())
        addArg(parameter.type, stateAttrs(parameter, state));
    }
    update.counts = countsOf(parameters);
    for (auto &[set, count] : update.counts)
      count.arg = addArg(countType(), attrs(countName(set), nn::Role::Count));
    update.firstGradient = argTypes.size();
    for (Trained &parameter : parameters)
      addArg(parameter.type, attrs(parameter.name, nn::Role::Gradient));
    update.hasLoss = !apart && (!stage || stage->stage == stage->stages - 1);
    if (update.hasLoss) {
      update.loss = addArg(real, attrs("loss", nn::Role::Loss));
      addArg(real, attrs("weight", nn::Role::Weight));
    }
    update.lr = addArg(real, attrs("lr", nn::Role::LearningRate));

    auto b = OpBuilder::atBlockEnd(getOperation().getBody());
    update.func = func::FuncOp::create(b, loc, nn::kUpdateFunc,
                                       b.getFunctionType(argTypes, {}));
    update.func.setAllArgAttrs(argAttrs);
    b.setInsertionPointToStart(update.func.addEntryBlock());
    func::ReturnOp::create(b, loc);
    // Arguments get locations with their names, so that collectives on a
    // parameter or gradient are reported under its name.
    for (auto [argument, attrs] :
         llvm::zip(update.func.getArguments(), argAttrs))
      argument.setLoc(NameLoc::get(attrs.getAs<StringAttr>(nn::kNameAttr)));
    return update;
  }

  /// Adds the optimizer step of each parameter. If `finite` is false at run
  /// time, the parameters and the optimizer state keep their old values.
  void addSteps(OpBuilder &b, Update &update, ArrayRef<Trained> parameters,
                ArrayRef<Value> gradients, Value scale, Value finite) {
    func::FuncOp func = update.func;
    auto addResult = [&](Location loc, Value value, unsigned arg) {
      if (finite)
        value = choose(b, loc, finite, value, func.getArgument(arg));
      update.add(value, func.getArgAttrDict(arg));
    };
    for (auto &[set, count] : update.counts)
      count.next = arith::AddIOp::create(
          b, named(countName(set)), func.getArgument(count.arg),
          nn::createSplat(b, named(countName(set)), countType(), 1));
    for (auto [index, parameter] : llvm::enumerate(parameters)) {
      unsigned first = parameter.firstArg;
      ValueRange updated =
          step(b, named(parameter.name), parameter,
               func.getArguments().slice(first, 1 + stateNames().size()),
               gradients[index], scale, func.getArgument(update.lr),
               optimizer == "adamw" ? update.counts.at(parameter.began).next
                                    : Value());
      for (auto [offset, value] : llvm::enumerate(updated))
        addResult(named(parameter.name), value, first + offset);
    }
    for (auto &[set, count] : update.counts)
      addResult(named(countName(set)), count.next, count.arg);
  }

  /// Returns the sum of the squares of all elements of the gradients; null if
  /// there are no gradients.
  Value squaresOf(OpBuilder &b, Location loc, ValueRange gradients) {
    Value squares;
    for (Value gradient : gradients) {
      auto type = typeOf(gradient);
      Value square = arith::MulFOp::create(b, loc, gradient, gradient);
      Value sum = b.createOrFold<nn::ReduceOp>(
          loc, nn::Combiner::Sum, square,
          llvm::to_vector(llvm::seq<int64_t>(type.getRank())));
      squares = squares ? arith::AddFOp::create(b, loc, squares, sum) : sum;
    }
    return squares;
  }

  /// Adds the sums over pipeline stages. The gradient of a parameter that
  /// several stages share is replaced by its sum over these stages. The squares
  /// of all gradients (for the norm), the loss and its weight are summed over
  /// all stages, in `sums`. The squares of a shared parameter's gradient are
  /// counted only once, by the first stage that has the parameter.
  void sumOverStages(OpBuilder &b, ArrayRef<Trained> parameters,
                     MutableArrayRef<Value> gradients, Sums &sums) {
    SmallVector<Value> counted;
    for (auto [parameter, gradient] : llvm::zip_equal(parameters, gradients)) {
      DenseI64ArrayAttr sharing = parameter.stages();
      if (sharing)
        gradient = pipe::SumStagesOp::create(b, named(parameter.name), gradient,
                                             sharing)
                       .getResult(0);
      if (!sharing || sharing.asArrayRef().front() == stage->stage)
        counted.push_back(gradient);
    }
    Location loc = named("grad_norm");
    sums.squares = squaresOf(b, loc, counted);
    SmallVector<Value> own = {sums.squares, sums.loss, sums.weight};
    for (Value &value : own)
      if (!value)
        value = nn::createSplat(b, loc, real, 0.0);
    auto whole = pipe::SumStagesOp::create(b, loc, own, DenseI64ArrayAttr());
    sums = {whole.getResult(0), whole.getResult(1), whole.getResult(2)};
  }

  /// Returns the norm of the mean gradient, and the factor that turns a
  /// gradient of the loss sum into the gradient that the optimizer reads.
  std::pair<Value, Value> normAndScale(OpBuilder &b, Location loc,
                                       const Sums &sums) {
    auto splat = [&](double value) {
      return nn::createSplat(b, loc, real, value);
    };
    Value inverse = arith::DivFOp::create(b, loc, splat(1.0), sums.weight);
    Value norm = arith::MulFOp::create(
        b, loc, math::SqrtOp::create(b, loc, sums.squares), inverse);
    if (clipNorm == 0)
      return {norm, inverse};
    Value ratio =
        arith::DivFOp::create(b, loc, splat(clipNorm),
                              arith::AddFOp::create(b, loc, norm, splat(1e-6)));
    Value factor = arith::MinimumFOp::create(b, loc, ratio, splat(1.0));
    return {norm, arith::MulFOp::create(b, loc, inverse, factor)};
  }

  /// Returns whether the loss and all gradients are finite. It suffices to test
  /// the norm for the gradients, since a NaN or an infinity in any of them
  /// makes the norm non-finite.
  Value isFinite(OpBuilder &b, Location loc, Value norm, Value loss) {
    auto element = cast<FloatType>(real.getElementType());
    double largest =
        APFloat::getLargest(element.getFloatSemantics()).convertToDouble();
    Value bound = nn::createSplat(b, loc, real, largest);
    auto below = [&](Value value) -> Value {
      return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLE,
                                   math::AbsFOp::create(b, loc, value), bound);
    };
    return arith::AndIOp::create(b, loc, below(norm), below(loss));
  }

  /// `updated` if `condition` holds, else `old`.
  Value choose(OpBuilder &b, Location loc, Value condition, Value updated,
               Value old) {
    auto type = typeOf(old);
    Value all = condition;
    if (type.getRank())
      all = nn::BroadcastOp::create(
          b, loc, RankedTensorType::get(type.getShape(), b.getI1Type()),
          condition, ArrayRef<int64_t>());
    return arith::SelectOp::create(b, loc, all, updated, old);
  }

  /// Returns the new parameter and its new optimizer state.
  ValueRange step(OpBuilder &b, Location loc, const Trained &parameter,
                  ValueRange old, Value gradient, Value scale, Value lr,
                  Value count) {
    auto f64 = [&](double value) { return b.getF64FloatAttr(value); };
    Type type = parameter.type;
    if (optimizer == "sgd")
      return nn::SgdOp::create(b, loc, type, type, old[0], old[1], gradient,
                               scale, lr, f64(momentum), f64(parameter.decay))
          .getResults();
    return nn::AdamWOp::create(b, loc, type, type, type, old[0], old[1], old[2],
                               gradient, scale, lr, count, f64(beta1),
                               f64(beta2), f64(epsilon), f64(parameter.decay))
        .getResults();
  }

  void buildInitState(func::FuncOp grad, ArrayRef<Trained> parameters) {
    OpBuilder b(&getContext());
    b.setInsertionPointToEnd(getOperation().getBody());
    auto func = func::FuncOp::create(b, grad.getLoc(), nn::kInitStateFunc,
                                     b.getFunctionType({}, {}));
    b.setInsertionPointToStart(func.addEntryBlock());
    SmallVector<Value> results;
    SmallVector<DictionaryAttr> resultAttrs;
    for (const Trained &parameter : parameters)
      for (StringRef state : stateNames()) {
        results.push_back(
            nn::createSplat(b, named(parameter.name), parameter.type, 0.0));
        resultAttrs.push_back(stateAttrs(parameter, state));
      }
    for (auto &[set, count] : countsOf(parameters)) {
      results.push_back(
          nn::createSplat(b, named(countName(set)), countType(), 0));
      resultAttrs.push_back(attrs(countName(set), nn::Role::Count));
    }
    func::ReturnOp::create(b, grad.getLoc());
    setResults(func, results, resultAttrs);
  }

  std::optional<pipe::StageOf> stage; // set if the module is a pipeline stage
  RankedTensorType real;              // type of the loss
};

} // namespace

LogicalResult cleave::checkNoDecay(func::FuncOp func,
                                   ArrayRef<std::string> patterns) {
  return reportIdle(func, patterns, "train.no_decay", true);
}
