// Checks of configuration values beyond their types. A check in the table of
// keys (Keys.cpp) returns what is wrong with a value, or "" if the value is
// allowed. The check also describes the allowed values, for
// docs/configuration.md.

#ifndef CLEAVE_LIB_CONFIG_KEYCHECKS_H
#define CLEAVE_LIB_CONFIG_KEYCHECKS_H

#include "Keys.h"

namespace cleave::config::checks {

// Numbers.
extern const Check atLeastZero;
extern const Check threads; ///< a number of threads that a machine may have
extern const Check atLeastOne;
extern const Check aboveZero;
extern const Check share;
extern const Check twoShares;

// Checks of keys whose values are strings or lists of strings.
extern const Check notEmpty;
extern const Check names;
extern const Check architectures;
extern const Check patterns;
extern const Check pairs;
extern const Check lists;
extern const Check loss;
extern const Check noHalf;

// Checks of maps in which the user chooses the keys.
extern const Check meshSizes;
extern const Check dimSizes;
extern const Check inputSources;
extern const Check boundValues;

// Checks of lists of tables.
extern const Check sequenceKinds;
extern const Check shards;

} // namespace cleave::config::checks

#endif // CLEAVE_LIB_CONFIG_KEYCHECKS_H
