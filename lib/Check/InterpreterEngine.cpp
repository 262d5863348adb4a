// The check's engine that interprets a program; it runs the reference.

#include "RankValues.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Target/Schedule.h"

#include <limits>
#include <map>

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

Port portOf(Value value, Type type, DictionaryAttr attrs) {
  Port port;
  port.attrs = attrs;
  port.value = value;
  port.role = nn::roleOf(attrs);
  port.name = nn::nameOf(attrs).str();
  auto global =
      attrs ? attrs.getAs<TypeAttr>(dist::kGlobalTypeAttrName) : TypeAttr();
  port.type = dyn_cast<RankedTensorType>(global ? global.getValue() : type);
  return port;
}

class InterpreterEngine : public Engine {
public:
  InterpreterEngine(ModuleOp module) : module(module) {
    for (auto mesh : module.getOps<dist::MeshOp>())
      this->mesh = mesh.getMesh();
    // Only these functions are considered, because other functions may have
    // arguments or results with the same name and a different layout. For
    // example, the loss that the host reads and the loss that is summed over
    // microbatches have different layouts.
    for (StringRef name :
         {nn::kForwardFunc, nn::kLossGradFunc, nn::kUpdateFunc}) {
      auto func = module.lookupSymbol<func::FuncOp>(name);
      if (!func || func.isDeclaration())
        continue;
      for (const Port &port : argumentsOf(func))
        slots[port.key()].port = port;
      for (const Port &port : resultsOf(func))
        slots[port.key()].port = port;
    }
  }

  bool hasFunction(StringRef name) const override {
    return !!ModuleOp(module).lookupSymbol<func::FuncOp>(name);
  }

  LogicalResult set(const Port &port, const Tensor &whole) override {
    auto slot = slots.find(port.key());
    if (slot == slots.end())
      return success();
    FailureOr<RankTensors> tiles = tilesOf(mesh, slot->second.port, whole);
    if (failed(tiles))
      return failure();
    slot->second.tiles = std::move(*tiles);
    return success();
  }

  LogicalResult run(StringRef name) override {
    auto func = module.lookupSymbol<func::FuncOp>(name);
    std::vector<RankTensors> arguments;
    for (const Port &port : argumentsOf(func)) {
      const RankTensors &tiles = slots[port.key()].tiles;
      if (tiles.empty())
        return func.emitError("argument ")
               << port.describe() << " has no value";
      arguments.push_back(tiles);
    }
    FailureOr<std::vector<RankTensors>> results =
        interpretOn(mesh, func, arguments);
    if (failed(results))
      return failure();
    for (auto [port, tiles] : llvm::zip_equal(resultsOf(func), *results))
      slots[port.key()] = {port, std::move(tiles)};
    return success();
  }

  FailureOr<Gathered> get(const Port &port) override {
    auto slot = slots.find(port.key());
    if (slot == slots.end() || slot->second.tiles.empty())
      return emitError(port.value.getLoc())
             << port.describe() << " has no value";
    return gather(mesh, slot->second.port, slot->second.tiles);
  }

private:
  struct Slot {
    Port port;
    RankTensors tiles;
  };

  ModuleOp module;
  dist::MeshAttr mesh;
  std::map<std::string, Slot> slots;
};

} // namespace

dist::ShardingAttr check::shardingOf(const Port &port) {
  return port.attrs
             ? port.attrs.getAs<dist::ShardingAttr>(dist::kShardingAttrName)
             : dist::ShardingAttr();
}

FailureOr<RankTensors> check::tilesOf(dist::MeshAttr mesh, const Port &port,
                                      const Tensor &whole) {
  Tensor value = whole;
  value.type = port.type;
  if (value.type.getShape() != whole.type.getShape())
    return emitError(port.value.getLoc())
           << port.describe() << " has the type " << value.type
           << " in the program, but was given " << whole.type;
  if (!value.type.getElementType().isF64())
    for (double &x : value.floats)
      x = static_cast<float>(x);
  if (!mesh)
    return RankTensors{value};
  if (dist::ShardingAttr sharding = shardingOf(port))
    return shardTensor(value, mesh, sharding);
  return RankTensors(mesh.getNumRanks(), value);
}

Gathered check::gather(dist::MeshAttr mesh, const Port &port,
                       const RankTensors &tiles) {
  dist::ShardingAttr sharding = shardingOf(port);
  Gathered result;
  if (!sharding) {
    result.whole = tiles.front();
    // Without a sharding, every rank has the whole tensor, and all must be
    // equal.
    for (const Tensor &copy : tiles)
      if (copy.floats != result.whole.floats || copy.ints != result.whole.ints)
        result.replicaDifference = std::numeric_limits<double>::infinity();
    return result;
  }
  Assembled assembled = assembleTensor(tiles, port.type, mesh, sharding);
  result.whole = std::move(assembled.whole);
  result.replicaDifference = assembled.replicaDifference;
  result.rankOf = [mesh, sharding, type = port.type](int64_t element) {
    return firstHolder(mesh, sharding, type.getShape(), element);
  };
  return result;
}

FailureOr<std::vector<RankTensors>>
check::interpretOn(dist::MeshAttr mesh, func::FuncOp func,
                   ArrayRef<RankTensors> arguments) {
  if (mesh)
    return interpretRanks(func, mesh, arguments);
  std::vector<Tensor> flat;
  for (const RankTensors &argument : arguments)
    flat.push_back(argument.front());
  FailureOr<std::vector<Tensor>> results = interpret(func, flat);
  if (failed(results))
    return failure();
  std::vector<RankTensors> wrapped;
  for (Tensor &result : *results)
    wrapped.push_back({std::move(result)});
  return wrapped;
}

int64_t check::firstHolder(dist::MeshAttr mesh, dist::ShardingAttr sharding,
                           ArrayRef<int64_t> shape, int64_t element) {
  for (int64_t rank = 0; rank < mesh.getNumRanks(); ++rank) {
    dist::TileBounds bounds = dist::tileBounds(mesh, sharding, shape, rank);
    int64_t rest = element;
    bool holds = true;
    for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
      int64_t index = rest % shape[dim] - bounds.offsets[dim];
      rest /= shape[dim];
      holds &= index >= 0 && index < bounds.extents[dim];
    }
    if (holds)
      return rank;
  }
  return 0;
}

std::vector<Port> check::argumentsOf(func::FuncOp func) {
  std::vector<Port> ports;
  for (BlockArgument argument : func.getArguments())
    ports.push_back(portOf(argument, argument.getType(),
                           func.getArgAttrDict(argument.getArgNumber())));
  return ports;
}

std::vector<Port> check::resultsOf(func::FuncOp func) {
  std::vector<Port> ports;
  Operation *end = func.getBody().front().getTerminator();
  for (OpOperand &result : end->getOpOperands())
    ports.push_back(portOf(result.get(), result.get().getType(),
                           func.getResultAttrDict(result.getOperandNumber())));
  return ports;
}

FailureOr<std::unique_ptr<Engine>>
check::makeInterpreterEngine(ModuleOp module) {
  if (target::isPipelined(module))
    return makePipelineEngine(module);
  return std::unique_ptr<Engine>(std::make_unique<InterpreterEngine>(module));
}
