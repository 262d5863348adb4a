// Shardings that the stages of a pipeline share: values with the same name have
// the same sharding in all stages.

#ifndef CLEAVE_LIB_COMPILER_SHAREDSHARDINGS_H
#define CLEAVE_LIB_COMPILER_SHAREDSHARDINGS_H

#include "cleave/Config/Load.h"
#include "cleave/Dialect/Dist/IR/Sharding.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::compiler {

/// The shardings that earlier stages have chosen, by role and name.
class SharedShardings {
public:
  /// Constrains the stage to the shardings of earlier stages.
  void pin(mlir::ModuleOp stage);

  /// Returns a sharding override for each parameter that this stage shards in a
  /// different way than earlier stages. The override states the sharding of the
  /// earlier stages. The axes in `sharded` are left out, because ZeRO adds them
  /// later.
  std::vector<ShardConfig> conflicts(mlir::ModuleOp stage,
                                     const std::vector<std::string> &sharded);

  /// Records the stage's shardings. Emits an error if one differs from that of
  /// an earlier stage.
  mlir::LogicalResult note(mlir::ModuleOp stage);

private:
  struct Entry {
    mlir::Type type;
    dist::ShardingAttr sharding;
    /// Stages send some values to each other as tiles. For such a value: its
    /// sharding within the programs of the stages.
    dist::ShardingAttr inside;
  };
  dist::ShardingAttr known(mlir::DictionaryAttr attrs);
  mlir::LogicalResult note(mlir::Type type, mlir::DictionaryAttr attrs);

  std::map<std::string, Entry> entries;
};

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_SHAREDSHARDINGS_H
