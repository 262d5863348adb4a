// Every value as a result: which one is the first that differs?

#include "FaultPlaces.h"
#include "cleave/Check/Check.h"

#include "cleave/Dialect/NN/IR/NN.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

constexpr StringLiteral kTapPrefix = "value ";

bool isTap(const Port &port) {
  return StringRef(port.name).starts_with(kTapPrefix);
}

} // namespace

void check::tapAllValues(ModuleOp module) {
  Builder builder(module.getContext());
  for (StringRef name :
       {nn::kForwardFunc, nn::kLossGradFunc, nn::kUpdateFunc}) {
    auto func = module.lookupSymbol<func::FuncOp>(name);
    if (!func || func.isDeclaration())
      continue;
    Block &body = func.getBody().front();
    Operation *end = body.getTerminator();
    SmallVector<Value> results(end->getOperands());
    SmallVector<DictionaryAttr> attrs;
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      attrs.push_back(func.getResultAttrDict(i));
    int64_t number = 0;
    for (Operation &op : body.without_terminator()) {
      // Constants and index grids are the same everywhere.
      if (op.getNumOperands() == 0)
        continue;
      for (OpResult value : op.getResults()) {
        if (!isa<FloatType>(getElementTypeOrSelf(value)))
          continue;
        std::string text =
            (kTapPrefix + Twine(number++) + ": " + describe(&op)).str();
        results.push_back(value);
        attrs.push_back(builder.getDictionaryAttr(
            {builder.getNamedAttr(nn::kNameAttr, builder.getStringAttr(text)),
             builder.getNamedAttr(nn::kRoleAttr,
                                  builder.getStringAttr("tap"))}));
      }
    }
    end->setOperands(results);
    func.setType(FunctionType::get(func.getContext(), func.getArgumentTypes(),
                                   TypeRange(ValueRange(results))));
    func.setAllResultAttrs(attrs);
  }
}

FailureOr<std::string> check::firstDifference(ModuleOp module, Engine &sharded,
                                              Engine &reference, Values &values,
                                              const CheckOptions &options) {
  Engine *engines[] = {&sharded, &reference};
  for (Engine *engine : engines)
    if (failed(values.setInitial(*engine)) ||
        failed(values.setMicrobatch(*engine, 1, 0)))
      return failure();
  for (StringRef name :
       {nn::kForwardFunc, nn::kLossGradFunc, nn::kUpdateFunc}) {
    auto func = module.lookupSymbol<func::FuncOp>(name);
    if (!func)
      continue;
    for (Engine *engine : engines) {
      if (name == nn::kLossGradFunc)
        for (const Port &port : argumentsOf(func))
          if ((port.role == "gradient" || port.role == "loss" ||
               port.role == "weight") &&
              failed(engine->set(port, Tensor(port.type))))
            return failure();
      if (failed(engine->run(name)))
        return failure();
    }
    for (const Port &port : resultsOf(func)) {
      if (!isTap(port))
        continue;
      FailureOr<Gathered> ours = sharded.get(port);
      FailureOr<Gathered> theirs = reference.get(port);
      if (failed(ours) || failed(theirs))
        return failure();
      Difference found = difference(ours->whole, theirs->whole);
      // Without a kind to compare with, noise is what is tiny in itself.
      double limit = options.tolerances.exact * std::max(found.magnitude, 1e-6);
      if (found.largest <= limit && ours->replicaDifference == 0)
        continue;
      std::string text = StringRef(port.name).split(": ").second.str();
      llvm::raw_string_ostream out(text);
      if (found.largest <= limit)
        out << ": copies of ranks differ by " << ours->replicaDifference;
      else
        out << ": " << found.largest << " beside " << found.magnitude
            << " at [";
      if (found.largest > limit) {
        llvm::interleaveComma(unflatten(found.worst, theirs->whole.shape()),
                              out);
        out << "] on rank " << (ours->rankOf ? ours->rankOf(found.worst) : 0);
      }
      return text;
    }
  }
  return std::string();
}
