// Generates a program: chooses the operands of operations, the values that are
// returned, and the values that get shardings.

#include "Generator.h"

#include "cleave/Partition/Utils/PortTable.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

const std::vector<Family> &allFamilies() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all;
    for (ArrayRef<Family> some :
         {elementwiseFamilies(), shapeFamilies(), contractionFamilies(),
          rowFamilies(), attentionFamilies(), expertFamilies(),
          trainingFamilies(), arithmeticFamilies(), convolutionFamilies(),
          regionFamilies(), scanFamilies()})
      all.insert(all.end(), some.begin(), some.end());
    return all;
  }();
  return families;
}

const Family &pickFamily(Random &random) {
  const std::vector<Family> &families = allFamilies();
  static const int64_t total = [&] {
    int64_t sum = 0;
    for (const Family &family : families)
      sum += family.weight;
    return sum;
  }();
  int64_t at = random.below(total);
  for (const Family &family : families)
    if ((at -= family.weight) < 0)
      return family;
  llvm_unreachable("weights add up");
}

bool isAmong(ArrayRef<Family> families, const Family &family) {
  return llvm::any_of(
      families, [&](const Family &other) { return other.make == family.make; });
}

} // namespace

Generator::Generator(MLIRContext *context, uint64_t seed, Style style)
    : style(style), random(Random::mix(seed)), b(context),
      loc(UnknownLoc::get(context)) {
  mesh = randomMesh(random, context);
  element = random.chance(3, 4)   ? Type(b.getF64Type())
            : random.chance(1, 2) ? Type(b.getF32Type())
                                  : Type(b.getBF16Type());
  if (style.compiled) // bf16 comes by nn-mixed-precision
    element = b.getF32Type();
  exactBelow = style.bf16 ? 0x1p8 : style.compiled ? 0x1p24 : 0x1p53;
  static const int64_t choices[] = {1, 2, 2, 3, 3, 4, 4, 5,
                                    5, 6, 6, 7, 8, 9, 12};
  for (int i = 0; i < 4; ++i)
    sizes.push_back(random.pick(choices));
}

int64_t Generator::size() { return random.pick(sizes); }

SmallVector<int64_t> Generator::shape(int64_t lowRank, int64_t highRank) {
  // The number of dimensions; two and three are the most frequent.
  static const int64_t ranks[] = {0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 5};
  int64_t rank = std::clamp(random.pick(ranks), lowRank, highRank);
  SmallVector<int64_t> shape;
  int64_t count = 1;
  for (int64_t dim = 0; dim < rank; ++dim) {
    int64_t extent = size();
    for (int tries = 0; tries < 4 && count * extent > kMaxElements; ++tries)
      extent = std::min(extent, size());
    if (count * extent > kMaxElements)
      extent = random.between(1, 2);
    if (count * extent > kMaxElements)
      extent = 1;
    shape.push_back(extent);
    count *= extent;
  }
  return shape;
}

Entry Generator::argument(RankedTensorType type, bool exact) {
  bool isBool = type.getElementType().isInteger(1);
  Entry entry = {block->addArgument(type, loc), isBool ? 1.0 : 6.0, true};
  if (isa<FloatType>(type.getElementType()))
    entry.bound = 3;
  if (style.compiled && !exact && isa<FloatType>(type.getElementType()) &&
      random.chance(2, 3)) {
    entry.exact = false;
    inexact.push_back(block->getNumArguments() - 1);
  }
  pool.push_back(entry);
  return entry;
}

/// Draws a value, more often a later one, so that programs become deep.
/// Sometimes it draws an early value, which then has a second reader.
Entry Generator::draw(llvm::function_ref<bool(const Entry &)> fits,
                      llvm::function_ref<RankedTensorType()> other,
                      bool exact) {
  SmallVector<size_t> found;
  for (size_t i = 0; i < pool.size(); ++i)
    if (fits(pool[i]) && pool[i].bound <= maxBound)
      found.push_back(i);
  if (found.empty() || random.chance(1, 5))
    return argument(other(), exact);
  if (random.chance(1, 2))
    return pool[found.back()];
  return pool[random.pick(found)];
}

Entry Generator::any(int64_t lowRank, int64_t highRank) {
  Entry entry = draw(
      [&](const Entry &e) {
        return e.isFloat() && e.rank() <= 5 &&
               (e.rank() >= lowRank && e.rank() <= highRank);
      },
      [&] { return floats(shape(lowRank, highRank)); }, /*exact=*/false);
  return entry;
}

Entry Generator::anyKind(int64_t lowRank, int64_t highRank) {
  if (!random.chance(1, 5))
    return any(lowRank, highRank);
  bool isBool = random.chance(1, 3);
  return draw(
      [&](const Entry &e) {
        return !e.isFloat() &&
               e.type().getElementType().isInteger(1) == isBool &&
               e.rank() >= lowRank && e.rank() <= highRank;
      },
      [&] {
        SmallVector<int64_t> extents = shape(lowRank, highRank);
        return isBool ? bools(extents) : ints(extents);
      });
}

