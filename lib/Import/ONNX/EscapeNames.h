// Escapes the names of an ONNX file when they are read, because they are
// printed in messages and tables: characters that would move a terminal's
// cursor or start a new line become visible.

#ifndef CLEAVE_LIB_IMPORT_ONNX_ESCAPENAMES_H
#define CLEAVE_LIB_IMPORT_ONNX_ESCAPENAMES_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace google::protobuf {
class Message;
} // namespace google::protobuf

namespace cleave::importer {

/// Applies escaped() (cleave/io/Escape.h) to all names of a protobuf message
/// and its nested messages. Descriptions, metadata and bytes are unchanged.
void escapeNames(google::protobuf::Message &message);

} // namespace cleave::importer

#endif
