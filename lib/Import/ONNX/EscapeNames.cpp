// Escaping of control characters in names.

#include "EscapeNames.h"
#include "Wire.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "llvm/ADT/StringExtras.h"

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using llvm::StringRef;

namespace cleave::importer {

/// U+0080 to U+009F in UTF-8, which some terminals obey.
static bool isControlPair(StringRef text) {
  return text.size() >= 2 && uint8_t(text[0]) == 0xc2 &&
         uint8_t(text[1]) >= 0x80 && uint8_t(text[1]) < 0xa0;
}

static bool isControl(char c) { return uint8_t(c) < 0x20 || c == 0x7f; }

static bool needsEscape(StringRef text) {
  if (text == kSelfLocation) // our own mark
    return false;
  for (size_t at = 0; at < text.size(); ++at)
    if (isControl(text[at]) || isControlPair(text.drop_front(at)))
      return true;
  return false;
}

std::string escaped(StringRef text) {
  std::string result;
  for (; !text.empty(); text = text.drop_front()) {
    char c = text[0];
    if (isControl(c)) {
      result += "\\x" + llvm::utohexstr(uint8_t(c), /*LowerCase=*/false,
                                        /*Width=*/2);
    } else if (isControlPair(text)) {
      text = text.drop_front();
      result += "\\u00" + llvm::utohexstr(uint8_t(text[0]));
    } else {
      result.push_back(c);
    }
  }
  return result;
}

void escapeNames(Message &message) {
  const Reflection &reflection = *message.GetReflection();
  std::vector<const FieldDescriptor *> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor *field : fields) {
    if (field->name() == "doc_string" || field->name() == "metadata_props")
      continue;
    bool isMessage = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!isMessage && field->type() != FieldDescriptor::TYPE_STRING)
      continue;
    std::string text;
    if (!field->is_repeated()) {
      if (isMessage) {
        escapeNames(*reflection.MutableMessage(&message, field));
        continue;
      }
      const std::string &name =
          reflection.GetStringReference(message, field, &text);
      if (needsEscape(name))
        reflection.SetString(&message, field, escaped(name));
      continue;
    }
    for (int i = 0, count = reflection.FieldSize(message, field); i < count;
         ++i) {
      if (isMessage) {
        escapeNames(*reflection.MutableRepeatedMessage(&message, field, i));
        continue;
      }
      const std::string &name =
          reflection.GetRepeatedStringReference(message, field, i, &text);
      if (needsEscape(name))
        reflection.SetRepeatedString(&message, field, i, escaped(name));
    }
  }
}

} // namespace cleave::importer
