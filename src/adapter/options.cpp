#include "adapter/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "adapter/engines/engine.h"
#include "base/build_id.h"
#include "base/id.h"
#include "base/log.h"

namespace llorch::adapter {
namespace {

std::pair<std::string, std::string> split(const std::string& text) {
  const std::size_t end = text.find('=');
  if (end == std::string::npos) return {text, {}};
  return {text.substr(0, end), text.substr(end + 1)};
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Options& o = parsed.options;
  CLI::App app("worker-adapterd: an engine of another system, served as a worker", "worker-adapterd");
  app.set_version_flag("--version", base::version_text());
  const auto identifier = CLI::Validator(
      [](std::string& text) {
        return base::is_valid_identifier(text, 64) ? std::string() : "use 1 to 64 characters of A-Z, a-z, 0-9, _ and -";
      },
      "ID");
  const auto url = CLI::Validator(
      [](std::string& text) {
        const bool is_one = text.starts_with("http://") || text.starts_with("https://") ||
                            text.starts_with("grpc://") || text.starts_with("grpcs://");
        return is_one ? std::string() : "must be a URL of http, https, grpc or grpcs";
      },
      "URL");
  const auto renaming = CLI::Validator(
      [](std::string& text) {
        const auto [field, name] = split(text);
        const bool is_one = (field == "max_tokens" || field == "seed") && base::is_valid_identifier(name, 64);
        return is_one ? std::string() : "must be max_tokens=NAME or seed=NAME";
      },
      "FIELD=NAME");
  std::vector<std::string> renamings;
  const auto kinds = engines::kinds();
  app.add_option("--worker-id", o.worker_id, "Unique in the pool")->check(identifier)->capture_default_str();
  app.add_option("--engine", o.engine, "Whose API the engine speaks")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(kinds.begin(), kinds.end())));
  app.add_option("--endpoint", o.endpoint, "Where the engine is")->required()->check(url);
  app.add_option("--model", o.model, "The engine's name for the model (default: the only one it serves)");
  app.add_option("--field-name", renamings,
                 "The server's own name of max_tokens or seed in chat completions; of openai")
      ->check(renaming)
      ->allow_extra_args(false);
  app.add_option("--api-key-file", o.api_key_file, "File with the key for the engine, mode 0600");
  app.add_option("--ca-file", o.ca_file, "Certificates to trust instead of the system's");
  app.add_option("--proxy", o.proxy, "URL of a proxy; those of the environment are not used");
  app.add_option("--installation", o.installation, "Directory of the engine's program, which nobody removes meanwhile");
  app.add_option("--model-ref", o.model_ref, "Reference to report")->required();
  app.add_option("--model-digest", o.model_digest, "Digest to report");
  app.add_option("--device-class", o.device_class, "What it runs on, for receipts")->capture_default_str();
  app.add_option("--bind", o.bind, "Address to listen on; beyond loopback only with a token")->capture_default_str();
  app.add_option("--advertise", o.advertise, "Host name or address that the pool is told (default: that of --bind)");
  app.add_flag("--auth-optional-on-loopback", o.auth_optional_on_loopback, "Callers on this machine need no token");
  auto* port = app.add_option("--port", o.port, "Port; 0 is chosen by the kernel")->capture_default_str();
  app.add_option("--listen-fd", o.listen_fd, "Descriptor of a socket that listens at --bind already (pool-managerd)")
      ->check(CLI::NonNegativeNumber)
      ->excludes(port);
  app.add_option("--callback-url", o.callback_url, "Where to report readiness (pool-managerd)");
  app.add_option("--context", o.context_tokens, "Tokens of prompt and answer; 0 is what the engine says")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--slots", o.slots, "Jobs at a time")->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}));
  app.add_option("--memory-bytes", o.memory_bytes, "Memory that is accounted to it")->check(CLI::NonNegativeNumber);
  app.add_option("--inference-timeout-sec", o.inference_timeout_s, "Longest run of one job")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--silence-ms", o.silence_ms, "Longest time that the engine may send nothing during a job")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--start-timeout-ms", o.start_timeout_ms, "Longest time until the engine answers")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--probe-interval-ms", o.probe_interval_ms, "Time between looks at whether the engine answers")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--shutdown-grace-ms", o.shutdown_grace_ms, "Time running jobs get at shutdown")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--log-level", o.log_level, "Least level logged")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(base::kLogLevelNames), std::end(base::kLogLevelNames))))
      ->capture_default_str();
  app.add_option("command", o.command, "Behind --: the engine's program, which is started, and its arguments");
  try {
    app.parse(argc, argv);
    while (o.endpoint.ends_with('/')) o.endpoint.pop_back();
    for (const std::string& text : renamings) o.field_names.insert(split(text));
    if (!renamings.empty() && o.engine != "openai") {
      throw CLI::ValidationError("--field-name", "an engine of kind " + o.engine + " has the names of its own API");
    }
    if (engines::engine_of(o.engine, o.endpoint) == nullptr) {
      throw CLI::ValidationError("--endpoint", "an engine of kind " + o.engine + " does not speak gRPC");
    }
  } catch (const CLI::ParseError& e) {
    std::ostringstream out;
    const int code = app.exit(e, out, out);
    parsed.exit_code = code == 0 ? 0 : 2;
    parsed.message = out.str();
  }
  return parsed;
}

}  // namespace llorch::adapter
