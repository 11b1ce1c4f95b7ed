#include "adapter/setup/known_engines.h"

#include <fmt/core.h>

#include <boost/json.hpp>

#include "base/assert.h"
#include "config/engine_rules.h"

namespace llorch::adapter::setup {

namespace bj = boost::json;

std::optional<KnownEngine> known_engine(std::string_view id, std::string_view device) {
  const std::string_view text = known_engines_json();
  boost::system::error_code ec;
  const bj::value all = bj::parse(bj::string_view(text.data(), text.size()), ec);
  ASSERT(!ec, "known_engines.json: {}", ec.message());
  for (const bj::value& each : all.at("engines").as_array()) {
    const auto member = [&each](const char* name) { return std::string(each.at(name).as_string().c_str()); };
    if (member("id") != id || member("device") != device) continue;
    auto entry = config::parse_engine(bj::serialize(each.at("entry")));
    ASSERT(entry.has_value(), "known_engines.json: {}: {}", id, entry.error().message);
    return KnownEngine{member("id"), member("about"), member("licence"), std::move(*entry)};
  }
  return std::nullopt;
}

void fill_in(config::EngineConfig& entry, std::string_view name, std::string_view value) {
  const std::string place = fmt::format("{{{}}}", name);
  for (std::string& word : entry.command) {
    for (std::size_t at = word.find(place); at != std::string::npos; at = word.find(place, at + value.size())) {
      word.replace(at, place.size(), value);
    }
  }
}

}  // namespace llorch::adapter::setup
