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
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <optional>
#include <vector>

#include "cleave/Dialect/RT/IR/RTDialect.h.inc"
#include "cleave/Dialect/RT/IR/RTEnums.h.inc"

namespace cleave::rt {

/// Appends a description to `exchanges` of a collective.
void encodeExchange(const program::Exchange &exchange,
                    llvm::SmallVectorImpl<int64_t> &into);

/// Result `result` may be where operand `operand` does; with `required` it
/// must.
struct Reuse {
  unsigned result = 0, operand = 0;
  bool required = false;
};

/// A result that is inside an operand: `offset` elements from its start plus
/// the sum of its terms: quadruples (axis, pre, size, elements), so many
/// elements times the rank's index on that part of a mesh axis. `reach`
/// elements of the operand's buffer are touched at most.
struct Alias {
  unsigned operand = 0;
  int64_t offset = 0;
  llvm::ArrayRef<int64_t> axisTerms;
  int64_t reach = 0;

  /// Elements from the operand's start on the rank where it begins last.
  int64_t lastOffset() const;
};

/// On a launch, what memory planning reads: of each operand, how many elements
/// past its end are read, and masked.
inline constexpr llvm::StringLiteral kBeyondAttr = "rt.beyond";
/// Discardable attributes that memory planning writes.
inline constexpr llvm::StringLiteral kBufferAttr = "rt.buffer";
inline constexpr llvm::StringLiteral kBuffersAttr = "rt.buffers";
inline constexpr llvm::StringLiteral kArenasAttr = "rt.arenas";
inline constexpr llvm::StringLiteral kLifetimesAttr = "rt.lifetimes";
/// Of a function whose collectives rt-overlap has placed, modelled seconds: of
/// what computes, of collectives, and of these what nothing hides.
inline constexpr llvm::StringLiteral kOverlapAttr = "rt.overlap";
/// Of a module of pipeline stages, in place of rt.arenas: by stage, {arenas =
/// sizes, slots = classes}. Arenas from kSlotArena on hold one slot of each
/// class.
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

/// The address that memory planning gave to an argument of a function or to a
/// result of an operation; null where it gave none.
AddressAttr addressOf(mlir::Value value);

} // namespace cleave::rt

#endif
