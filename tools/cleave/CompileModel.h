// From a model to planned command lists, and to an artifact.

#ifndef CLEAVE_TOOLS_COMPILEMODEL_H
#define CLEAVE_TOOLS_COMPILEMODEL_H

#include "Phases.h"

#include "cleave/Compiler/Backend.h"

namespace cleave::driver {

struct Lowered {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  target::ManifestInfo info;
  BackendOptions backend;
  program::Program program;
};

// Phases after which the program can be looked at.
enum class Phase {
  Import, // the model
  Train,  // with the backward pass and the optimizer
  Shard,  // as the program of one rank
};

// Runs the phases up to and including `last`; see lowerModel for the rest.
mlir::OwningOpRef<mlir::ModuleOp>
shardModel(const std::string &path, const Config &config, const Mesh &mesh,
           Purpose purpose, mlir::MLIRContext &context, bool readWeights,
           std::vector<std::string> *remarks = nullptr, bool allRemarks = false,
           Phase last = Phase::Shard);

// What target.kind names.
program::Device deviceOf(const Config &config);

// Bytes of the machine that a rank can have: all ranks run on it.
int64_t memoryOfRank(const Mesh &mesh);

// What can be known to be wrong of a training run once @loss is there. Fails
// with BadUsage.
void checkTraining(mlir::ModuleOp model, const Config &config,
                   const Mesh &mesh);

// Threads of a rank: as configured, else the cores shared among the ranks, and
// one where a device computes.
int64_t threadsPerRank(const Config &config, const Mesh &mesh);

// Runs all phases but the writing of files. Fails with BadUsage. `remarks`:
// where remarks go, or null: to stderr; `allRemarks`: also where every sharding
// comes from. `memoryLimit`: bytes that a rank can have where the configuration
// does not say so; 0: any. A pipeline that needs more than that with messages
// that start early gets the plain order, if it fits then.
Lowered lowerModel(const std::string &path, const Config &config,
                   const Mesh &mesh, Purpose purpose,
                   mlir::MLIRContext &context, bool readWeights,
                   std::vector<std::string> *remarks = nullptr,
                   bool allRemarks = false, int64_t memoryLimit = 0);

// And writes the artifact.
void compileModel(const std::string &path, const Config &config,
                  const Mesh &mesh, Purpose purpose, bool readWeights,
                  const std::string &folder);

// The folder of a compiled model in the cache, compiled now if it is not there.
std::string compileCached(const std::string &path, const Config &config,
                          const Mesh &mesh, Purpose purpose,
                          const std::string &cache);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_COMPILEMODEL_H
