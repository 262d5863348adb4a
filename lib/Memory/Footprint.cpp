// What a planned program takes of a rank's memory.

#include "cleave/Memory/Footprint.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/Boundary.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace cleave;

namespace {
/// One entry of rt.lifetimes.
struct Lifetime {
  StringRef name, kind;
  int64_t first, last, size;
};
} // namespace

static SmallVector<Lifetime> lifetimesOf(func::FuncOp func) {
  SmallVector<Lifetime> lifetimes;
  auto list = func->getAttrOfType<ArrayAttr>(rt::kLifetimesAttr);
  if (!list)
    return lifetimes;
  for (auto entry : list.getAsRange<DictionaryAttr>()) {
    auto number = [&](StringRef key) {
      return entry.getAs<IntegerAttr>(key).getInt();
    };
    lifetimes.push_back({entry.getAs<StringAttr>("name").getValue(),
                         entry.getAs<StringAttr>("kind").getValue(),
                         number("first"), number("last"), number("size")});
  }
  return lifetimes;
}

/// The largest sum of sizes alive at one command, and that command.
static std::pair<int64_t, int64_t>
maximum(ArrayRef<Lifetime> lifetimes,
        llvm::function_ref<bool(const Lifetime &)> counts) {
  SmallVector<std::pair<int64_t, int64_t>> events; // (command, change)
  for (const Lifetime &lifetime : lifetimes)
    if (counts(lifetime)) {
      events.push_back({lifetime.first, lifetime.size});
      events.push_back({lifetime.last + 1, -lifetime.size});
    }
  llvm::sort(events); // what dies goes before what is born
  int64_t now = 0, most = 0, at = 0;
  for (auto [command, change] : events) {
    now += change;
    if (now > most) {
      most = now;
      at = command;
    }
  }
  return {most, at};
}

/// What a buffer takes in the types that it is booked in.
static int64_t bookedBytes(const BoundaryBuffer &buffer,
                           const Booking &booking) {
  if (!buffer.type.getElementType().isF32())
    return buffer.bytes;
  bool parameter = buffer.role == "parameter" ||
                   (buffer.attrs && buffer.attrs.contains(nn::kFrozenAttr));
  int64_t width = parameter                   ? booking.parameter
                  : buffer.role == "gradient" ? booking.gradient
                                              : 4;
  return buffer.bytes / 4 * width;
}

FailureOr<Footprint> cleave::footprintOf(ModuleOp module,
                                         const Booking &booking) {
  auto arenas = module->getAttrOfType<DenseI64ArrayAttr>(rt::kArenasAttr);
  if (!arenas || arenas.size() != 2)
    return module.emitError("has no planned memory; run rt-plan-memory first");
  FailureOr<BoundaryTable> table = BoundaryTable::collect(module);
  if (failed(table))
    return failure();
  Footprint footprint;
  footprint.peak = arenas[0] + arenas[1];
  int64_t listed = 0;
  llvm::StringSet<> copied;
  auto list = [&](StringRef tensor, StringRef kind, StringRef source,
                  int64_t bytes) {
    footprint.atPeak.push_back({tensor.str(), kind.str(), source.str(), bytes});
    listed += bytes;
  };
  for (const BoundaryBuffer &buffer : table->buffers) {
    int64_t &category = buffer.role == "parameter" || buffer.role == "buffer" ||
                                buffer.role == "constant"
                            ? footprint.parameters
                        : buffer.role == "gradient" ? footprint.gradients
                        : buffer.role == "state"    ? footprint.optimizer
                                                    : footprint.other;
    int64_t bytes = bookedBytes(buffer, booking);
    category += bytes;
    footprint.peak += bytes - buffer.bytes;
    list(buffer.buffer, buffer.role, buffer.name, bytes);
    // A copy of a parameter lies as its state does.
    StringRef parameter = StringRef(buffer.name).rsplit('.').first;
    if (buffer.role != "state" || booking.master == 0 ||
        !copied.insert(parameter).second)
      continue;
    bytes = buffer.bytes / 4 * booking.master;
    footprint.optimizer += bytes;
    footprint.peak += bytes;
    list((parameter + ".master").str(), "state", parameter, bytes);
  }
  int64_t most = -1;
  SmallVector<Lifetime> atPeak;
  for (func::FuncOp func : actionsOf(module)) {
    SmallVector<Lifetime> all = lifetimesOf(func);
    auto kind = [](StringRef name) {
      return [=](const Lifetime &lifetime) { return lifetime.kind == name; };
    };
    footprint.activations =
        std::max(footprint.activations, maximum(all, kind("activation")).first);
    footprint.workspace =
        std::max(footprint.workspace, maximum(all, kind("workspace")).first);
    auto [bytes, command] = maximum(all, [](const Lifetime &) { return true; });
    if (bytes <= most)
      continue;
    most = bytes;
    footprint.action = func.getName().str();
    footprint.command = command;
    atPeak.clear();
    for (const Lifetime &lifetime : all)
      if (lifetime.first <= command && command <= lifetime.last)
        atPeak.push_back(lifetime);
  }
  for (const Lifetime &lifetime : atPeak)
    list(lifetime.name, lifetime.kind, lifetime.name, lifetime.size);
  if (footprint.peak > listed)
    list("(alignment and gaps)", "gap", "", footprint.peak - listed);
  llvm::stable_sort(footprint.atPeak, [](const auto &x, const auto &y) {
    return x.bytes > y.bytes;
  });
  return footprint;
}