Entry Generator::anyExact(int64_t lowRank, int64_t highRank) {
  return draw(
      [&](const Entry &e) {
        return e.isFloat() && e.exact && e.rank() >= lowRank &&
               e.rank() <= highRank;
      },
      [&] { return floats(shape(lowRank, highRank)); });
}

Entry Generator::like(RankedTensorType type, double bound, bool exact) {
  // Sometimes draws a constant, which the partitioner emits again wherever it
  // is needed.
  if (random.chance(1, 12) && isa<FloatType>(type.getElementType())) {
    SmallVector<Attribute> values;
    for (int64_t i = 0, end = random.chance(1, 2) ? 1 : type.getNumElements();
         i < end; ++i)
      values.push_back(b.getFloatAttr(element, double(random.between(-2, 3))));
    auto attr = DenseElementsAttr::get(type, values);
    return {arith::ConstantOp::create(b, loc, attr), 3, true};
  }
  return draw(
      [&](const Entry &e) {
        return e.value.getType() == type && e.bound <= bound &&
               (e.exact || !exact);
      },
      [&] { return type; }, exact);
}

Entry Generator::reshaped(const Entry &entry, int64_t rank) {
  if (entry.rank() == rank)
    return entry;
  SmallVector<int64_t> shape(entry.shape());
  while (int64_t(shape.size()) > rank) {
    size_t at = shape.size() < 2 ? 0 : random.below(shape.size() - 1);
    if (shape.size() == 1) {
      shape.clear();
      break;
    }
    shape[at] *= shape[at + 1];
    shape.erase(shape.begin() + at + 1);
  }
  while (int64_t(shape.size()) < rank) {
    size_t at = shape.empty() ? 0 : random.below(shape.size());
    int64_t extent = shape.empty() ? 1 : shape[at];
    SmallVector<int64_t> divisors = {1};
    for (int64_t d = 2; d <= extent; ++d)
      if (extent % d == 0)
        divisors.push_back(d);
    int64_t d = random.pick(divisors);
    if (!shape.empty())
      shape[at] = extent / d;
    shape.insert(shape.begin() + at, d);
  }
  Value value =
      nn::ReshapeOp::create(b, loc, entry.type().clone(shape), entry.value);
  return {value, entry.bound, entry.exact};
}

Entry Generator::tamed(const Entry &entry, double bound) {
  if (entry.bound <= bound)
    return entry;
  Entry result = {math::TanhOp::create(b, loc, entry.value), 1, false};
  pool.push_back(result);
  return result;
}

void Generator::give(Value value, double bound, bool exact) {
  pool.push_back({value, bound, exact && bound <= exactBelow});
}

/// Adds sharding constraints to the value that was made last.
void Generator::constrainSome() {
  if (isolated || pool.empty() || !random.chance(1, 6))
    return;
  Entry &entry = pool.back();
  bool partial = !entry.type().getElementType().isInteger(1);
  entry.value = dist::ConstrainOp::create(
      b, loc, entry.value.getType(), entry.value,
      randomSharding(random, mesh, entry.type(), partial));
}

void Generator::steps(int64_t count) {
  for (int64_t step = 0, tries = 0; step < count && tries < 40; ++tries) {
    const Family &family = pickFamily(random);
    if ((style.compiled || isolated) && isAmong(regionFamilies(), family))
      continue;
    if (style.bf16 && isAmong(scanFamilies(), family))
      continue; // refused by nn-mixed-precision
    if (family.make(*this)) {
      ++step;
      constrainSome();
    }
  }
}

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

void Generator::inside(Block *region, double bound,
                       llvm::function_ref<void()> body) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(region);
  double outerBound = std::exchange(maxBound, bound);
  size_t outerSize = std::exchange(outer, pool.size());
  ++depth;
  body();
  --depth;
  pool.resize(outer);
  outer = outerSize;
  maxBound = outerBound;
}

