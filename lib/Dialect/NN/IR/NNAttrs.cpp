// Parsing, printing and checks of the dialect's attributes.

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Support/AttrChecks.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::nn;

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

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

static LogicalResult
verifyRole(llvm::function_ref<InFlightDiagnostic()> emitError,
           Attribute value) {
  if (isa<RoleAttr>(value))
    return success();
  auto text = dyn_cast<StringAttr>(value);
  if (!text)
    return emitError() << "'nn.role' is " << value
                       << "; expected #nn.role<...> with one of " << allRoles();
  InFlightDiagnostic error = emitError() << "'nn.role' is the string " << text
                                         << "; expected #nn.role<";
  if (symbolizeRole(text.getValue()))
    return error << text.getValue() << ">";
  return error << "...> with one of " << allRoles();
}

//===----------------------------------------------------------------------===//
// Verifiers of attributes
//===----------------------------------------------------------------------===//

/// Returns the number of elements of a tensor; -1 if a size is negative or the
/// number exceeds i64.
static int64_t elementsOf(ArrayRef<int64_t> shape) {
  int64_t elements = 1;
  for (int64_t size : shape)
    if (size < 0 || llvm::MulOverflow(elements, size, elements))
      return -1;
  return elements;
}

LogicalResult
ViewAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 DenseI64ArrayAttr shape, DenseI64ArrayAttr view,
                 DenseI64ArrayAttr permutation) {
  int64_t stored = elementsOf(shape), seen = elementsOf(view);
  if (stored < 0 || stored != seen) // (V1)
    return emitError() << "#nn.view has shape = [" << shape.asArrayRef()
                       << "] and view = [" << view.asArrayRef()
                       << "]; expected as many elements in both";
  if (!permutation)
    return success();
  SmallVector<int64_t> dims(permutation.asArrayRef());
  llvm::sort(dims);
  if (!llvm::equal(dims, llvm::seq<int64_t>(0, view.size()))) // (V2)
    return emitError() << "#nn.view has permutation = ["
                       << permutation.asArrayRef()
                       << "]; expected each dimension of view = ["
                       << view.asArrayRef() << "] once";
  return success();
}

/// The element types that tensors in a file may have, with their sizes in
/// bytes.
static constexpr std::pair<StringLiteral, int64_t> kFileTypes[] = {
    {"f64", 8}, {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i64", 8},
    {"i32", 4}, {"i16", 2}, {"i8", 1},   {"u64", 8}, {"u32", 4},
    {"u16", 2}, {"u8", 1},  {"i1", 1},   {"bool", 1}};

/// Returns the size of an element in a file in bytes; 0 for unknown types.
static int64_t bytesOf(StringAttr dtype) {
  for (const auto &[name, bytes] : kFileTypes)
    if (dtype == name)
      return bytes;
  return 0;
}

LogicalResult
DataAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 StringAttr file, int64_t offset, int64_t length,
                 StringAttr dtype) {
  if (bytesOf(dtype) == 0) {
    InFlightDiagnostic error = emitError() << "#nn.data of file " << file
                                           << " has dtype = " << dtype
                                           << "; expected one of ";
    llvm::interleaveComma(kFileTypes, error,
                          [&](const auto &type) { error << type.first; });
    return error;
  }
  if (offset < 0 || length < 0)
    return emitError() << "#nn.data of file " << file
                       << " has offset = " << offset
                       << " and length = " << length
                       << "; expected neither below 0";
  if (int64_t end; llvm::AddOverflow(offset, length, end))
    return emitError() << "#nn.data of file " << file
                       << " has offset = " << offset
                       << " and length = " << length
                       << "; expected an end that fits into 64 bits";
  return success();
}

/// Checks that `attr`, which names a tensor of the model file, has a name.
static LogicalResult
verifyNamesTensor(llvm::function_ref<InFlightDiagnostic()> emitError,
                  StringRef attr, StringAttr name) {
  if (!name.empty())
    return success();
  return emitError() << attr
                     << " has name = \"\"; expected the name of a tensor of "
                        "the model file";
}

