#pragma once
// The names, ranges and texts of every configuration key: those of the daemons, then models, access and logs. Included by
// config.cpp alone.
#include <fmt/format.h>

#include "base/log.h"
#include "config/orchestratord_fields.h"
#include "config/pool_managerd_fields.h"
#include "wire/device_mask.h"
#include "wire/model_name.h"

namespace llorch::wire {

using namespace config;  // NOLINT(google-build-using-namespace): field tables are specialised where their template is

template <>
struct EnumNames<PullPolicy> {
  static constexpr auto names = std::array{std::pair{PullPolicy::kOff, std::string_view("off")},
                                           std::pair{PullPolicy::kAsk, std::string_view("ask")}};
};

constexpr std::int64_t kModelTimeoutMsMax = 86'400'000;  // as in a request

struct PerModel {
  std::string_view key, what;
};
// A model has one value, whatever it is called.
template <class Value>
base::Result<> check_per_model(const ModelsConfig& m, const std::map<std::string, Value>& values,
                               const PerModel& per_model) {
  const auto& [key, what] = per_model;
  std::map<std::string_view, Value> by_ref;
  for (const auto& [name, value] : values) {
    const auto alias = m.aliases.find(name);
    const std::string& ref = alias == m.aliases.end() ? name : alias->second;
    if (alias == m.aliases.end() && !ref.starts_with("file:/") && !ref.starts_with("hf:") &&
        !ref.starts_with("engine:")) {
      return field_error(key, "reference",
                         fmt::format("{} maps names of models.aliases, or references, to {}", key, what));
    }
    if (by_ref.emplace(ref, value).first->second != value) {
      return field_error(key, "unique", fmt::format("{} gives one model two values", key));
    }
  }
  return {};
}

inline base::Result<> check_numbers_per_model(const ModelsConfig& m, const std::map<std::string, std::int64_t>& values,
                                              const PerModel& per_model, std::int64_t max) {
  for (const auto& [name, value] : values) {
    if (value >= 1 && value <= max) continue;
    return field_error(per_model.key, "range", fmt::format("{} holds {}, 1 to {}", per_model.key, per_model.what, max));
  }
  return check_per_model(m, values, per_model);
}

template <>
struct Table<PullConfig> {
  using S = PullConfig;
  static Fields fields() {
    return {
        optional("policy", &S::policy,
                 "ask: fetch what an operator asks for by name; off: nothing leaves this machine."),
        optional(
            "allowed_hosts", &S::allowed_hosts,
            "Hosts, or domains as .example.org, that models may come from, plain http and private addresses included. "
            "Empty: every host with a public address, by https."),
        optional("proxy", &S::proxy, "URL of a proxy; those of the environment are not used."),
        optional("ca_file", &S::ca_file, "Certificates to trust instead of the system's."),
        optional("hub_url", &S::hub_url, "Server of hf: references."),
        optional("hub_token_file", &S::hub_token_file,
                 "File with the token for it, mode 0600; it goes to no other host."),
        optional("pypi_url", &S::pypi_url, "Index of pypi: references."),
        optional("s3_url", &S::s3_url, "Server of s3: references."),
        optional("s3_region", &S::s3_region, "Region that its requests are signed for."),
        optional("s3_key_file", &S::s3_key_file,
                 "File with key id and secret key, separated by a space, mode 0600; empty: requests are not signed."),
        optional("connections", &S::connections, "Parts of a file that are fetched at a time.", {1, 16}),
        optional("bytes_per_second_max", &S::bytes_per_second_max, "Of all pulls together; 0 is no limit.", {0, 1e12}),
        optional("stall_timeout_ms", &S::stall_timeout_ms,
                 "A server that sends less than 1 KiB/s for this long counts as silent.", {1000, 3.6e6}),
        optional("attempts_max", &S::attempts_max, "Times in a row that a server may fail before the pull does.",
                 {1, 100})};
  }
};
template <>
struct Table<ModelsConfig> {
  using S = ModelsConfig;
  static Fields fields() {
    return {
        optional("aliases", &S::aliases, "Short name to file:/absolute/path or engine:NAME."),
        optional("tensor_split", &S::tensor_split,
                 "Alias or reference to the number of devices that share the model in one worker; others: one."),
        optional("timeout_ms", &S::timeout_ms,
                 "Alias or reference to the limit on a run of the model when the request names none; others: "
                 "orchestratord.timeout.default_ms."),
        optional("chat_format", &S::chat_format,
                 "Alias or reference to the way the model marks tool calls and thoughts, a name of "
                 "docs/guide/tool-calls.md; "
                 "others: the one that the model's chat template teaches."),
        optional("allowed_roots", &S::allowed_roots, "Directories that file: references may point into."),
        optional(
            "watched_directories", &S::watched_directories,
            "Directories of which every .gguf file can be named, as soon as it is there; file: references may point "
            "into them."),
        optional("preload", &S::preload,
                 "Aliases, names or references of models that get a worker at the start; until each has one, "
                 "/v2/health says that the service is not ready."),
        optional("cache_dir", &S::cache_dir, "Empty: ~/.cache/llama-orch/models."),
        optional("repacked_dir", &S::repacked_dir,
                 "Where weights are kept as the CPU device packs them, so that a model's next worker starts at once; "
                 "empty: repacked in the state directory."),
        optional("repacked_bytes_max", &S::repacked_bytes_max,
                 "Most bytes of them; the least recently used go first. 0: none are kept.", {0, 1e15}),
        optional("known_models", &S::known_models,
                 "Files with names of models to pull, besides those that come along."),
        optional("pull", &S::pull)};
  }
  static base::Result<> validate(const S& m) {
    for (const std::string& root : m.allowed_roots) {
      if (!root.starts_with('/')) {
        return field_error("models.allowed_roots", "path", "models.allowed_roots holds absolute paths of directories");
      }
    }
    if (!m.repacked_dir.empty() && !m.repacked_dir.starts_with('/'))
      return field_error("models.repacked_dir", "path", "models.repacked_dir is the absolute path of a directory");
    for (const std::string& directory : m.watched_directories) {
      if (!directory.starts_with('/')) {
        return field_error("models.watched_directories", "path",
                           "models.watched_directories holds absolute paths of directories");
      }
    }
    for (const auto& [name, ref] : m.aliases) {
      const bool is_ref = ref.starts_with("file:/") || ref.starts_with("hf:") || ref.starts_with("engine:");
      if (!is_model_name(name) || !is_ref) {
        return field_error("models.aliases", "reference",
                           "models.aliases maps names (1 to 128 of A-Z, a-z, 0-9, . _ - and :) to "
                           "file:/absolute/path, hf:org/repo or engine:NAME");
      }
    }
    TRY(check_numbers_per_model(m, m.tensor_split, {"models.tensor_split", "numbers of devices"},
                                static_cast<std::int64_t>(kMaskDevicesMax)));
    TRY(check_per_model(m, m.chat_format, {"models.chat_format", "names of chat formats"}));
    return check_numbers_per_model(m, m.timeout_ms, {"models.timeout_ms", "milliseconds"}, kModelTimeoutMsMax);
  }
};
template <>
struct Table<AuthConfig> {
  using S = AuthConfig;
  static Fields fields() {
    return {optional("token_file", &S::token_file, "File with the bearer token, mode 0600."),
            optional("optional_on_loopback", &S::optional_on_loopback, "Callers on this machine need no token."),
            optional("reader_token_files", &S::reader_token_files,
                     "Files with tokens that only read pools and metrics, mode 0600.")};
  }
};
template <>
struct Table<LogConfig> {
  static Fields fields() {
    return {optional("level", &LogConfig::level, "trace, debug, info, warn, error, fatal or mute."),
            optional("format", &LogConfig::format,
                     "json: one object a line; text: for people. llorch up keeps json and llorch logs shows it.")};
  }
  static base::Result<> validate(const LogConfig& l) {
    if (l.format != "json" && l.format != "text") {
      return field_error("log.format", "enum", "log.format must be json or text");
    }
    for (const std::string_view name : base::kLogLevelNames) {
      if (l.level == name) return {};
    }
    return field_error("log.level", "enum",
                       fmt::format("log.level must be one of: {}", fmt::join(base::kLogLevelNames, ", ")));
  }
};
template <>
struct Table<Config> {
  using S = Config;
  static Fields fields() {
    return {optional("orchestratord", &S::orchestratord),
            optional("pool-managerd", &S::pool_managerd),
            optional("devices", &S::devices),
            optional("models", &S::models),
            optional("auth", &S::auth),
            optional("log", &S::log)};
  }
  // A limit that would be cut off without a word is refused.
  static base::Result<> validate(const S& c) {
    const std::int64_t max_ms = c.orchestratord.timeout.max_ms;
    for (const auto& [name, value] : c.models.timeout_ms) {
      if (value <= max_ms) continue;
      return field_error(
          "models.timeout_ms", "range",
          fmt::format("models.timeout_ms gives {} {} ms, and orchestratord.timeout.max_ms no run more than {}", name,
                      value, max_ms));
    }
    return {};
  }
};

}  // namespace llorch::wire
