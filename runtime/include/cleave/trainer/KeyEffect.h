// Says how a change of a configuration key affects a resumed run.

#ifndef CLEAVE_TRAINER_KEYEFFECT_H
#define CLEAVE_TRAINER_KEYEFFECT_H

#include <span>
#include <string>

namespace cleave {

enum class KeyEffect {
  Mathematics, ///< what is computed
  Layout,      ///< where and how; only rounding changes
  Reporting,   ///< run length, reports, kept checkpoints
  /// Changes only the layout, with one exception: in pipelines that update
  /// after each microbatch (asynchronous schedules) it changes the mathematics,
  /// because it decides which version of the weights a microbatch uses.
  LayoutUnlessAsync,
  /// Like LayoutUnlessAsync. It also changes the mathematics if the capacity or
  /// an auxiliary loss of experts applies to each microbatch separately
  /// (parallel.expert.capacity_scope or aux_scope is "microbatch").
  LayoutUnlessPerMicrobatch,
};

struct KeyEffectEntry {
  const char *path; ///< as in docs/configuration.md; map: "dims.*"
  KeyEffect effect;
};

/// Returns the effect of every key of the configuration.
std::span<const KeyEffectEntry> keyEffects();

/// Returns the effect of a key such as "dims.batch". A key that is not listed
/// changes the mathematics.
KeyEffect effectOfKey(const std::string &key);

} // namespace cleave

#endif // CLEAVE_TRAINER_KEYEFFECT_H
