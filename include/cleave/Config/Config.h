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
  // The axes, the one with the slowest links first; empty: the default order.
  std::vector<std::string> axes;
  // The size of each axis. -1: the number of ranks divided by all other sizes.
  std::map<std::string, int64_t> sizes;
  int64_t ranksPerNode = 0; // 0: all ranks are on one node
};

// [data]
struct DataConfig {
  std::string path;
  std::string dtype = "uint16";
  std::string tokens; // "": the only integer [batch, sequence] input
  std::string labels = "next";
  int64_t ignoreIndex = -100;
  // The value of an input for all samples and steps: FILE.npy or a number.
  std::map<std::string, std::string> bind;
  // What feeds an input: "ones", "zeros", "arange" or the name of an array.
  std::map<std::string, std::string> inputs = {{"attention_mask", "ones"},
                                               {"position_ids", "arange"}};
  int64_t seed = 0;
  double validation = 0.1;
  std::string shuffleSplit = "auto"; // "auto" | "true" | "false"
  std::string evalPath;              // data for validation; "": part of `path`
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
  double clipNorm = 1.0; // limit of the global gradient norm; 0: no clipping
  std::string schedule = "cosine";
  int64_t warmupSteps = 0;
  double minLr = 0.0;
  int64_t steps = 100;
  int64_t microbatches = 1;
  std::string precision = "fp32";
  std::string gradDtype; // "": the type that `precision` computes in
  std::string reduceDtype = "fp32";
  std::string masterDtype = "fp32";
  // The longest time between checkpoints in minutes; 0: no limit.
  double saveMinutes = 10;
  // The number of newest checkpoints of a run that are kept; 0: all are kept.
  int64_t keep = 3;
  std::string onNan = "stop";
  std::string logits; // the output that the loss reads; "": the only candidate
  std::vector<std::vector<std::string>> tie;
  std::vector<std::string> untie;
  double dropout = 0.0;
  int64_t seed = 0;
  std::vector<std::string> trainable = {".*"};
  std::vector<std::string> frozen;
  // Groups of names of parameters that began to train later than all other
  // parameters (after a resume with other `trainable` parameters). The
  // parameters of one group began at the same time.
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
  // The room for tokens in a receive buffer, as a multiple of the tokens that
  // arrive if routing is balanced.
  double maxLoad = 2.0;
  double capacity = 0.0; // capacity factor; 0: no token is dropped
  std::string capacityScope = "sequence";
  double auxLoss = 0.0;
  double zLoss = 0.0;
  std::string auxScope = "sequence";
  double biasUpdate = 0.0; // change of a router's bias per step; 0: none
};

struct PipelineConfig {
  bool enabled = true;
  std::string axis = "pipeline";
  std::string schedule = "1f1b";
  int64_t chunks = 0; // stages per rank; 0: as many as the schedule needs
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

// An entry [[shard]] of the configuration: `match` is a regular expression for
// names of parameters, and dims[i] lists the mesh axes that shard dimension i
// of these parameters, the major axis first.
struct ShardConfig {
  std::string match;
  std::vector<std::vector<std::string>> dims;
  // The shape that `dims` refers to; empty: the parameter's shape in the file.
  std::vector<int64_t> view;
  bool operator==(const ShardConfig &) const = default;
};

// [target]
struct TargetConfig {
  std::string kind = "cpu"; // cpu | cuda
  std::vector<std::string> architectures = {"sm_80", "sm_90", "sm_100"};
  std::string transport = "auto";
  int64_t threadsPerRank = 0; // 0: cores / ranks; 1 with kind cuda
  std::string cluster;
  bool overlap = true; // collectives overlap with compute
  double memory = 0;   // GiB that a rank may use; 0: what the machine has
};

// [import]: the largest number of elements of constants that the import
// evaluates, and of nodes that calls of the model's functions expand to.
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

// A mesh of ranks: the name and size of each axis, the axis with the slowest
// links first. `axes` is empty for one rank.
struct Mesh {
  std::vector<std::pair<std::string, int64_t>> axes;

  int64_t ranks() const;
  // Returns the size of the axis, or 1 if the mesh has no such axis.
  int64_t size(const std::string &axis) const;
};

} // namespace cleave

#endif // CLEAVE_CONFIG_CONFIG_H
