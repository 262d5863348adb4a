// The names of tensors in the files of a checkpoint.

#ifndef CLEAVE_TRAINER_CHECKPOINTFILES_H
#define CLEAVE_TRAINER_CHECKPOINTFILES_H

#include "cleave/manifest.h"

#include <string>
#include <vector>

namespace cleave {

inline constexpr const char *modelFile = "model.safetensors";
inline constexpr const char *optimizerFile = "optimizer.safetensors";

/// "wte.weight.m".
inline std::string stateName(const ManifestState &state) {
  return state.parameter.empty() ? state.slot
                                 : state.parameter + "." + state.slot;
}

/// Returns whether this state is a parameter's count of updates. Several
/// parameters may share one count.
inline bool isCount(const ManifestState &state) { return state.slot == "step"; }

/// Returns the names of a tensor in the checkpoint's model file: its own name,
/// or, if the tensor is stored in parts, the names of its parts.
inline std::vector<std::string> fileNamesOf(const ManifestTensor &tensor) {
  std::vector<std::string> names;
  for (const ManifestPart &part : tensor.parts)
    names.push_back(part.name);
  if (names.empty())
    names.push_back(tensor.name);
  return names;
}

/// Returns the optimizer's master copy of a parameter (with higher precision);
/// null if there is none.
inline const ManifestState *masterOf(const Manifest &manifest,
                                     const ManifestTensor &tensor) {
  for (const ManifestState &item : manifest.state)
    if (item.init == "parameter" && item.parameter == tensor.name)
      return &item;
  return nullptr;
}

inline bool isSaved(const ManifestTensor &tensor) {
  return tensor.kind != "constant";
}

/// Throws InputError if the digest of a checkpoint's file is not `expected`.
/// `advice` ends the message.
void checkDigest(const std::string &file, const std::string &expected,
                 const std::string &advice);

} // namespace cleave

#endif // CLEAVE_TRAINER_CHECKPOINTFILES_H
