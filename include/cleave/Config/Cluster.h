// The description of a machine in a file cluster.toml: the classes of links
// between ranks, and the speed at which a rank computes. docs/cluster.md
// describes the file.
//
// This header is plain C++, without TOML, LLVM or exceptions.

#ifndef CLEAVE_CONFIG_CLUSTER_H
#define CLEAVE_CONFIG_CLUSTER_H

#include "cleave/Config/Load.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cleave {

// A class of links. A rank that has n messages in flight at once waits for
// latency + (n - 1) * message + bytes / bandwidth.
struct LinkClass {
  double latency = 10e-6;       // seconds until the first byte has arrived
  double message = 0.2e-6;      // seconds for every further message
  double bytesPerSecond = 10e9; // of one rank, sending and receiving
  bool operator==(const LinkClass &) const = default;
};

struct Cluster {
  // The name of the description in messages: the path of the file, or the name
  // of the built-in description.
  std::string name = "a CPU (defaults)";
  // The link classes by name. The compiler gives a mesh axis the class "intra"
  // if the axis's groups stay within a node, and "inter" if they span nodes.
  std::map<std::string, LinkClass> links = {{"inter", {30e-6, 1e-6, 2.5e9}},
                                            {"intra", {10e-6, 0.2e-6, 10e9}}};
  int64_t ranksPerNode = 0; // 0: as the key mesh.ranks_per_node says
  // The speed of matrix products on one rank. Each pair gives the FLOP count of
  // a product and the FLOP/s that a product with this count reaches. Pairs are
  // sorted by FLOP count.
  std::vector<std::pair<double, double>> matmul = {
      {1e5, 2e9}, {1e7, 20e9}, {1e9, 50e9}};
  double memoryBytesPerSecond = 10e9; // of copies within a rank's memory
  // The slowdown of compute while messages are in flight: 0.1 means that it
  // takes 10 % longer. The transfer of messages takes cores or multiprocessors,
  // and memory bandwidth, away from compute.
  double contention = 0;

  // Returns the link class of that name, or the class "intra" if there is none.
  const LinkClass &link(const std::string &name) const;
  // Returns the seconds of a matrix product. Between two entries of `matmul`
  // the rate is interpolated on a logarithmic scale.
  double matmulSeconds(double flops) const;
};

// Returns a built-in description: "h100-fp32", "h100-tf32" or "h100-bf16",
// named by the type of matrix products. Returns nullopt for other names.
std::optional<Cluster> builtInCluster(const std::string &name);

// loadCluster loads the built-in description of that name if there is one,
// otherwise the file. loadClusterText takes the content of a file as `text`;
// error messages use `name` as the name of this file. Keys that the file omits
// have their defaults.
ConfigResult<Cluster> loadCluster(const std::string &path);
ConfigResult<Cluster> loadClusterText(const std::string &text,
                                      const std::string &name);

} // namespace cleave

#endif // CLEAVE_CONFIG_CLUSTER_H
