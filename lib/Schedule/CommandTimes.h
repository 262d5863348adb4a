// How long commands take on the machine of a cluster.toml.

#ifndef CLEAVE_LIB_SCHEDULE_COMMANDTIMES_H
#define CLEAVE_LIB_SCHEDULE_COMMANDTIMES_H

#include "cleave/Cost/LinkModel.h"
#include "cleave/Dialect/RT/IR/RT.h"

#include <optional>

namespace cleave::schedule {

class CommandTimes {
public:
  /// For commands of `module`, which has one mesh. Errors are reported there.
  static mlir::FailureOr<CommandTimes> load(mlir::ModuleOp module,
                                            const std::string &cluster);

  /// Seconds of one rank; of a collective, from its start to its end. Products
  /// by the curve of rates, all else by the bytes that it reads and writes.
  double of(mlir::Operation *op) const;
  /// By which share of its time computing takes longer beside a collective.
  double contention() const { return cluster.contention; }

private:
  CommandTimes(dist::MeshAxes mesh, cost::LinkModel links, Cluster cluster)
      : mesh(std::move(mesh)), links(std::move(links)),
        cluster(std::move(cluster)) {}
  double secondsOf(rt::CollectiveOp collective) const;

  dist::MeshAxes mesh;
  cost::LinkModel links;
  Cluster cluster;
};

} // namespace cleave::schedule

#endif
