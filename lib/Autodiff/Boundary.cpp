// Building functions of the logical program.

#include "Boundary.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Interfaces/MatchNames.h"
#include "cleave/io/Pattern.h"

using namespace mlir;
using namespace cleave;

DictionaryAttr autodiff::boundaryAttrs(MLIRContext *context, StringRef name,
                                       StringRef role) {
  Builder b(context);
  return b.getDictionaryAttr(
      {b.getNamedAttr(nn::kNameAttr, b.getStringAttr(name)),
       b.getNamedAttr(nn::kRoleAttr, b.getStringAttr(role))});
}

static StringRef stringArgAttr(func::FuncOp func, unsigned argument,
                               StringRef key) {
  auto attr = func.getArgAttrOfType<StringAttr>(argument, key);
  return attr ? attr.getValue() : StringRef();
}

StringRef autodiff::roleOf(func::FuncOp func, unsigned argument) {
  return stringArgAttr(func, argument, nn::kRoleAttr);
}

StringRef autodiff::nameOf(func::FuncOp func, unsigned argument) {
  return stringArgAttr(func, argument, nn::kNameAttr);
}

StringRef autodiff::resultRoleOf(func::FuncOp func, unsigned result) {
  auto attr = func.getResultAttrOfType<StringAttr>(result, nn::kRoleAttr);
  return attr ? attr.getValue() : StringRef();
}

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

LogicalResult autodiff::reportIdle(func::FuncOp func,
                                   ArrayRef<std::string> patterns,
                                   StringRef key, bool refuse) {
  SmallVector<DictionaryAttr> parameters;
  for (unsigned arg = 0; arg < func.getNumArguments(); ++arg)
    if (roleOf(func, arg) == "parameter" ||
        func.getArgAttr(arg, nn::kFrozenAttr))
      parameters.push_back(func.getArgAttrDict(arg));
  for (const std::string &pattern : patterns) {
    bool used = false;
    for (DictionaryAttr attrs : parameters) {
      for (StringRef name : nn::fileNamesOf(attrs)) {
        FailureOr<bool> match = matchesName(func, pattern, name);
        if (failed(match))
          return failure();
        used |= *match;
      }
    }
    if (used)
      continue;
    if (refuse && !parameters.empty())
      return func.emitError("pattern '")
             << pattern << "' of " << key
             << describeNoMatch(pattern, parameters);
    emitWarning(func.getLoc(), "pattern '")
        << pattern << "' of " << key << " matches no parameter";
  }
  return success();
}