LogicalResult
TiedAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 StringAttr name, bool) {
  return verifyNamesTensor(emitError, "#nn.tied", name);
}

LogicalResult
PartAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 StringAttr name, DataAttr) {
  return verifyNamesTensor(emitError, "#nn.part", name);
}

LogicalResult
InitAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 InitKind kind, FloatAttr a, FloatAttr b) {
  double first = a ? a.getValueAsDouble() : 0;
  double second = b ? b.getValueAsDouble() : 1;
  auto unfit = [&](StringRef expected) {
    return emitError() << "#nn.init<" << stringifyInitKind(kind)
                       << "> has a = " << first << " and b = " << second
                       << "; expected " << expected;
  };
  if (!std::isfinite(first) || !std::isfinite(second))
    return unfit("finite numbers");
  if (kind == InitKind::Normal && second < 0)
    return unfit("b, the standard deviation, to be at least 0");
  if (kind == InitKind::Uniform && first > second)
    return unfit("a, the lower bound, to be at most b, the upper bound");
  return success();
}

LogicalResult
RouterAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                   StringAttr name, RouterCounts, int64_t slotsPerToken,
                   StringAttr, int64_t capacity, int64_t capacityOf,
                   StringAttr) {
  if (slotsPerToken < 0 || capacity < 0 || capacityOf < 0)
    return emitError() << "#nn.router of " << name
                       << " has slots_per_token = " << slotsPerToken
                       << ", capacity = " << capacity
                       << " and capacity_of = " << capacityOf
                       << "; expected none below 0";
  return success();
}

LogicalResult
ShardAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                  StringAttr match, ArrayAttr dims, DenseI64ArrayAttr view) {
  // dist.axes is recognized by its name, because the nn dialect must not depend
  // on the dist dialect, in which its C++ class is defined.
  for (Attribute axes : dims)
    if (axes.getAbstractAttribute().getName() != "dist.axes")
      return emitError() << "#nn.shard of " << match << " has dims = " << dims
                         << "; expected a list of #dist.axes<...>";
  if (view && view.size() != int64_t(dims.size()))
    return emitError() << "#nn.shard of " << match << " has " << dims.size()
                       << " dims; expected one for each dimension of view = ["
                       << view.asArrayRef() << "]";
  return success();
}

LogicalResult
LookupAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                   DenseI64ArrayAttr offsets, DenseI64ArrayAttr sizes,
                   DenseI64ArrayAttr strides, int64_t rows, StringAttr table,
                   int64_t bits) {
  if (offsets.size() != sizes.size() || strides.size() != sizes.size())
    return emitError() << "#nn.lookup of table " << table << " has "
                       << offsets.size() << " offsets, " << sizes.size()
                       << " sizes and " << strides.size()
                       << " strides; expected equal numbers";
  if (rows < 1 || bits < 0 || bits > 64)
    return emitError() << "#nn.lookup of table " << table
                       << " has rows = " << rows << " and bits = " << bits
                       << "; expected at least 1 row and 0 to 64 bits";
  for (int64_t dim = 0; dim < sizes.size(); ++dim)
    if (offsets[dim] < 0 || sizes[dim] < 1 || strides[dim] < 1)
      return emitError() << "#nn.lookup of table " << table << " has offset "
                         << offsets[dim] << ", size " << sizes[dim]
                         << " and stride " << strides[dim] << " in dimension "
                         << dim
                         << "; expected an offset of at least 0, and a size "
                            "and a stride of at least 1";
  return success();
}

//===----------------------------------------------------------------------===//
// Arguments and results of functions
//===----------------------------------------------------------------------===//

static bool isPartList(Attribute value) {
  return isListOf<PartAttr>(value) && !cast<ArrayAttr>(value).empty();
}

