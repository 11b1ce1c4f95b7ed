#include "config/config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/file.h"
#include "base/id.h"
#include "base/json_view.h"
#include "base/log.h"
#include "config/config_fields.h"
#include "config/environment.h"

namespace llorch::config {

namespace bj = boost::json;
using wire::Codec;
using wire::UnknownKeys;

namespace {

constexpr const char* kFileVariable = "LLORCH_CONFIG";

tl::unexpected<base::Error> config_error(std::string message) {
  return base::fail(base::ErrorCode::kConfigInvalid, std::move(message));
}

// A text value as JSON, read as the schema says; what does not fit stays a string for the decoder to refuse.
bj::value scalar(const std::string& text, const bj::object& schema) {
  const auto* type = schema.if_contains("type");
  if (type == nullptr || *type == "string") return bj::value(bj::string_view(text));
  const char* end = text.data() + text.size();
  if (*type == "boolean") {
    if (text == "true") return true;
    if (text == "false") return false;
  } else if (*type == "integer") {
    std::int64_t number = 0;
    const auto [last, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && last == end) return number;
  } else if (*type == "number") {
    double number = 0;
    const auto [last, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && last == end) return number;
  } else if (*type == "array") {
    const auto* of = schema.if_contains("items");
    if (of != nullptr && of->is_object() && of->get_object().contains("properties")) {  // a list of entries is JSON
      bj::error_code ec;
      bj::value list = bj::parse(bj::string_view(text.data(), text.size()), ec);
      if (!ec) return list;
    }
    bj::array items;  // a comma-separated list, for flags and environment
    std::size_t start = 0;
    while (start <= text.size() && !text.empty()) {
      const std::size_t comma = std::min(text.find(',', start), text.size());
      if (comma > start) items.emplace_back(bj::string_view(text.data() + start, comma - start));
      start = comma + 1;
    }
    return items;
  }
  return bj::value(bj::string_view(text));
}

const bj::object& child_schema(const bj::object& schema, std::string_view name) {
  static const bj::object kAny;
  const bj::string_view key(name.data(), name.size());
  if (const auto* properties = schema.if_contains("properties")) {
    if (const auto* child = properties->get_object().if_contains(key)) return child->get_object();
  }
  if (const auto* more = schema.if_contains("additionalProperties"); more != nullptr && more->is_object()) {
    return more->get_object();
  }
  return kAny;
}

bj::value to_json(const YAML::Node& node, const bj::object& schema, int depth) {
  if (depth > 16) return nullptr;
  if (node.IsMap()) {
    bj::object out;
    for (const auto& item : node) {
      const std::string key = item.first.as<std::string>();
      out[key] = to_json(item.second, child_schema(schema, key), depth + 1);
    }
    return out;
  }
  if (node.IsSequence()) {
    bj::array out;
    const auto* items = schema.if_contains("items");
    for (const auto& item : node) {
      out.push_back(to_json(item, items != nullptr ? items->get_object() : bj::object{}, depth + 1));
    }
    return out;
  }
  if (node.IsScalar()) return scalar(node.Scalar(), schema);
  // "queue:" with nothing below it is a section without entries, not a value.
  if (const auto* type = schema.if_contains("type"); type != nullptr && *type == "object") return bj::object{};
  return nullptr;
}

// Every leaf of the schema with its dotted key.
void leaves(const bj::object& schema, const std::string& path,
            std::vector<std::pair<std::string, const bj::object*>>& out) {
  const auto* properties = schema.if_contains("properties");
  if (properties == nullptr) {
    out.emplace_back(path, &schema);
    return;
  }
  for (const auto& [name, child] : properties->get_object()) {
    const std::string key(name.data(), name.size());
    leaves(child.get_object(), path.empty() ? key : path + "." + key, out);
  }
}

bj::value& member(bj::value& parent, std::string_view name) {
  if (!parent.is_object()) parent.emplace_object();
  return parent.get_object()[bj::string_view(name.data(), name.size())];
}

// Of a key of the schema, in which every dot is a step.
bj::value& value_at(bj::value& root, std::string_view dotted) {
  bj::value* at = &root;
  for (std::size_t dot; (dot = dotted.find('.')) != std::string_view::npos; dotted.remove_prefix(dot + 1)) {
    at = &member(*at, dotted.substr(0, dot));
  }
  return member(*at, dotted);
}

std::string env_name(std::string_view dotted) {
  std::string name = "LLORCH_";
  for (const char c : dotted) {
    name += c == '.' || c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

// Whether an error about `field` can come from the value of `key`, both dotted. Rules across fields name a tail of the
// path ("queue", "timeout.max_ms"); elements and entries are below the key ("tenants[0]", "models.aliases.x").
bool concerns(std::string_view field, std::string_view key) {
  const std::string below = fmt::format("{}.", field.substr(0, field.find('[')));
  return fmt::format(".{}.", key).find("." + below) != std::string::npos || below.starts_with(fmt::format("{}.", key));
}

base::Result<bj::object> read_yaml(const std::filesystem::path& path, const bj::object& schema) {
  const std::string text = TRY(base::read_file(path, 1 << 20));
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return bj::object{};
    bj::value value = to_json(root, schema, 0);
    if (!value.is_object()) return config_error(fmt::format("{}: the file must hold a mapping", path.string()));
    return std::move(value.get_object());
  } catch (const YAML::Exception& e) {
    return config_error(fmt::format("{}:{}: not valid YAML: {}", path.string(), e.mark.line + 1, e.msg));
  }
}

// The file that the environment names, where no option does.
const char* file_by_variable(const ConfigSources& sources) {
  const char* name = sources.file || !sources.getenv ? nullptr : sources.getenv(kFileVariable);
  return name != nullptr && *name != '\0' ? name : nullptr;
}

}  // namespace

std::optional<std::filesystem::path> configuration_file(const ConfigSources& sources) {
  if (sources.file) return sources.file;
  if (const char* name = file_by_variable(sources)) return name;
  std::error_code ec;
  const std::filesystem::path path = base::default_config_path();
  return std::filesystem::exists(path, ec) ? std::optional(path) : std::nullopt;
}

base::Result<Config> load_config(const ConfigSources& sources) {
  const bj::object schema = Codec<Config>::schema({});
  bj::value merged = bj::object{};
  std::string origin = "the built-in defaults";
  // One that is named and not there is a mistake: without it callers would need no token.
  if (const auto path = configuration_file(sources)) {
    auto file = read_yaml(*path, schema);
    if (!file) {
      const bool by_variable = file_by_variable(sources) != nullptr;
      return config_error(file.error().message + (by_variable ? fmt::format(" ({} names it)", kFileVariable) : ""));
    }
    merged = std::move(*file);
    origin = path->string();
  }
  std::vector<std::pair<std::string, const bj::object*>> keys;
  leaves(schema, "", keys);
  std::vector<std::pair<std::string, std::string>> origins;  // dotted key, who set it; weakest first
  if (sources.getenv) {
    for (const auto& [dotted, leaf] : keys) {
      const std::string name = env_name(dotted);
      const char* value = sources.getenv(name.c_str());
      if (value == nullptr) continue;
      value_at(merged, dotted) = scalar(value, *leaf);
      origins.emplace_back(dotted, name);
    }
  }
  for (const auto& [dotted, text] : sources.overrides) {
    // An entry of a mapping, models.aliases.NAME, is a key below a leaf.
    const auto known = std::find_if(keys.begin(), keys.end(), [&name = dotted](const auto& k) {
      return k.first == name || (k.second->contains("additionalProperties") && name.starts_with(k.first + "."));
    });
    if (known == keys.end()) return config_error(fmt::format("there is no configuration key {}", dotted));
    bj::value& leaf = value_at(merged, known->first);
    if (known->first == dotted) {
      leaf = scalar(text, *known->second);
    } else {  // the rest names the entry, with its dots
      member(leaf, std::string_view(dotted).substr(known->first.size() + 1)) =
          scalar(text, child_schema(*known->second, ""));
    }
    origins.emplace_back(dotted, "--set " + dotted);
  }
  Config config;
  const auto read = Codec<Config>::read(merged, {}, {}, UnknownKeys::kRefuse, config);
  if (read) return config;
  for (const auto& [name, value] : read.error().details) {
    if (name != "field") continue;
    for (const auto& [key, setter] : origins) {
      if (concerns(std::get<std::string>(value), key)) origin = setter;
    }
  }
  return config_error(fmt::format("{}: {}", origin, read.error().message));
}

std::vector<std::string> settings_in_environment(const std::function<const char*(const char*)>& getenv) {
  const bj::object schema = Codec<Config>::schema({});
  std::vector<std::pair<std::string, const bj::object*>> keys;
  leaves(schema, "", keys);
  std::vector<std::string> out;
  for (const auto& [dotted, leaf] : keys) {
    const std::string name = env_name(dotted);
    if (const char* value = getenv(name.c_str()); value != nullptr) out.push_back(fmt::format("{}={}", name, value));
  }
  return out;
}

std::vector<std::string> changed_keys(const Config& before, const Config& after) {
  const auto json_of = [](const Config& config) {
    std::string text;
    Codec<Config>::write(text, config);
    bj::parse_options options;
    options.allow_invalid_utf8 = true;  // a path may hold any byte
    return bj::parse(text, {}, options);
  };
  const bj::value was = json_of(before), is = json_of(after);
  const auto find = [](const bj::value& root, std::string_view dotted) {
    const bj::value* at = &root;
    while (at != nullptr && !dotted.empty()) {
      const std::size_t dot = std::min(dotted.find('.'), dotted.size());
      at = base::json::member(at, dotted.substr(0, dot));
      dotted.remove_prefix(std::min(dot + 1, dotted.size()));
    }
    return at;
  };
  std::vector<std::pair<std::string, const bj::object*>> keys;
  const bj::object schema = Codec<Config>::schema({});
  leaves(schema, "", keys);
  std::vector<std::string> out;
  for (const auto& [dotted, leaf] : keys) {
    const bj::value *const a = find(was, dotted), *const b = find(is, dotted);
    const bool same = a == nullptr || b == nullptr ? a == b : *a == *b;
    if (!same) out.push_back(dotted);
  }
  return out;
}

namespace {
// Whole files for the three ways to be reached (OC-CONFIG-6031); a test loads each.
bj::array examples() {
  const bj::value development = {
      {"orchestratord", {{"bind", "127.0.0.1:8080"}, {"queue", {{"capacity", 20}}}}},
      {"devices", {{"allow_cpu", true}}},
      {"models",
       {{"aliases", {{"tale", "file:/srv/models/fairytale-5m-q8_0.gguf"}}}, {"allowed_roots", {"/srv/models"}}}}};
  const bj::value network = {
      {"orchestratord",
       {{"bind", "0.0.0.0:8080"},
        {"worker_slots", 8},
        {"quotas", {{"max_concurrent_jobs", 4}}},
        {"tenants", bj::array{{{"id", "research"},
                               {"token_file", "/etc/llorch/research.token"},
                               {"quotas", {{"max_concurrent_jobs", 16}, {"token_budget_daily", 5000000}}}}}}}},
      {"pool-managerd",
       {{"bind", "0.0.0.0:9200"},
        {"advertise", "10.0.0.6"},
        {"credential_file", "/etc/llorch/pool_credential"},
        {"pool_id", "node-1"},
        {"orchestrator_url", "http://10.0.0.5:8080"}}},
      {"auth", {{"token_file", "/etc/llorch/token"}}}};
  // TLS ends at the proxy, which runs on this machine and passes the Authorization header on.
  const bj::value behind_a_proxy = {{"orchestratord", {{"bind", "127.0.0.1:8080"}, {"hosts", {"llm.example"}}}},
                                    {"auth", {{"token_file", "/etc/llorch/token"}, {"optional_on_loopback", false}}}};
  return {development, network, behind_a_proxy};
}
}  // namespace

std::string config_json_schema() {
  bj::object schema = Codec<Config>::schema({});
  bj::object out{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "llama-orch configuration"}};
  for (auto& [key, value] : schema) out[key] = std::move(value);
  out["examples"] = examples();
  return bj::serialize(out);
}

base::Result<EngineConfig> parse_engine(std::string_view json) {
  bj::error_code ec;
  const bj::value value = bj::parse(bj::string_view(json.data(), json.size()), ec);
  if (ec) return base::fail(base::ErrorCode::kInvalidParams, "this is no JSON");
  EngineConfig engine;
  TRY(Codec<EngineConfig>::read(value, wire::Path{}, wire::Bounds{}, UnknownKeys::kRefuse, engine));
  return engine;
}

std::string redacted_json(Config config) {
  const auto redact = [](std::string& file) {
    if (!file.empty()) file = "(a file)";
  };
  redact(config.auth.token_file);
  for (std::string& file : config.auth.reader_token_files) redact(file);
  for (TenantConfig& tenant : config.orchestratord.tenants) redact(tenant.token_file);
  redact(config.orchestratord.persistence.postgresql.connection_file);
  redact(config.pool_managerd.credential_file);
  for (EngineConfig& engine : config.pool_managerd.engines) {
    redact(engine.api_key_file);
    engine.proxy = base::redact(engine.proxy);
    for (std::string& argument : engine.command) argument = base::redact(argument);
    for (auto& [name, value] : engine.environment) value = "(a value)";
  }
  redact(config.models.pull.hub_token_file);
  redact(config.models.pull.s3_key_file);
  PullConfig& pull = config.models.pull;
  for (std::string* url : {&pull.proxy, &pull.hub_url, &pull.pypi_url, &pull.s3_url}) *url = base::redact(*url);
  std::string out;
  Codec<Config>::write(out, config);
  return out;
}

}  // namespace llorch::config
