// Names of a file are printed in messages and tables: what would move a
// terminal's cursor, or begin a line of its own, is escaped when they are read.

#ifndef CLEAVE_LIB_IMPORT_ONNX_ESCAPENAMES_H
#define CLEAVE_LIB_IMPORT_ONNX_ESCAPENAMES_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace google::protobuf {
class Message;
} // namespace google::protobuf

namespace cleave::importer {

/// escaped() (cleave/io/Escape.h) of all names of a message and of those
/// inside. Descriptions and metadata, which have lines, and bytes stay as they
/// are.
void escapeNames(google::protobuf::Message &message);

} // namespace cleave::importer

#endif
