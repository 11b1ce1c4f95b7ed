#include "base/append.h"

#include <fmt/format.h>

namespace llorch::base {

void append_formatted(std::string& out, fmt::string_view format, fmt::format_args arguments) {
  fmt::memory_buffer text;
  fmt::vformat_to(fmt::appender(text), format, arguments);
  out.append(text.data(), text.size());
}

}  // namespace llorch::base
