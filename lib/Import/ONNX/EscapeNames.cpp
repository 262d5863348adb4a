// Escaping of names.

#include "EscapeNames.h"
#include "Wire.h"

#include "cleave/io/Escape.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace cleave::importer {

static bool needsEscape(const std::string &text) {
  return text != kSelfLocation && // our own mark
         escaped(text) != text;
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
