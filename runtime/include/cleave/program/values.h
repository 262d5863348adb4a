// The building blocks of commands: element types, mesh axes, arenas, and
// addresses.
#ifndef CLEAVE_PROGRAM_VALUES_H
#define CLEAVE_PROGRAM_VALUES_H

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::program {

using StringId = uint32_t;

enum class DType : uint8_t {
  F32,
  F64,
  BF16,
  I64,
  I32,
  I8,
  U8 /* bool: 0 or 1 */
};
inline constexpr DType lastDType = DType::U8;

constexpr int64_t sizeOf(DType type) {
  switch (type) {
  case DType::F64:
  case DType::I64:
    return 8;
  case DType::F32:
  case DType::I32:
    return 4;
  case DType::BF16:
    return 2;
  case DType::I8:
  case DType::U8:
    return 1;
  }
  return 0;
}

inline const char *nameOf(DType type) {
  constexpr const char *names[] = {"f32", "f64", "bf16", "i64",
                                   "i32", "i8",  "u8"};
  return names[static_cast<int>(type)];
}

// A mesh axis. `link` is the class of links between its ranks ("intra" within a
// node, "inter" between nodes, ...), for reports only.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  std::string link;
  // The number of adjacent ranks on this axis that are on the same node.
  int64_t within = 1;
};

// A part of mesh axis `axis`, as in Shardy. It has `size` positions; `pre` is
// the product of the sizes of the parts before it. A rank's index on the part
// is (axis_index / (axisSize / (pre * size))) % size. The whole axis is {axis,
// 1, axisSize}.
struct SubAxis {
  int32_t axis = 0;
  int64_t pre = 1;
  int64_t size = 1;
};

enum class Lifespan : uint8_t {
  Persistent, // keeps its contents between actions (named buffers)
  Transient,  // undefined at the start of every action and of every Call
  Slots,      // undefined at the start of an action that the host runs, then
              // kept from one Call to the next until this action ends
};
inline constexpr Lifespan lastLifespan = Lifespan::Slots;

// An arena in the memory of one rank. Arena 0 is "state" (persistent), arena 1
// "transient". If `rankClass` >= 0, only the ranks of that class (ranks that
// run identical commands) have the arena; on other ranks it has no bytes.
struct Arena {
  std::string name;
  Lifespan lifespan = Lifespan::Transient;
  int64_t size = 0; // bytes
  int32_t rankClass = -1;
};

// A term of an address: `coef` bytes times an index. The index is that of the
// rank on a sub-axis of the mesh or, in the body of a loop (Repeat), the number
// of the loop's iteration modulo a period.
struct AxisTerm {
  SubAxis on;
  int64_t coef = 0;

  // Returns the term of `coef` bytes times (i mod `period`), where i is the
  // number of the current iteration of a loop. `depth` selects the loop if
  // loops are nested: 0 is the outermost one.
  static AxisTerm ofTrip(int32_t depth, int64_t period, int64_t coef) {
    return {{-1 - depth, 1, period}, coef};
  }
  constexpr bool dependsOnTrip() const { return on.axis < 0; }
  constexpr int32_t depth() const { return -1 - on.axis; }
  constexpr int64_t period() const { return on.size; }
};

// An address in a rank's memory: arena + offset + the sum of the terms.
struct BufferRef {
  int32_t arena = -1; // -1: absent (an optional operand that is not there)
  int64_t offset = 0;
  std::vector<AxisTerm> terms;

  constexpr bool present() const { return arena >= 0; }
  constexpr bool dependsOnTrip() const {
    for (const AxisTerm &term : terms)
      if (term.dependsOnTrip())
        return true;
    return false;
  }
};

enum class ReduceOp : uint8_t { Sum, Max, Min };

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_VALUES_H