// The attributes that arguments and results of functions may have, including
// those that passes of other folders add. The description of the nn dialect
// documents all of them.
static constexpr KnownAttr kPortAttrs[] = {
    {kNameAttr, isAttr<StringAttr>, "a string"},
    {kRoleAttr, isAttr<RoleAttr>, "#nn.role<...>"},
    {kViewAttr, isAttr<ViewAttr>, "#nn.view<shape = [...], view = [...]>"},
    {kDataAttr, isAttr<DataAttr>,
     "#nn.data<file = ..., offset = ..., length = ..., dtype = ...>"},
    {kTiedAttr, isListOf<TiedAttr>,
     "a list of #nn.tied<name = ..., transposed = ...>"},
    {kPartsAttr, isPartList,
     "a list of #nn.part<name = ...> with at least one"},
    {kInitAttr, isAttr<InitAttr>,
     "#nn.init<zeros>, #nn.init<constant, a = ...>, or normal or uniform with "
     "a and b"},
    {kRouterAttr, isAttr<RouterAttr>,
     "#nn.router<name = ..., counts = chosen or taken>"},
    {kLookupsAttr, isListOf<LookupAttr>, "a list of #nn.lookup<...>"},
    {kVocabularyAttr, isI64From<1>, "an i64, at least 1"},
    {kBatchDimAttr, isI64, "an i64, the dimension that counts samples, or -1"},
    {"nn.position_dim", isI64,
     "an i64, the dimension that counts positions, or -1"},
    {kWholeCallAttr, isAttr<UnitAttr>, "a unit"},
    {kWholeStepAttr, isAttr<StringAttr>, "a string, the name of an input"},
    {kFrozenAttr, isAttr<UnitAttr>, "a unit"},
    {kVectorAttr, isAttr<UnitAttr>, "a unit"},
    {kCountAttr, isAttr<StringAttr>, "a string, the name of an argument"},
};

using Emit = llvm::function_ref<InFlightDiagnostic()>;

static LogicalResult verifyView(Emit emit, ViewAttr view,
                                RankedTensorType type) {
  int64_t elements = elementsOf(type.getShape());
  if (elementsOf(view.getView()) != elements)
    return emit() << "'nn.view' is " << view << " with "
                  << elementsOf(view.getView()) << " elements; expected the "
                  << elements << " of " << type;
  SmallVector<int64_t> seen(view.getView().asArrayRef());
  if (DenseI64ArrayAttr order = view.getPermutation())
    for (auto [dim, size] : llvm::zip_equal(order.asArrayRef(), seen))
      size = view.getView()[dim];
  if (ArrayRef(seen) != type.getShape())
    return emit() << "'nn.view' is " << view << " and gives the shape [" << seen
                  << "]; expected that of " << type;
  return success();
}

/// Checks that the slice of a lookup is within the input.
static LogicalResult verifyLookup(Emit emit, LookupAttr lookup,
                                  RankedTensorType type) {
  if (lookup.getSizes().size() != type.getRank())
    return emit() << "'nn.lookups' has " << lookup << " with "
                  << lookup.getSizes().size() << " dimensions; expected the "
                  << type.getRank() << " of " << type;
  for (int64_t dim = 0; dim < type.getRank(); ++dim) {
    // The last index is offset + (size - 1) * stride.
    int64_t last;
    if (llvm::MulOverflow(lookup.getSizes()[dim] - 1, lookup.getStrides()[dim],
                          last) ||
        llvm::AddOverflow(last, lookup.getOffsets()[dim], last) ||
        last >= type.getDimSize(dim))
      return emit() << "'nn.lookups' has " << lookup
                    << ", which ends outside dimension " << dim
                    << "; expected a slice of " << type;
  }
  if (lookup.getBits() > type.getElementTypeBitWidth())
    return emit() << "'nn.lookups' has " << lookup
                  << " with bits = " << lookup.getBits()
                  << "; expected at most the " << type.getElementTypeBitWidth()
                  << " of an element of " << type;
  return success();
}

