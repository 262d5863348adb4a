// Reads TOML values into the fields of a Config.

#ifndef CLEAVE_LIB_CONFIG_READNODE_H
#define CLEAVE_LIB_CONFIG_READNODE_H

#include "Keys.h"
#include "Toml.h"

namespace cleave::config {

// Returns a description for messages, such as "the string \"a\"" or "a table".
std::string describeNode(const toml::node &node);

// Returns false and leaves the field unchanged if the node has another type.
// `entry` is the name of a map's entry. `raw` is the text of an override, which
// is used for keys that are strings, or null.
bool readNode(const toml::node &node, Field field, const std::string &entry,
              const std::string *raw);

// Returns what is wrong with an entry of a list of tables that could not be
// read, such as "entry 2: unknown key 'dim'; did you mean 'dims'?". Returns ""
// if no entry is wrong.
std::string wrongEntry(const toml::node &node, Field field);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_READNODE_H
