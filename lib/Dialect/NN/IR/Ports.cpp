// Reads and writes the attributes of function arguments and results.

#include "cleave/Dialect/NN/IR/Ports.h"

using namespace mlir;
using namespace cleave;

std::optional<nn::Role> nn::roleOf(DictionaryAttr attrs) {
  auto role = attrs ? attrs.getAs<RoleAttr>(kRoleAttr) : RoleAttr();
  return role ? std::optional(role.getValue()) : std::nullopt;
}

std::optional<nn::Role> nn::roleOf(FunctionOpInterface func,
                                   unsigned argument) {
  return roleOf(func.getArgAttrDict(argument));
}

std::optional<nn::Role> nn::roleOf(BlockArgument argument) {
  auto func =
      dyn_cast_or_null<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (!func || !argument.getOwner()->isEntryBlock())
    return std::nullopt;
  return roleOf(func, argument.getArgNumber());
}

std::optional<nn::Role> nn::resultRoleOf(FunctionOpInterface func,
                                         unsigned result) {
  return roleOf(func.getResultAttrDict(result));
}

template <typename Attr>
static Attr attrOf(DictionaryAttr attrs, StringRef name) {
  return attrs ? attrs.getAs<Attr>(name) : Attr();
}

template <typename Attr>
static SmallVector<Attr> listOf(DictionaryAttr attrs, StringRef name) {
  if (auto list = attrOf<ArrayAttr>(attrs, name))
    return llvm::to_vector(list.getAsRange<Attr>());
  return {};
}

nn::ViewAttr nn::viewOf(DictionaryAttr attrs) {
  return attrOf<ViewAttr>(attrs, kViewAttr);
}

nn::DataAttr nn::dataOf(DictionaryAttr attrs) {
  return attrOf<DataAttr>(attrs, kDataAttr);
}

nn::InitAttr nn::initOf(DictionaryAttr attrs) {
  return attrOf<InitAttr>(attrs, kInitAttr);
}

nn::RouterAttr nn::routerOf(DictionaryAttr attrs) {
  return attrOf<RouterAttr>(attrs, kRouterAttr);
}

SmallVector<nn::PartAttr> nn::partsOf(DictionaryAttr attrs) {
  return listOf<PartAttr>(attrs, kPartsAttr);
}

SmallVector<nn::LookupAttr> nn::lookupsOf(DictionaryAttr attrs) {
  return listOf<LookupAttr>(attrs, kLookupsAttr);
}

SmallVector<StringRef> nn::tiedNamesOf(DictionaryAttr attrs) {
  return llvm::map_to_vector(
      listOf<TiedAttr>(attrs, kTiedAttr),
      [](TiedAttr other) { return other.getName().getValue(); });
}

ArrayRef<int64_t> nn::fileShapeOf(DictionaryAttr attrs,
                                  ArrayRef<int64_t> shape) {
  ViewAttr view = viewOf(attrs);
  return view ? view.getShape().asArrayRef() : shape;
}

StringRef nn::nameOf(DictionaryAttr attrs) {
  auto name = attrs ? attrs.getAs<StringAttr>(kNameAttr) : StringAttr();
  return name ? name.getValue() : StringRef();
}

StringRef nn::nameOf(FunctionOpInterface func, unsigned argument) {
  return nameOf(func.getArgAttrDict(argument));
}

StringRef nn::resultNameOf(FunctionOpInterface func, unsigned result) {
  return nameOf(func.getResultAttrDict(result));
}

void nn::setName(NamedAttrList &attrs, MLIRContext *context,
                 const Twine &name) {
  attrs.set(kNameAttr, StringAttr::get(context, name));
}

void nn::setRole(NamedAttrList &attrs, MLIRContext *context, Role role) {
  attrs.set(kRoleAttr, RoleAttr::get(context, role));
}

void nn::setRole(FunctionOpInterface func, unsigned argument, Role role) {
  func.setArgAttr(argument, kRoleAttr, RoleAttr::get(func.getContext(), role));
}

DictionaryAttr nn::portAttrs(MLIRContext *context, const Twine &name,
                             Role role) {
  NamedAttrList attrs;
  setName(attrs, context, name);
  setRole(attrs, context, role);
  return attrs.getDictionary(context);
}
