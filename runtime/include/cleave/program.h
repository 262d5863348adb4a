// A compiled program as plain data.
//
// The compiler fills these structs and writes them to a file, and the runtime
// reads them (program_io.h). accesses.h says what each command reads and
// writes. This header has no dependencies and uses no exceptions. Offsets and
// sizes of buffers are in bytes; extents, strides and counts are in elements
// unless a comment says otherwise.
//
// Commands are in cleave/program/ by family; this header includes all of them.
//
// Conventions: the mesh is ordered slowest axis first and a rank is the
// row-major index over it. Strings are interned: a `StringId` indexes
// Program::strings, and id 0 is always the empty string.
#ifndef CLEAVE_PROGRAM_H
#define CLEAVE_PROGRAM_H

#include "cleave/program/attention.h"
#include "cleave/program/collectives.h"
#include "cleave/program/kernels.h"
#include "cleave/program/moves.h"
#include "cleave/program/products.h"
#include "cleave/program/rows.h"
#include "cleave/program/values.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cleave::program {

// A named persistent buffer, which a host program may read and write.
//
// The array in a file becomes tiles on ranks as follows:
//   globalShape --reshape--> viewShape --transpose by viewPerm--> V
//   V is cut along dim i into tiles of localShape[i], in the row-major order
//   of the sub-axes sharding[i]; elements past V's end are padding (zero).
// viewShape and viewPerm are empty where they change nothing. Dim i of V is
// dim viewPerm[i] of viewShape. The tile is dense and row-major.
// Example: c_attn [h, 3h] as [h, 3, heads, d], heads split by "tensor":
// globalShape [h, 3h], viewShape [h, 3, heads, d], sharding [[],[],[t],[]].
//
// With `rankClass` >= 0 only ranks of this class hold the buffer. A class
// consists of the ranks that run identical commands: those with the same index
// on the pipeline axis. No sharding of a buffer uses this axis. Each class
// that holds the buffer has an entry of the same name, or several entries if
// several of its pipeline stages hold it. These entries have the same name,
// role, dtype and globalShape, but may differ in address and sharding. The host
// writes to all entries of a name, and reads the first one.
struct Boundary {
  std::string name;
  std::string onnxName; // the tensor's name in the ONNX model, or ""
  std::string tie;      // "" or the boundary whose storage this one shares
  // One of parameter, state, gradient, buffer, input, output, loss, weight,
  // step, lr, seed, microbatch, metric, ...
  std::string role;
  // The parameter to which a state or gradient belongs; "" for other roles.
  std::string of;
  DType dtype = DType::F32;
  std::vector<int64_t> globalShape;
  std::vector<int64_t> viewShape;
  std::vector<int64_t> viewPerm;
  std::vector<std::vector<SubAxis>> sharding; // empty: replicated; major first
  std::vector<int64_t> localShape;            // empty only if rank 0
  // The axes over which the ranks hold partial sums (such as a gradient before
  // its all-reduce). A gather applies `partialOp` over them.
  std::vector<SubAxis> partial;
  ReduceOp partialOp = ReduceOp::Sum;
  BufferRef buffer;
  int32_t rankClass = -1;
};

// The kind of device that a program runs on. The kernels of a Cuda program are
// in files kernels.ARCH.cubin, one for each architecture of devices, and in
// kernels.sm_80.ptx, which the driver compiles for any later architecture.
enum class Device : uint8_t { Cpu, Cuda };
inline constexpr Device lastDevice = Device::Cuda;

// Part of a Call: adds `offset` bytes to all addresses in one arena.
struct Rebase {
  int32_t arena = 0;
  int64_t offset = 0;
};

// Runs another action of the same class of ranks. An arena may consist of equal
// slots, such as one for each microbatch in flight. The action is compiled for
// slot 0; to run it on another slot, an offset is added to all its addresses in
// this arena. Calls do not nest. All members of a group make the same calls in
// the same order.
struct Call {
  uint32_t action = 0;        // index into Program::actions
  std::vector<Rebase> rebase; // at most one for each arena
  StringId label = 0; // for traces: what and which microbatch, e.g. "0F3"
};

