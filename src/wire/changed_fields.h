#pragma once
// Which members of a message say something. Included by the .cpp of field tables alone.
#include <cstddef>
#include <string>
#include <vector>

#include "wire/field.h"

namespace llorch::wire {

// Calls `changed(field, its JSON)` for each field of `of` that is required or does not have its default. The text lives for the call.
template <class S, class Changed>
void for_each_changed(const S& of, Changed changed) {
  static const Fields fields = Table<S>::fields();
  const auto write = [](const Field& field, const S& from, std::string& out) {
    field.codec->write(out, reinterpret_cast<const std::byte*>(&from) + field.offset);
  };
  static const std::vector<std::string> defaults = [&] {
    std::vector<std::string> list(fields.size());
    for (std::size_t i = 0; i < fields.size(); ++i) write(fields[i], {}, list[i]);
    return list;
  }();
  std::string text;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    text.clear();
    write(fields[i], of, text);
    if (fields[i].need == Need::kRequired || text != defaults[i]) changed(fields[i], text);
  }
}

}  // namespace llorch::wire