Entry Generator::given(RankedTensorType type, double bound) {
  for (size_t i = pool.size(); i-- > outer;) {
    Entry entry = pool[i];
    if (entry.value.getType() != type || isa<BlockArgument>(entry.value))
      continue;
    if (entry.bound <= bound)
      return entry;
    if (entry.isFloat())
      return tamed(entry, bound);
  }
  return like(type, bound);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

OwningOpRef<ModuleOp> Generator::run() {
  module = ModuleOp::create(loc);
  b.setInsertionPointToEnd(module->getBody());
  dist::MeshOp::create(b, loc, b.getStringAttr("m"), mesh.attr, ArrayAttr(),
                       DenseI64ArrayAttr());
  addFunction("f");
  if (!style.compiled && random.chance(1, 8))
    addFunction("g");
  style.compiled ? nameTensors() : namePorts();
  shardPorts();
  return std::move(module);
}

void Generator::addFunction(StringRef name) {
  // A second function shares some tensors with the first one: it takes some of
  // the first function's arguments and results as arguments.
  SmallVector<RankedTensorType> shared;
  for (const partition::Port &port : partition::portsOf(*module))
    if (shared.size() < 3 && random.chance(1, 2))
      shared.push_back(cast<RankedTensorType>(port.type()));
  b.setInsertionPointToEnd(module->getBody());
  func = func::FuncOp::create(b, loc, name, b.getFunctionType({}, {}));
  block = func.addEntryBlock();
  b.setInsertionPointToEnd(block);
  pool.clear();
  for (RankedTensorType type : shared)
    argument(type);
  steps(random.between(1, 8));
  finishFunction();
}

void Generator::finishFunction() {
  // Returns all values that no operation reads, and sometimes other values.
  SmallVector<Value> results;
  for (Entry &entry : pool) {
    bool isArgument = isa<BlockArgument>(entry.value);
    bool unread = entry.value.use_empty();
    if ((unread && !isArgument) || random.chance(1, 12))
      results.push_back(entry.value);
  }
  if (results.empty())
    results.push_back(pool.back().value);
  func::ReturnOp::create(b, loc, results);
  func.setFunctionType(b.getFunctionType(block->getArgumentTypes(),
                                         ValueRange(results).getTypes()));
}

static void setAttr(partition::Port port, StringRef name, Attribute value) {
  if (port.isResult)
    port.func.setResultAttr(port.index, name, value);
  else
    port.func.setArgAttr(port.index, name, value);
}

/// Gives names and roles to some arguments and results. Arguments and results
/// with the same name are one tensor: for example, an argument and its new
/// value, or a tensor that several functions share.
void Generator::namePorts() {
  static const nn::Role roles[] = {nn::Role::Parameter, nn::Role::Parameter,
                                   nn::Role::Gradient,  nn::Role::State,
                                   nn::Role::Input,     nn::Role::Output};
  SmallVector<partition::Port> ports = partition::portsOf(*module);
  bool several = llvm::range_size(module->getOps<func::FuncOp>()) > 1;
  int64_t number = 0;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (!ports[i].name().empty() || !random.chance(1, several ? 2 : 10))
      continue;
    Attribute name = b.getStringAttr("n" + Twine(number++)),
              role = nn::RoleAttr::get(b.getContext(), random.pick(roles));
    for (size_t j = i; j < ports.size(); ++j) {
      bool same = j == i || (ports[j].type() == ports[i].type() &&
                             ports[j].name().empty() && random.chance(1, 2));
      if (!same)
        continue;
      setAttr(ports[j], nn::kNameAttr, name);
      setAttr(ports[j], nn::kRoleAttr, role);
    }
  }
}

/// Gives each tensor a unique name. A result may have the name of an argument
/// if it is the argument's new value.
void Generator::nameTensors() {
  SmallVector<partition::Port> ports = partition::portsOf(*module);
  auto name = [&](const partition::Port &port, const Twine &text,
                  nn::Role role) {
    setAttr(port, nn::kNameAttr, b.getStringAttr(text));
    setAttr(port, nn::kRoleAttr, nn::RoleAttr::get(b.getContext(), role));
  };
  for (partition::Port &port : ports)
    if (!port.isResult && llvm::is_contained(inexact, port.index))
      name(port, "a" + Twine(port.index),
           random.chance(2, 3) ? nn::Role::Parameter : nn::Role::Input);
  for (partition::Port &port : ports) {
    if (port.isResult || !port.name().empty() || !random.chance(1, 4))
      continue;
    for (partition::Port &other : ports)
      if (other.isResult && other.type() == port.type() &&
          other.name().empty()) {
        name(port, "s" + Twine(port.index), nn::Role::State);
        name(other, "s" + Twine(port.index), nn::Role::State);
        break;
      }
  }
}

void Generator::shardPorts() {
  // Arguments and results with the same name get the same sharding or none.
  llvm::StringMap<dist::ShardingAttr> byName;
  for (const partition::Port &port : partition::portsOf(*module)) {
    auto type = cast<RankedTensorType>(port.type());
    dist::ShardingAttr sharding =
        randomSharding(random, mesh, type, !type.getElementType().isInteger(1));
    bool asked = random.chance(port.isResult ? 2 : 3, 4);
    if (!port.name().empty())
      sharding = byName.insert({port.name(), sharding}).first->second;
    // In a compiled program, an argument and a result with the role State and
    // the same name are one tensor in memory, so both need the same sharding,
    // even if it consists of partial sums. It is therefore requested for both
    // of them.
    if (asked || (style.compiled && port.role() == nn::Role::State))
      setAttr(port, dist::kShardingAttrName, sharding);
  }
}
