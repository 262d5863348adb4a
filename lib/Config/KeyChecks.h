// What the values of keys must be beyond their types: each check of the table
// of keys (Keys.cpp) says what is wrong with a value, and nothing when it is
// right; and in words what is allowed, for docs/configuration.md.

#ifndef CLEAVE_LIB_CONFIG_KEYCHECKS_H
#define CLEAVE_LIB_CONFIG_KEYCHECKS_H

#include "Keys.h"

namespace cleave::config::checks {

// Numbers.
extern const Check atLeastZero;
extern const Check threads; ///< what a machine may have
extern const Check atLeastOne;
extern const Check aboveZero;
extern const Check share;
extern const Check twoShares;

// Texts and lists of them.
extern const Check notEmpty;
extern const Check names;
extern const Check architectures;
extern const Check patterns;
extern const Check pairs;
extern const Check lists;
extern const Check loss;
extern const Check noHalf;

// Maps, whose keys the user names.
extern const Check meshSizes;
extern const Check dimSizes;
extern const Check inputSources;
extern const Check boundValues;

// Lists of tables.
extern const Check sequenceKinds;
extern const Check shards;

} // namespace cleave::config::checks

#endif // CLEAVE_LIB_CONFIG_KEYCHECKS_H
