// The protobuf wire format, limited to what is needed to find bytes in a file.

#ifndef CLEAVE_LIB_IMPORT_ONNX_WIRE_H
#define CLEAVE_LIB_IMPORT_ONNX_WIRE_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>

namespace cleave::importer {

/// One field of a message. `payload` is the content of a length-delimited field
/// and `raw` all bytes of the field with its tag.
struct WireField {
  uint32_t number = 0;
  uint32_t type = 0;
  uint64_t varint = 0;
  llvm::StringRef payload, raw;
};

/// Walks over the fields of one message.
class WireReader {
public:
  explicit WireReader(llvm::StringRef bytes) : rest(bytes) {}
  /// Returns the next field; false at the end, or if the bytes are malformed.
  bool next(WireField &field);
  bool failed() const { return broken; }

private:
  bool readVarint(uint64_t &value);
  llvm::StringRef rest;
  bool broken = false;
};

void appendVarint(std::string &out, uint64_t value);
void appendBytesField(std::string &out, uint32_t number, llvm::StringRef bytes);
void appendVarintField(std::string &out, uint32_t number, uint64_t value);

/// The location that stands for the model's own file in external data entries
/// made by `stripTensors`; no valid path contains it.
inline constexpr llvm::StringLiteral kSelfLocation = "\x01self";

/// Copies a serialized ModelProto without the bytes of its tensors: each raw or
/// packed float field is replaced by an external data entry at `kSelfLocation`,
/// so that weights are never parsed. Small integer tensors stay inline. Returns
/// false if the bytes are not a valid message.
bool stripTensors(llvm::StringRef model, std::string &stripped);

} // namespace cleave::importer

#endif
