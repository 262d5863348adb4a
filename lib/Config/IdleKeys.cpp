// Finds configuration keys that the user has set but that have no effect.

#include "cleave/Config/Load.h"

#include <utility>

using namespace cleave;

std::vector<std::string> cleave::idleKeys(const LoadedConfig &loaded,
                                          const Mesh &mesh) {
  std::vector<std::string> found;
  auto warn = [&](std::string text) { found.push_back(std::move(text)); };
  const Config &config = loaded.config;
  const PipelineConfig &pipeline = config.parallel.pipeline, standard;
  // The config.toml of a run has all keys. So a resumed run has set them all,
  // and a key with its default value is not reported.
  auto isSet = [&](const char *key, bool differs) {
    return differs && loaded.origins.count(key);
  };
  for (auto [key, differs] :
       {std::pair("parallel.pipeline.schedule",
                  pipeline.schedule != standard.schedule),
        {"parallel.pipeline.chunks", pipeline.chunks != standard.chunks},
        {"parallel.pipeline.stages", pipeline.stages != standard.stages},
        {"parallel.pipeline.table", pipeline.table != standard.table}})
    if (isSet(key, differs) && mesh.size(pipeline.axis) <= 1)
      warn(std::string(key) + " does nothing: the mesh has no axis '" +
           pipeline.axis + "' of several ranks (mesh." + pipeline.axis +
           "=N makes one)");
  if (isSet("parallel.pipeline.table",
            pipeline.schedule != "custom" && !pipeline.table.empty()) &&
      mesh.size(pipeline.axis) > 1)
    warn("parallel.pipeline.table does nothing: parallel.pipeline.schedule is "
         "\"" +
         pipeline.schedule + "\", not \"custom\"");
  const ExpertParallelConfig &expert = config.parallel.expert;
  if (isSet("parallel.expert.capacity_scope",
            expert.capacity == 0 &&
                expert.capacityScope != ExpertParallelConfig().capacityScope))
    warn("parallel.expert.capacity_scope does nothing: "
         "parallel.expert.capacity is 0, so that experts take all slots");
  if (isSet("train.warmup_steps",
            config.train.warmupSteps >= config.train.steps &&
                loaded.origins.count("train.steps")))
    warn("train.warmup_steps = " + std::to_string(config.train.warmupSteps) +
         " of train.steps = " + std::to_string(config.train.steps) +
         ": the learning rate only rises");
  return found;
}
