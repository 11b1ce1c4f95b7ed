#pragma once
// What the tables of several sections need. Included by the tables alone.
#include <charconv>

#include "base/id.h"
#include "config/config.h"
#include "wire/field.h"

namespace llorch::wire {

using namespace config;  // NOLINT(google-build-using-namespace): field tables are specialised where their template is

constexpr Bounds kMilliseconds{0, 1e12};
constexpr Bounds kPositiveMilliseconds{1, 1e12};

inline base::Result<> check_bind(const std::string& bind, std::string_view field) {
  const std::size_t colon = bind.rfind(':');
  int port = -1;
  if (colon != std::string::npos && colon > 0) {
    const char* end = bind.data() + bind.size();
    const auto [last, error] = std::from_chars(bind.data() + colon + 1, end, port);
    if (error != std::errc() || last != end) port = -1;
  }
  if (port < 0 || port > 65535) {
    return field_error(field, "bind", fmt::format("{} must be ADDRESS:PORT, e.g. 127.0.0.1:8080", field));
  }
  return {};
}

}  // namespace llorch::wire
