// TOML values as the fields of a Config.

#ifndef CLEAVE_LIB_CONFIG_READNODE_H
#define CLEAVE_LIB_CONFIG_READNODE_H

#include "Keys.h"
#include "Toml.h"

namespace cleave::config {

// "the string \"a\"", "a table": for messages.
std::string describeNode(const toml::node &node);

// False, with the field as it was, where the node is of another type. `entry`:
// which one of a map. `raw`: the text of an override, which is a string where
// one is wanted; else null.
bool readNode(const toml::node &node, Field field, const std::string &entry,
              const std::string *raw);

// What is wrong with an entry of a list of tables that could not be read:
// "entry 2: unknown key 'dim'; did you mean 'dims'?"; empty where no entry is.
std::string wrongEntry(const toml::node &node, Field field);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_READNODE_H
