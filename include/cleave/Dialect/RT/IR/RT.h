// The rt dialect: commands of the host program of a rank, as operations.

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

/// Encodes `exchange` as integers and appends them to `into`, from which the
/// attribute `exchanges` of an rt.collective is built.
void encodeExchange(const program::Exchange &exchange,
                    llvm::SmallVectorImpl<int64_t> &into);

/// States that the result with index `result` of a command may be stored in the
/// memory of the operand with index `operand`; if `required` is true, it must
/// be.
struct Reuse {
  unsigned result = 0, operand = 0;
  bool required = false;
};

/// States that a result is a part of an operand's memory. The result begins
/// `offset` elements after the start of the operand, plus a distance that
/// depends on the rank. `axisTerms` gives this distance as a list of quadruples
/// (axis, pre, size, elements). The first three numbers describe a sub-axis of
/// the mesh; the quadruple adds `elements` times the rank's index on this
/// sub-axis. `reach` is the largest end of the result on any rank, in elements
/// from the start of the operand.
struct Alias {
  unsigned operand = 0;
  int64_t offset = 0;
  llvm::ArrayRef<int64_t> axisTerms;
  int64_t reach = 0;

  /// Returns the largest offset of the result from the operand's start on any
  /// rank, in elements.
  int64_t lastOffset() const;
};

/// Attribute of a kernel launch: for each operand, the number of elements
/// beyond the operand's end that the kernel may read, although it masks their
/// values out. Memory planning makes the operand's buffer large enough for
/// these reads.
inline constexpr llvm::StringLiteral kBeyondAttr = "rt.beyond";
/// Unit attribute of a function that is the body of an rt.repeat. The runtime
/// does not execute it as an action of its own.
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
/// for each stage, with the sizes of its arenas. The arenas from kSlotArena on
/// hold the values that are kept between actions, which have the attribute
/// `pipe.slot`. Values with equal `pipe.slot` share an arena.
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