/// Checks an attribute with a list of lookups or the size of a vocabulary,
/// which are on integer inputs.
static LogicalResult verifyIndices(Emit emit, NamedAttribute attr,
                                   RankedTensorType type) {
  if (!isa<IntegerType>(type.getElementType()))
    return emit() << "'" << attr.getName().getValue() << "' is "
                  << attr.getValue() << "; expected it on integers, not on "
                  << type;
  if (auto lookups = dyn_cast<ArrayAttr>(attr.getValue()))
    for (auto lookup : lookups.getAsRange<LookupAttr>())
      if (failed(verifyLookup(emit, lookup, type)))
        return failure();
  return success();
}

/// Checks that an attribute of a function's argument or result fits the
/// tensor's type `whole`; for example, a batch dimension must be a dimension of
/// the tensor. If ranks hold tiles of the tensor, `whole` is the type of the
/// unsharded tensor.
static LogicalResult verifyFits(Emit emit, NamedAttribute attr, Type whole) {
  StringRef name = attr.getName().getValue();
  bool isDim = name == kBatchDimAttr || name == "nn.position_dim";
  bool isIndex = name == kLookupsAttr || name == kVocabularyAttr;
  bool isStored = name == kViewAttr || name == kDataAttr;
  if (!isDim && !isIndex && !isStored)
    return success();
  auto type = dyn_cast<RankedTensorType>(whole);
  if (!type || ((isStored || isIndex) && !type.hasStaticShape()))
    return emit() << "'" << name << "' is " << attr.getValue()
                  << "; expected it on a tensor of known "
                  << (isDim ? "rank" : "sizes") << ", not on " << whole;
  if (isIndex)
    return verifyIndices(emit, attr, type);
  if (auto view = dyn_cast<ViewAttr>(attr.getValue()))
    return verifyView(emit, view, type);
  if (auto data = dyn_cast<DataAttr>(attr.getValue())) {
    int64_t bytes;
    if (llvm::MulOverflow(elementsOf(type.getShape()), bytesOf(data.getDtype()),
                          bytes) ||
        data.getLength() != bytes)
      return emit() << "'" << name << "' is " << data << "; expected " << bytes
                    << " bytes for " << type;
    return success();
  }
  int64_t dim = cast<IntegerAttr>(attr.getValue()).getInt();
  if (dim < -1 || dim >= type.getRank())
    return emit() << "'" << name << "' is " << dim
                  << "; expected a dimension of " << type << ", or -1";
  return success();
}

static LogicalResult verifyPort(Emit emit, NamedAttribute attr, Type type,
                                DictionaryAttr attrs) {
  if (attr.getName() == kRoleAttr)
    return verifyRole(emit, attr.getValue());
  if (failed(verifyKnown(emit, attr, kPortAttrs, "an argument or result")))
    return failure();
  // After partitioning, the attribute dist.global_type has the type of the
  // unsharded tensor.
  auto whole = attrs.getAs<TypeAttr>("dist.global_type");
  return verifyFits(emit, attr, whole ? whole.getValue() : type);
}

LogicalResult NNDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                  unsigned index,
                                                  NamedAttribute attr) {
  auto func = dyn_cast<FunctionOpInterface>(op);
  if (!func)
    return op->emitError() << "'" << attr.getName().getValue()
                           << "' stands on an argument of a region; expected "
                              "it on arguments of functions";
  return verifyPort([&] { return argumentError(func, index); }, attr,
                    func.getArgumentTypes()[index], func.getArgAttrDict(index));
}