// Runs another action of the same class of ranks `trips` times. Addresses of
// this action, the loop's body, may depend on the trip (AxisTerm). A body
// contains no transfers and no calls; it may contain loops.
struct Repeat {
  uint32_t action = 0; // index into Program::actions
  int64_t trips = 1;
};

struct Command {
  std::variant<Launch, Gemm, Attention, GroupedGemm, Collective, Wait, Copy,
               Fill, Call, PlanRows, SortRows, PositionInExpert, Convolution,
               Repeat>
      op;
  StringId source = 0; // for messages: the operation in the user's model
  int64_t flops = 0;
  // The address of a condition, a byte that is 0 or 1. If it is 0, this rank
  // skips the command, and so do all ranks with which the command would
  // communicate. A command without a condition always runs. Asynchronous starts
  // and waits have no condition.
  BufferRef when = {};
};

// The byte range of a planned value in an arena, and the first and last command
// at which the value is live. Lifetimes are optional. The poison mode fills
// ranges that are not live with NaNs. If a Call runs an action with an offset,
// the offset is added to the ranges of the action's lifetimes, too.
struct Lifetime {
  StringId name = 0;
  int32_t arena = 0;
  int64_t offset = 0, size = 0;
  int32_t first = 0, last = 0;
};

// Returns the name of the action that stores the inputs of microbatch
// `microbatch` of a step, which the host has written, in a pipeline.
inline std::string loadAction(int64_t microbatch) {
  return "load." + std::to_string(microbatch);
}

// An action of one class of ranks (ranks that run identical commands):
// "loss_grad", "update", "init_state", "forward", and others. When the host
// runs an action, a class that lacks it does nothing. An action whose name
// begins with "." (".F.0") runs only through Call and Repeat commands.
struct Action {
  std::string name;
  uint32_t rankClass = 0;
  std::vector<Command> commands;
  std::vector<Lifetime> lifetimes;

  bool isOnlyCalled() const { return name.starts_with("."); }
};

struct Program {
  Device device = Device::Cpu;
  // For CUDA devices: f32 products may round their operands to TF32 (10 bits of
  // mantissa) and sum in f32.
  bool tf32 = false;
  std::vector<std::string> strings{""};
  std::vector<MeshAxis> mesh;
  std::vector<uint32_t> rankClass; // one per rank; empty: all in class 0
  std::vector<Arena> arenas;
  std::vector<Kernel> kernels;
  std::vector<Boundary> boundary;
  std::vector<Action> actions;
  int32_t threadsPerRank = 1; // for which workspaces were planned
  std::vector<std::pair<std::string, std::string>> meta; // for the host's use

  int64_t numRanks() const {
    int64_t ranks = 1;
    for (const MeshAxis &axis : mesh)
      ranks *= axis.size;
    return ranks;
  }

  // Returns the id of a string, which is added if it is new. A linear search is
  // fast enough for the few strings that name the purposes of commands. Code
  // that adds many strings keeps a map of its own.
  StringId intern(std::string_view text) {
    for (StringId id = 0; id < strings.size(); ++id)
      if (strings[id] == text)
        return id;
    strings.emplace_back(text);
    return static_cast<StringId>(strings.size() - 1);
  }

  uint32_t classOf(int64_t rank) const {
    return rankClass.empty() ? 0 : rankClass[rank];
  }

  // Returns the first entry with this name, or null.
  const Boundary *findBoundary(std::string_view name) const {
    for (const Boundary &entry : boundary)
      if (entry.name == name)
        return &entry;
    return nullptr;
  }

  const Action *findAction(std::string_view name, uint32_t ofClass = 0) const {
    for (const Action &action : actions)
      if (action.name == name && action.rankClass == ofClass)
        return &action;
    return nullptr;
  }
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_H
