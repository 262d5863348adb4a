// The cost model of commands on the machine that a cluster.toml describes.

#ifndef CLEAVE_LIB_SCHEDULE_COMMANDTIMES_H
#define CLEAVE_LIB_SCHEDULE_COMMANDTIMES_H

#include "cleave/Cost/LinkModel.h"
#include "cleave/Dialect/RT/IR/RT.h"

#include <optional>

namespace cleave::schedule {

class CommandTimes {
public:
  /// Loads the cost model for the commands of `module`, which has one mesh.
  /// Errors are reported on `module`.
  static mlir::FailureOr<CommandTimes> load(mlir::ModuleOp module,
                                            const std::string &cluster);

  /// Returns the seconds that a command takes on one rank. For a collective,
  /// this is the time from its start to its end. For a matrix product, it
  /// follows from the measured rate curve. For any other command, it follows
  /// from the bytes that the command reads and writes.
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