LogicalResult NNDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                     unsigned index,
                                                     NamedAttribute attr) {
  auto func = dyn_cast<FunctionOpInterface>(op);
  if (!func)
    return op->emitError()
           << "'" << attr.getName().getValue()
           << "' stands on a result of a region; expected it on "
              "results of functions";
  return verifyPort([&] { return resultError(func, index); }, attr,
                    func.getResultTypes()[index],
                    func.getResultAttrDict(index));
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

static constexpr StringLiteral kInplaceAttr = "nn.inplace";
static constexpr StringLiteral kAlignAttr = "nn.align";

static bool isPowers(Attribute value) {
  return isI64ListFrom<1>(value) &&
         llvm::all_of(
             cast<DenseI64ArrayAttr>(value).asArrayRef(),
             [](int64_t number) { return llvm::isPowerOf2_64(number); });
}

/// Checks that the attributes nn.inplace and nn.align of a kernel name
/// arguments and results that the kernel has.
static LogicalResult verifyKernel(FunctionOpInterface func, StringRef name,
                                  ArrayRef<int64_t> numbers) {
  int64_t arguments = func.getNumArguments(), results = func.getNumResults();
  auto emit = [&] {
    return func.emitError("'") << name << "' is [" << numbers << "]; expected ";
  };
  if (name == kAlignAttr && int64_t(numbers.size()) != arguments + results)
    return emit() << "one alignment for each of " << arguments
                  << " arguments and " << results << " results";
  if (name != kInplaceAttr)
    return success();
  if (numbers.size() % 2)
    return emit() << "pairs (result, operand)";
  for (size_t i = 0; i < numbers.size(); i += 2)
    if (numbers[i] >= results || numbers[i + 1] >= arguments)
      return emit() << "pairs of one of " << results << " results and one of "
                    << arguments << " arguments";
  return success();
}

static constexpr KnownAttr kOperationAttrs[] = {
    {"nn.shard", isListOf<ShardAttr>,
     "a list of #nn.shard<match = ..., dims = [...]>"},
    {kConstantsAttr, isListOf<StringAttr>, "a list of strings"},
    {"nn.unread_inputs", isListOf<StringAttr>, "a list of strings"},
    {"nn.graph_digest", isAttr<StringAttr>, "a string"},
    {"nn.positions", isAttr<UnitAttr>, "a unit"},
    {kStorageAttr, isAttr<UnitAttr>, "a unit"},
    {"nn.reorder", isAttr<UnitAttr>, "a unit"},
    {"nn.frozen_row", isI64, "an i64"},
    {"nn.grouped", isAttr<UnitAttr>, "a unit"},
    {"nn.candidates", isAttr<UnitAttr>, "a unit"},
    {"nn.when", isI64From<0>,
     "an i64, at least 0, the number of a dist.condition"},
    {"nn.row_share", isI64From<1>, "an i64, at least 1"},
    {"nn.kernel", isAttr<UnitAttr>, "a unit"},
    {"nn.extent", isI64From<0>, "an i64, at least 0"},
    {"nn.grain", isI64From<1>, "an i64, at least 1"},
    {kInplaceAttr, isI64ListFrom<0>,
     "an array<i64> of pairs (result, operand), none below 0"},
    {kAlignAttr, isPowers, "an array<i64> of powers of 2"},
    {"nn.ptx", isAttr<StringAttr>, "a string"},
};

LogicalResult NNDialect::verifyOperationAttribute(Operation *op,
                                                  NamedAttribute attr) {
  if (attr.getName() == kRoleAttr)
    return op->emitError("'nn.role' stands on an operation; expected it on "
                         "arguments and results of functions");
  if (failed(verifyKnown([&] { return op->emitError(); }, attr, kOperationAttrs,
                         "an operation")))
    return failure();
  auto func = dyn_cast<FunctionOpInterface>(op);
  auto numbers = dyn_cast<DenseI64ArrayAttr>(attr.getValue());
  if (!func || !numbers)
    return success();
  return verifyKernel(func, attr.getName(), numbers.asArrayRef());
}
