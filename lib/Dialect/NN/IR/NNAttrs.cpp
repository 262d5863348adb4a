// Spelling and checks of the dialect's attributes.

#include "cleave/Dialect/NN/IR/Ports.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace cleave::nn;

static std::string allRoles() {
  std::string names;
  for (unsigned i = 0; i <= getMaxEnumValForRole(); ++i)
    if (std::optional<Role> role = symbolizeRole(i))
      names += (names.empty() ? "" : ", ") + stringifyRole(*role).str();
  return names;
}

Attribute RoleAttr::parse(AsmParser &parser, Type) {
  std::string name;
  if (parser.parseLess())
    return {};
  SMLoc loc = parser.getCurrentLocation();
  if (failed(parser.parseOptionalKeywordOrString(&name))) {
    parser.emitError(loc, "expected the name of a role: one of ") << allRoles();
    return {};
  }
  std::optional<Role> role = symbolizeRole(name);
  if (!role) {
    parser.emitError(loc, "unknown role '")
        << name << "'; expected one of " << allRoles();
    return {};
  }
  if (parser.parseGreater())
    return {};
  return RoleAttr::get(parser.getContext(), *role);
}

void RoleAttr::print(AsmPrinter &printer) const {
  printer << '<' << stringifyRole(getValue()) << '>';
}

static LogicalResult verifyRole(Location loc, Attribute value) {
  if (isa<RoleAttr>(value))
    return success();
  auto text = dyn_cast<StringAttr>(value);
  if (!text)
    return emitError(loc) << "'nn.role' is " << value
                          << "; expected #nn.role<...> with one of "
                          << allRoles();
  InFlightDiagnostic error = emitError(loc) << "'nn.role' is the string "
                                            << text << "; expected #nn.role<";
  if (symbolizeRole(text.getValue()))
    return error << text.getValue() << ">";
  return error << "...> with one of " << allRoles();
}

static LogicalResult verifyPort(Location loc, NamedAttribute attr) {
  if (attr.getName() == kRoleAttr)
    return verifyRole(loc, attr.getValue());
  return success();
}

LogicalResult NNDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                  unsigned index,
                                                  NamedAttribute attr) {
  auto func = dyn_cast<FunctionOpInterface>(op);
  Location loc = func && !func.isExternal()
                     ? func.getFunctionBody().getArgument(index).getLoc()
                     : op->getLoc();
  return verifyPort(loc, attr);
}

LogicalResult NNDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                     unsigned,
                                                     NamedAttribute attr) {
  return verifyPort(op->getLoc(), attr);
}

LogicalResult NNDialect::verifyOperationAttribute(Operation *op,
                                                  NamedAttribute attr) {
  if (attr.getName() == kRoleAttr)
    return op->emitError("'nn.role' stands on an operation; expected it on "
                         "arguments and results of functions");
  return success();
}
