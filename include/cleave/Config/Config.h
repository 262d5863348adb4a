// The configuration of a run, as given by parallel.toml and --set, in plain
// values. Every member's initializer is the key's default. lib/Config/Keys.cpp
// defines the name, the help and the checks of each key, and whether the key is
// supported.
//
// This header is plain C++, without TOML, LLVM or exceptions.

#ifndef CLEAVE_CONFIG_CONFIG_H
#define CLEAVE_CONFIG_CONFIG_H

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cleave {

// [mesh]
struct MeshConfig {
  std::vector<std::string> axes;        // slowest first; empty: default order
  std::map<std::string, int64_t> sizes; // -1: what is left of the rank count
  int64_t ranksPerNode = 0;             // 0: all ranks on one node
};

// [data]
struct DataConfig {
  std::string path;
  std::string dtype = "uint16";
  std::string tokens; // "": the only integer [batch, sequence] input
  std::string labels = "next";
  int64_t ignoreIndex = -100;
  std::map<std::string, std::string> bind; // FILE.npy or a number
  std::map<std::string, std::string> inputs = {{"attention_mask", "ones"},
                                               {"position_ids", "arange"}};
  int64_t seed = 0;
  double validation = 0.1;
  std::string shuffleSplit = "auto"; // "auto" | "true" | "false"
  std::string evalPath;              // separate data for validation
};

// [train]
struct TrainConfig {
  std::string loss = "cross_entropy"; // or "mse", "output:NAME"
  std::string optimizer = "adamw";
  double lr = 3e-4;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weightDecay = 0.01;
  std::vector<std::string> noDecay;
  double momentum = 0.9;
  double clipNorm = 1.0; // 0: off
  std::string schedule = "cosine";
  int64_t warmupSteps = 0;
  double minLr = 0.0;
  int64_t steps = 100;
  int64_t microbatches = 1;
  std::string precision = "fp32";
  std::string gradDtype; // "": follows precision
  std::string reduceDtype = "fp32";
  std::string masterDtype = "fp32";
  double saveMinutes = 10; // most between checkpoints; 0: no limit
  int64_t keep = 3;        // checkpoints of a run; 0: all
  std::string onNan = "stop";
  std::string logits; // "": the only candidate
  std::vector<std::vector<std::string>> tie;
  std::vector<std::string> untie;
  double dropout = 0.0;
  int64_t seed = 0;
  std::vector<std::string> trainable = {".*"};
  std::vector<std::string> frozen;
  // Groups of parameter names. The parameters of each group began to train at
  // the same time, later than the parameters that no group names.
  std::vector<std::vector<std::string>> began;
};

// The section [parallel]. A strategy whose `enabled` is true uses its mesh axis
// if the mesh has that axis. For example, `data = false` in the file sets
// `enabled` of data parallelism to false.
struct DataParallelConfig {
  bool enabled = true;
  std::string axis = "data";
  std::string replicate;
  int64_t zero = 0;
  std::string zero2Reduce = "per_step";
  bool reshardAfterForward = true;
};

struct TensorParallelConfig {
  bool enabled = true;
  std::string axis = "tensor";
  std::string layout = "1d";
  std::vector<std::string> axes;
};

struct SequenceParallelConfig {
  std::string kind; // "megatron" | "ulysses" | "ring"
  std::string axis;
  std::string savedInput = "shard";
  // For kind ring: `plan` is "auto", "ring" or "gather"; the order of positions
  // is "zigzag" or "plain".
  std::string plan = "auto";
  std::string order = "zigzag";
  bool operator==(const SequenceParallelConfig &) const = default;
};

struct ExpertParallelConfig {
  bool enabled = true;
  std::string axis = "expert";
  std::string tensorAxis;
  std::string exchange = "auto"; // "auto" | "direct" | "hierarchical"
  double maxLoad = 2.0;          // buffer size, in balanced loads
  double capacity = 0.0;         // 0: dropless
  std::string capacityScope = "sequence";
  double auxLoss = 0.0;
  double zLoss = 0.0;
  std::string auxScope = "sequence";
  double biasUpdate = 0.0; // change of a router's bias per step
};

struct PipelineConfig {
  bool enabled = true;
  std::string axis = "pipeline";
  std::string schedule = "1f1b";
  int64_t chunks = 0; // 0: what the schedule needs
  std::vector<std::string> stages;
  std::string table;
};

struct ParallelConfig {
  DataParallelConfig data;
  TensorParallelConfig tensor;
  std::vector<SequenceParallelConfig> sequence; // inner first
  ExpertParallelConfig expert;
  PipelineConfig pipeline;
  std::string recompute = "none";
  std::string offloadOptimizer = "device";
};

// An entry [[shard]]: dims[i] lists the mesh axes that shard dimension i of the
// parameters that `match` names, major axis first.
struct ShardConfig {
  std::string match;
  std::vector<std::vector<std::string>> dims;
  std::vector<int64_t> view; // empty: the parameter's own shape
  bool operator==(const ShardConfig &) const = default;
};

// [target]
struct TargetConfig {
  std::string kind = "cpu"; // cpu | cuda
  std::vector<std::string> architectures = {"sm_80", "sm_90", "sm_100"};
  std::string transport = "auto";
  int64_t threadsPerRank = 0; // 0: cores / local ranks
  std::string cluster;
  bool overlap = true; // of collectives with compute
  double memory = 0;   // GiB that a rank may use; 0: all there is
};

// [import]
struct ImportConfig {
  int64_t evaluatedElements = int64_t(1) << 27;
  int64_t inlinedNodes = 200'000;
};

struct Config {
  MeshConfig mesh;
  std::map<std::string, int64_t> dims; // symbolic dimension -> size
  DataConfig data;
  TrainConfig train;
  ParallelConfig parallel;
  std::vector<ShardConfig> shard;
  TargetConfig target;
  ImportConfig importing;
};

// The mesh with all sizes known, slowest axis first. The mesh is empty for one
// rank.
struct Mesh {
  std::vector<std::pair<std::string, int64_t>> axes;

  int64_t ranks() const;
  // Returns the size of the axis, or 1 if the mesh has no such axis.
  int64_t size(const std::string &axis) const;
};

} // namespace cleave

#endif // CLEAVE_CONFIG_CONFIG_H
