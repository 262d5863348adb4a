// What cluster.toml says about the machine: links between ranks by class, and
// how fast a rank computes. docs/cluster.md describes the file.
//
// Plain C++: no TOML, no LLVM, no exceptions.

#ifndef CLEAVE_CONFIG_CLUSTER_H
#define CLEAVE_CONFIG_CLUSTER_H

#include "cleave/Config/Load.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cleave {

// A class of links. A rank that has n messages in flight at once waits latency
// + (n - 1) * message + bytes / bandwidth.
struct LinkClass {
  double latency = 10e-6;       // seconds until the first byte has arrived
  double message = 0.2e-6;      // seconds for every further message
  double bytesPerSecond = 10e9; // of one rank, sending and receiving
  bool operator==(const LinkClass &) const = default;
};

struct Cluster {
  std::string name = "a CPU (defaults)"; // or the file, or a built-in name
  // By name. The compiler gives a mesh axis the class "intra" where its groups
  // stay on a node and "inter" where they leave it.
  std::map<std::string, LinkClass> links = {{"inter", {30e-6, 1e-6, 2.5e9}},
                                            {"intra", {10e-6, 0.2e-6, 10e9}}};
  int64_t ranksPerNode = 0; // 0: mesh.ranks_per_node decides
  // Rate of matrix products of one rank, FLOP -> FLOP/s, ascending.
  std::vector<std::pair<double, double>> matmul = {
      {1e5, 2e9}, {1e7, 20e9}, {1e9, 50e9}};
  double memoryBytesPerSecond = 10e9; // of local copies
  // How much longer compute takes while messages are in flight, as a share of
  // its time: they use cores, or multiprocessors, and memory bandwidth.
  double contention = 0;

  // The class with that name, or "intra" if there is none.
  const LinkClass &link(const std::string &name) const;
  // Seconds of a matrix product. Between two entries of `matmul` the rate is
  // interpolated on a logarithmic scale.
  double matmulSeconds(double flops) const;
};

// Built-in descriptions: "h100-fp32", "h100-tf32", "h100-bf16", by the type of
// matrix products. Nothing for other names.
std::optional<Cluster> builtInCluster(const std::string &name);

// Loads the built-in description of that name, else the file; or the text of a
// file, which messages call `name`. Keys that the file leaves out have their
// defaults.
ConfigResult<Cluster> loadCluster(const std::string &path);
ConfigResult<Cluster> loadClusterText(const std::string &text,
                                      const std::string &name);

} // namespace cleave

#endif // CLEAVE_CONFIG_CLUSTER_H
