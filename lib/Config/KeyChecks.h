// What the values of keys must be beyond their types: each check of the table
// of keys (Keys.cpp) says what is wrong with a value, and nothing when it is
// right.

#ifndef CLEAVE_LIB_CONFIG_KEYCHECKS_H
#define CLEAVE_LIB_CONFIG_KEYCHECKS_H

#include "Keys.h"

namespace cleave::config::checks {

// Numbers.
std::string atLeastZero(Field field);
std::string threads(Field field); ///< what a machine may have
std::string atLeastOne(Field field);
std::string aboveZero(Field field);
std::string share(Field field);
std::string twoShares(Field field);

// Texts and lists of them.
std::string notEmpty(Field field);
std::string names(Field field);
std::string architectures(Field field);
std::string patterns(Field field);
std::string pairs(Field field);
std::string lists(Field field);
std::string loss(Field field);
std::string noHalf(Field field);

// Maps, whose keys the user names.
std::string meshSizes(Field field);
std::string dimSizes(Field field);
std::string inputSources(Field field);
std::string boundValues(Field field);

// Lists of tables.
std::string sequenceKinds(Field field);
std::string shards(Field field);

} // namespace cleave::config::checks

#endif // CLEAVE_LIB_CONFIG_KEYCHECKS_H
