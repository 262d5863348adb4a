// Ensures that values with the same name, such as a parameter that two pipeline
// stages share, have the same sharding in all stages of a pipeline.

#ifndef CLEAVE_LIB_COMPILER_SHAREDSHARDINGS_H
#define CLEAVE_LIB_COMPILER_SHAREDSHARDINGS_H

#include "cleave/Config/Load.h"
#include "cleave/Dialect/Dist/IR/Sharding.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::compiler {

/// The shardings that earlier stages have, by the role and name of the value.
class SharedShardings {
public:
  /// Constrains the activations and cotangents that this stage exchanges with
  /// earlier stages to the shardings that the earlier stages have chosen.
  void pin(mlir::ModuleOp stage);

  /// Returns a sharding override for each parameter that this stage shards in a
  /// different way than earlier stages. The override states the sharding of the
  /// earlier stages. The mesh axes in `sharded` are left out, because ZeRO adds
  /// them later.
  std::vector<ShardConfig> conflicts(mlir::ModuleOp stage,
                                     const std::vector<std::string> &sharded);

  /// Records the stage's shardings. Emits an error if one differs from that of
  /// an earlier stage.
  mlir::LogicalResult note(mlir::ModuleOp stage);

private:
  struct Entry {
    mlir::Type type;
    dist::ShardingAttr sharding;
    /// Set for a replicated value that is sent from stage to stage in tiles,
    /// and gathered by the receiving stage: then `sharding` describes the tiles
    /// that are sent, and `inside` is the value's sharding within the stages.
    /// Null for other values.
    dist::ShardingAttr inside;
  };
  dist::ShardingAttr known(mlir::DictionaryAttr attrs);
  mlir::LogicalResult note(mlir::Type type, mlir::DictionaryAttr attrs);

  std::map<std::string, Entry> entries;
};

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_SHAREDSHARDINGS_H
