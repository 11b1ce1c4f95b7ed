// llorch config: what is configured, and whether it may be.
#include <fmt/core.h>

#include <boost/json.hpp>
#include <cstdlib>

#include "cli/commands.h"
#include "cli/pager.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;

// "orchestratord.queue.capacity = 100" for every value, those that are not the default's marked. Lists and maps of names are one value.
void print_values(const bj::object& object, const bj::object& defaults, const std::string& prefix, bool changed_only) {
  for (const auto& member : object) {
    const std::string key = prefix + std::string(member.key());
    const bj::value* const usual = defaults.if_contains(member.key());
    const bool is_section =
        member.value().is_object() && usual != nullptr && usual->is_object() && !usual->get_object().empty();
    if (is_section) {
      print_values(member.value().get_object(), usual->get_object(), key + ".", changed_only);
      continue;
    }
    const bool is_changed = usual == nullptr || *usual != member.value();
    if (changed_only && !is_changed) continue;
    fmt::print("{} {} = {}\n", is_changed ? "*" : " ", key, bj::serialize(member.value()));
  }
}

}  // namespace

int show_config(const GlobalOptions& global, bool changed_only) {
  const auto config = load_config(global);
  if (!config) return report(config.error(), global.json);
  const std::string text = config::redacted_json(*config);
  if (global.json) return fmt::print("{}\n", text), kOk;
  const Pager pager(true);
  print_values(bj::parse(text).as_object(), bj::parse(config::redacted_json({})).as_object(), "", changed_only);
  return kOk;
}

int show_config_schema(const GlobalOptions& global) {
  const Pager pager(!global.json);
  fmt::print("{}\n", config::config_json_schema());
  return kOk;
}

base::Result<> check_config(const GlobalOptions& global) {
  const auto getenv = [](const char* name) { return std::getenv(name); };
  const config::Config config = TRY(load_config(global));
  const std::string token = TRY(config::load_api_token(config, getenv));
  TRY(config::load_tenant_tokens(config, token));
  TRY(config::load_reader_tokens(config, token));
  TRY(config::load_postgresql_connection(config));
  return {};
}

int validate_config(const GlobalOptions& global, const std::string& file) {
  GlobalOptions named = global;
  if (!file.empty()) named.config_file = file;
  if (const auto checked = check_config(named); !checked) return report(checked.error(), global.json);
  fmt::print("{}\n", global.json ? R"({"valid":true})" : "the configuration is valid");
  return kOk;
}

}  // namespace llorch::cli
