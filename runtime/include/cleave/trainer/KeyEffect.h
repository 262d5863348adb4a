// How a change of a configuration key affects a resumed run.

#ifndef CLEAVE_TRAINER_KEYEFFECT_H
#define CLEAVE_TRAINER_KEYEFFECT_H

#include <span>
#include <string>

namespace cleave {

enum class KeyEffect {
  Mathematics, ///< what is computed
  Layout,      ///< where and how it is computed, but for rounding
  Reporting,   ///< how far and how often; what is said and kept
  /// Changes only the layout, with one exception: in pipelines that update
  /// after each microbatch (asynchronous schedules) it changes the mathematics,
  /// as it decides which weights a microbatch sees.
  LayoutUnlessAsync,
  /// Like LayoutUnlessAsync. It also changes the mathematics if the capacity or
  /// an auxiliary loss of experts applies to each microbatch separately
  /// (parallel.expert.capacity_scope or aux_scope is "microbatch").
  LayoutUnlessPerMicrobatch,
};

struct KeyEffectEntry {
  const char *path; ///< as in the table of keys; "dims.*" for a map
  KeyEffect effect;
};

/// Every key of the configuration.
std::span<const KeyEffectEntry> keyEffects();

/// The effect of a key such as "dims.batch". A key that is not listed changes
/// the mathematics.
KeyEffect effectOfKey(const std::string &key);

} // namespace cleave

#endif // CLEAVE_TRAINER_KEYEFFECT_H
