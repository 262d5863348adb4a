// What the stages of a pipeline have in common: one sharding for a name.

#ifndef CLEAVE_LIB_COMPILER_SHAREDSHARDINGS_H
#define CLEAVE_LIB_COMPILER_SHAREDSHARDINGS_H

#include "cleave/Config/Load.h"
#include "cleave/Dialect/Dist/IR/Sharding.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::compiler {

/// The shardings that stages have decided so far, by role and name.
class SharedShardings {
public:
  /// Asks for what earlier stages have decided.
  void pin(mlir::ModuleOp stage);

  /// As overrides: the shardings of earlier stages that this one has chosen
  /// otherwise. `sharded`: axes that ZeRO adds again.
  std::vector<ShardConfig> conflicts(mlir::ModuleOp stage,
                                     const std::vector<std::string> &sharded);

  /// Keeps what was decided; an error where it differs from an earlier stage.
  mlir::LogicalResult note(mlir::ModuleOp stage);

private:
  struct Entry {
    mlir::Type type;
    dist::ShardingAttr sharding;
    /// That inside the stages, where the value crosses in tiles.
    dist::ShardingAttr inside;
  };
  dist::ShardingAttr known(mlir::DictionaryAttr attrs);
  mlir::LogicalResult note(mlir::Type type, mlir::DictionaryAttr attrs);

  std::map<std::string, Entry> entries;
};

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_SHAREDSHARDINGS_H
