// What a key of the configuration changes, where a run goes on with another
// value of it.

#ifndef CLEAVE_TRAINER_KEYEFFECT_H
#define CLEAVE_TRAINER_KEYEFFECT_H

#include <span>
#include <string>

namespace cleave {

enum class KeyEffect {
  Mathematics, ///< what is computed
  Layout,      ///< where and how it is computed, but for rounding
  Reporting,   ///< how far and how often; what is said and kept
  /// Layout, but mathematics where a pipeline updates after each microbatch:
  /// the weights that a microbatch sees depend on it.
  LayoutUnlessAsync,
  /// The same, and where experts compare the loads of a microbatch.
  LayoutUnlessPerMicrobatch,
};

struct KeyEffectEntry {
  const char *path; ///< as in the table of keys; "dims.*" for a map
  KeyEffect effect;
};

/// Every key of the configuration.
std::span<const KeyEffectEntry> keyEffects();

/// Of "dims.batch"; a key that is not listed changes the mathematics.
KeyEffect effectOfKey(const std::string &key);

} // namespace cleave

#endif // CLEAVE_TRAINER_KEYEFFECT_H
