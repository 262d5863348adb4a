// Building functions of the logical program.

#include "BuildFunctions.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Interfaces/MatchNames.h"
#include "cleave/io/Pattern.h"

using namespace mlir;
using namespace cleave;

void autodiff::setResults(func::FuncOp func, ArrayRef<Value> values,
                          ArrayRef<DictionaryAttr> attrs) {
  Operation *terminator = func.getBody().front().getTerminator();
  terminator->setOperands(values);
  func.setType(FunctionType::get(func.getContext(), func.getArgumentTypes(),
                                 TypeRange(ValueRange(values))));
  func.setAllResultAttrs(attrs);
}

func::FuncOp autodiff::cloneAs(func::FuncOp func, StringRef name) {
  auto copy = cast<func::FuncOp>(func->clone());
  copy.setName(name);
  func->getBlock()->push_back(copy);
  return copy;
}

static FailureOr<bool>
matchesName(Operation *op, ArrayRef<std::string> patterns, StringRef name) {
  for (const std::string &pattern : patterns) {
    if (std::string mistake = checkPattern(pattern); !mistake.empty()) {
      op->emitError("pattern '") << pattern << "' is malformed: " << mistake;
      return failure();
    }
    if (matchesPattern(pattern, name))
      return true;
  }
  return false;
}

FailureOr<bool> autodiff::matchesAny(Operation *op,
                                     ArrayRef<std::string> patterns,
                                     DictionaryAttr attrs) {
  StringRef with, without;
  for (StringRef name : nn::fileNamesOf(attrs)) {
    FailureOr<bool> match = matchesName(op, patterns, name);
    if (failed(match))
      return failure();
    (*match ? with : without) = name;
  }
  if (!with.empty() && !without.empty())
    return op->emitError("patterns match '")
           << with << "' and not '" << without
           << "', which are experts of one layer and trained as one parameter; "
              "match all of its experts, or none";
  return !with.empty();
}

LogicalResult autodiff::checkTied(func::FuncOp func,
                                  ArrayRef<std::string> patterns,
                                  StringRef key) {
  for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
    SmallVector<StringRef> names = nn::tiedNamesOf(func.getArgAttrDict(arg));
    if (names.empty())
      continue;
    names.insert(names.begin(), nameOf(func, arg));
    StringRef with, without;
    for (StringRef name : names) {
      FailureOr<bool> match = matchesName(func, patterns, name);
      if (failed(match))
        return failure();
      (*match ? with : without) = name;
    }
    if (!patterns.empty() && !with.empty() && !without.empty())
      return func.emitError()
             << key << " names '" << with << "' and not '" << without
             << "', which are tied: one parameter under two names; name both, "
                "or neither";
  }
  return success();
}

/// Returns the name of a tensor in the model's file that the pattern matches
/// but that the importer treats as a constant, so that it is not trained; empty
/// if there is none.
static FailureOr<StringRef> constantOf(func::FuncOp func,
                                       const std::string &pattern) {
  if (auto names = func->getAttrOfType<ArrayAttr>(nn::kConstantsAttr))
    for (auto name : names.getAsRange<StringAttr>()) {
      FailureOr<bool> match = matchesName(func, pattern, name.getValue());
      if (failed(match))
        return failure();
      if (*match)
        return name.getValue();
    }
  return StringRef();
}

LogicalResult autodiff::reportIdle(func::FuncOp func,
                                   ArrayRef<std::string> patterns,
                                   StringRef key, bool refuse) {
  SmallVector<DictionaryAttr> parameters;
  for (unsigned arg = 0; arg < func.getNumArguments(); ++arg)
    if (roleOf(func, arg) == nn::Role::Parameter ||
        func.getArgAttr(arg, nn::kFrozenAttr))
      parameters.push_back(func.getArgAttrDict(arg));
  for (const std::string &pattern : patterns) {
    bool used = false;
    for (DictionaryAttr attrs : parameters) {
      SmallVector<StringRef> names(nn::fileNamesOf(attrs));
      if (refuse) // each name may have its own pattern, see checkTied
        llvm::append_range(names, nn::tiedNamesOf(attrs));
      for (StringRef name : names) {
        FailureOr<bool> match = matchesName(func, pattern, name);
        if (failed(match))
          return failure();
        used |= *match;
      }
    }
    FailureOr<StringRef> constant = constantOf(func, pattern);
    if (failed(constant))
      return failure();
    if (used || (key == "train.frozen" && !constant->empty()))
      continue;
    if (refuse && !constant->empty())
      return func.emitError("pattern '")
             << pattern << "' of " << key << " matches '" << *constant
             << "', which is taken for a constant (cleave import --summary "
                "says "
                "why); spell it out letter by letter to train it";
    if (refuse && !parameters.empty())
      return func.emitError("pattern '")
             << pattern << "' of " << key
             << describeNoMatch(pattern, parameters);
    emitWarning(func.getLoc(), "pattern '")
        << pattern << "' of " << key << " matches no parameter";
  }
  return success();
}

FailureOr<RankedTensorType> cleave::autodiff::lossTypeOf(func::FuncOp func) {
  if (func.getNumResults() == 0)
    return func.emitError("@")
           << func.getName()
           << " has no results; expected the loss as the first one";
  auto type = dyn_cast<RankedTensorType>(func.getResultTypes()[0]);
  if (!type || !isa<FloatType>(type.getElementType()))
    return func.emitError("@")
           << func.getName() << " has a loss of type "
           << func.getResultTypes()[0]
           << "; expected a tensor of floating-point elements";
  return type;
}
