// Reads TOML values into the fields of a Config.

#ifndef CLEAVE_LIB_CONFIG_READNODE_H
#define CLEAVE_LIB_CONFIG_READNODE_H

#include "Keys.h"
#include "Toml.h"

namespace cleave::config {

// Returns a description for messages, such as "the string \"a\"" or "a table".
std::string describeNode(const toml::node &node);

// Reads a TOML node into a field. Returns false and leaves the field unchanged
// if the field cannot have the node's type. `entry` is the name of the entry if
// the field is a map. `raw`, which may be null, is the text of a --set
// override, which a field of string type takes as it is.
bool readNode(const toml::node &node, Field field, const std::string &entry,
              const std::string *raw);

// Returns which entry of a list of tables (such as [[shard]]) could not be read
// and why, such as "entry 2: unknown key 'dim'; did you mean 'dims'?". Returns
// "" if no entry is wrong.
std::string wrongEntry(const toml::node &node, Field field);

} // namespace cleave::config

#endif // CLEAVE_LIB_CONFIG_READNODE_H
