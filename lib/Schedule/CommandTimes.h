// Modelled times of commands on the machine of a cluster.toml.

#ifndef CLEAVE_LIB_SCHEDULE_COMMANDTIMES_H
#define CLEAVE_LIB_SCHEDULE_COMMANDTIMES_H

#include "cleave/Cost/LinkModel.h"
#include "cleave/Dialect/RT/IR/RT.h"

#include <optional>

namespace cleave::schedule {

class CommandTimes {
public:
  /// For the commands of `module`, which has one mesh. Reports errors there.
  static mlir::FailureOr<CommandTimes> load(mlir::ModuleOp module,
                                            const std::string &cluster);

  /// Seconds on one rank; for a collective, from its start to its end. Matrix
  /// products use the measured rate curve, other commands the bytes that they
  /// read and write.
  double of(mlir::Operation *op) const;
  /// The fraction by which compute is slower while a collective runs.
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
