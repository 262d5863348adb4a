// The rt dialect: commands of the host program.

#ifndef CLEAVE_DIALECT_RT_IR_RT_H
#define CLEAVE_DIALECT_RT_IR_RT_H

#include "cleave/program.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <optional>
#include <vector>

#include "cleave/Dialect/RT/IR/RTDialect.h.inc"
#include "cleave/Dialect/RT/IR/RTEnums.h.inc"

namespace cleave::rt {

/// Appends `exchange`, encoded as integers, to `into`, the attribute
/// `exchanges` of a collective.
void encodeExchange(const program::Exchange &exchange,
                    llvm::SmallVectorImpl<int64_t> &into);

/// States that the result with index `result` may use the memory of the operand
/// with index `operand`; if `required` is true, it must.
struct Reuse {
  unsigned result = 0, operand = 0;
  bool required = false;
};

/// States that a result is a part of an operand's memory. The result begins
/// `offset` elements after the start of the operand, plus a distance that
/// depends on the rank. `axisTerms` gives this distance as a list of quadruples
/// (axis, pre, size, elements). The first three numbers describe a sub-axis;
/// the quadruple adds `elements` times the rank's index on this sub-axis. At
/// most `reach` elements of the operand's buffer are accessed.
struct Alias {
  unsigned operand = 0;
  int64_t offset = 0;
  llvm::ArrayRef<int64_t> axisTerms;
  int64_t reach = 0;

  /// Returns the result's offset from the operand's start, in elements, on the
  /// rank with the largest offset.
  int64_t lastOffset() const;
};

/// Attribute of a kernel launch, for memory planning. For each operand it has
/// the number of elements beyond the operand's end that the kernel reads but
/// whose values it masks out.
inline constexpr llvm::StringLiteral kBeyondAttr = "rt.beyond";
/// Unit attribute of a function that an rt.repeat runs; it is no action.
inline constexpr llvm::StringLiteral kBodyAttr = "rt.body";
/// Discardable attributes that memory planning writes.
inline constexpr llvm::StringLiteral kBufferAttr = "rt.buffer";
inline constexpr llvm::StringLiteral kBuffersAttr = "rt.buffers";
inline constexpr llvm::StringLiteral kArenasAttr = "rt.arenas";
/// On a function: a LifetimeAttr for each value in the transient arena.
inline constexpr llvm::StringLiteral kLifetimesAttr = "rt.lifetimes";
/// Attribute of a function in which the pass rt-overlap has placed the
/// collectives: the modelled seconds of computation, of collectives, and of
/// exposed communication.
inline constexpr llvm::StringLiteral kOverlapAttr = "rt.overlap";
/// Attribute of a module of pipeline stages, in place of rt.arenas: a StageAttr
/// for each stage. The arenas from kSlotArena on hold the values that have the
/// attribute `pipe.slot`. Values with equal `pipe.slot` share an arena.
inline constexpr llvm::StringLiteral kStagesAttr = "rt.stages";
inline constexpr int64_t kStateArena = 0, kTransientArena = 1, kSlotArena = 2;

} // namespace cleave::rt

#include "cleave/Dialect/RT/IR/RTInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "cleave/Dialect/RT/IR/RTAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "cleave/Dialect/RT/IR/RTTypes.h.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/RT/IR/RTOps.h.inc"

namespace cleave::rt {

/// Returns the address that memory planning gave to an argument of a function
/// or to a result of an operation, or null if it gave none.
AddressAttr addressOf(mlir::Value value);

} // namespace cleave::rt

#endif
