//===- LinkModel.h - how long collectives take ------------------*- C++ -*-===//
//
// The time of a collective over a group of ranks, from the classes of the links
// that the group's axes cross.
//
// A group whose axes cross links of several classes is worked level by level.
// Gathers go over the slowest links first, with the smallest pieces; reductions
// mirror that. Over a level of n ranks a gather or a scatter moves (n - 1)
// pieces, in ceil(log2 n) rounds or all at once, whichever is faster. A sum on
// all ranks is a scatter and a gather, or everybody's value to everybody where
// it is small. All-to-all and exchange have all messages under way at once: one
// latency of the slowest level, `message` for every further one, and the bytes
// for the peers behind each level over its links (an exchange spreads its bytes
// evenly over them). An exchange waits for one latency more, as its boxes are
// packed: where a collective does the same, that is what one wants.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_COST_LINKMODEL_H
#define CLEAVE_COST_LINKMODEL_H

#include "cleave/Config/Cluster.h"
#include "cleave/Dialect/Dist/IR/Layout.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::cost {

/// What the file says, "": the defaults. Errors are reported on the module.
mlir::FailureOr<Cluster> loadCluster(mlir::Operation *module,
                                     const std::string &file);

class LinkModel {
public:
  /// `links` has the class of each atom of the mesh; missing: "intra".
  LinkModel(const dist::MeshAxes &mesh, llvm::ArrayRef<std::string> links,
            const Cluster &cluster);
  /// The same link everywhere.
  LinkModel(const dist::MeshAxes &mesh, const LinkClass &link);
  /// Link classes as the dist.mesh of the module has them.
  static LinkModel of(mlir::Operation *module, const dist::MeshAxes &mesh,
                      const Cluster &cluster);
  /// The same for a cluster.toml.
  static mlir::FailureOr<LinkModel> load(mlir::Operation *module,
                                         const dist::MeshAxes &mesh,
                                         const std::string &file);

  // Seconds. `bytes` as in the operations' payload: the whole of what a rank
  // has after a gather, before a scatter.
  double allGather(dist::AxisSet group, double bytes) const;
  double reduceScatter(dist::AxisSet group, double bytes) const {
    return allGather(group, bytes);
  }
  double allReduce(dist::AxisSet group, double bytes) const;
  double allToAll(dist::AxisSet group, double bytes) const;
  double permute(dist::AxisSet group, double bytes) const;
  /// `bytes`: what the rank receives that receives most; `peers`: from how
  /// many.
  double exchange(dist::AxisSet group, double bytes, double peers) const;

  /// The least that any message and any byte take.
  double leastLatency() const { return minLatency; }
  double leastSecondsPerByte() const { return minPerByte; }

private:
  struct Level {
    const LinkClass *link;
    int64_t ranks;
  };
  /// The classes that the group crosses, the slowest first.
  llvm::SmallVector<Level, 2> levels(dist::AxisSet group) const;
  /// Latency of a gather.
  static double startOf(const LinkClass &link, int64_t ranks);
  /// Messages to all peers at once.
  double messages(dist::AxisSet group, double bytes, double peers) const;
  void finish();

  llvm::SmallVector<LinkClass> classes; // slowest first
  llvm::SmallVector<unsigned> classOf;  // of each atom
  llvm::SmallVector<int64_t> sizes;     // of each atom
  double minLatency = 0, minPerByte = 0;
};

/// What passes that weigh messages against computing know: the mesh of a
/// module, and the times of a cluster.toml.
struct Machine {
  dist::MeshAxes mesh;
  Cluster cluster;
  LinkModel links;
  /// Errors of the file, and a module with other than one mesh, are reported
  /// there.
  static mlir::FailureOr<Machine> load(mlir::ModuleOp module,
                                       const std::string &file);
};

} // namespace cleave::cost

#endif
