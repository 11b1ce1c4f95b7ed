#include "adapter/setup/installation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/file.h"
#include "base/sha256.h"

namespace llorch::adapter::setup {
namespace {

namespace bj = boost::json;
namespace fs = std::filesystem;
using config::EngineConfig;
using config::ProvisioningMode;

constexpr std::size_t kEntryBytesMax = 64 << 10;
constexpr std::size_t kIdentityDigits = 12;  // of a directory's name; engine.json has all

std::string name_of(ProvisioningMode mode) {
  switch (mode) {
    case ProvisioningMode::kExternal: return "external";
    case ProvisioningMode::kSource: return "source";
    case ProvisioningMode::kContainer: return "container";
    case ProvisioningMode::kPackage: return "package";
    case ProvisioningMode::kBinary: return "binary";
  }
  return "";
}

std::string identity_of(const EngineConfig& engine) {
  base::Sha256 hash;
  const auto add = [&hash](const std::string& part) { hash.update(fmt::format("{}:{}\n", part.size(), part)); };
  const config::ProvisioningConfig& p = engine.provisioning;
  add(name_of(p.mode));
  add(engine.device == "cpu" ? "cpu" : "gpu");  // a build for the one is none for the other
  switch (p.mode) {
    case ProvisioningMode::kExternal: break;
    case ProvisioningMode::kBinary:
      add(p.binary.url);
      add(p.binary.checksum);
      break;
    case ProvisioningMode::kPackage:
      for (const auto* part : {&p.package.name, &p.package.version, &p.package.checksum, &p.package.python}) add(*part);
      for (const auto& dependency : p.package.dependencies) add(dependency);
      break;
    case ProvisioningMode::kContainer:
      add(image_of(p.container));
      add(p.container.runtime);
      break;
    case ProvisioningMode::kSource:
      for (const auto* part : {&p.source.repo, &p.source.ref, &p.source.build.generator, &p.source.build.target}) {
        add(*part);
      }
      add(p.source.submodules ? "submodules" : "");
      for (const auto& flag : p.source.build.cmake_flags) add(flag);
      break;
  }
  return base::to_hex(hash.digest());
}

std::string text(const bj::object& object, const char* name) {
  const auto* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string().c_str()) : std::string();
}
std::int64_t number(const bj::object& object, const char* name) {
  const auto* value = object.if_contains(name);
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

std::vector<std::string> container_command(const EngineConfig& engine, const std::string& path_variable) {
  const config::ContainerConfig& container = engine.provisioning.container;
  const std::string runtime = container_runtime(engine, path_variable);
  const bool podman = runtime.ends_with("podman");
  std::vector<std::string> out{
      runtime.empty() ? "podman" : runtime, "run", "--rm", "--pull", "never", "--name", "{container}"};
  out.insert(out.end(), {"--security-opt", "no-new-privileges", "--publish", "127.0.0.1:{port}:{port}"});
  for (const auto& [name, value] : engine.environment) out.insert(out.end(), {"--env", name});
  for (const std::string& path : container.volumes) {
    out.insert(out.end(), {"--volume", fmt::format("{}:{}:ro", path, path)});
  }
  if (engine.device != "cpu") {
    if (podman) {
      out.insert(out.end(), {"--device", "nvidia.com/gpu=" + engine.device});
    } else {
      out.insert(out.end(), {"--gpus", "device=" + engine.device});
    }
  }
  out.push_back(image_of(container));
  out.insert(out.end(), engine.command.begin(), engine.command.end());
  return out;
}

}  // namespace

std::string to_json(const Installation& i) {
  return bj::serialize(bj::object{{"id", i.id},
                                  {"engine", i.engine},
                                  {"version", i.version},
                                  {"mode", i.mode},
                                  {"identity", i.identity},
                                  {"build_id", i.build_id},
                                  {"installed_unix_ms", i.installed_unix_ms},
                                  {"size_bytes", i.size_bytes},
                                  {"directory", i.directory.string()}});
}

bool is_installed_here(const EngineConfig& engine) { return engine.provisioning.mode != ProvisioningMode::kExternal; }

fs::path installations_directory(const config::InstallPolicyConfig& policy) {
  return policy.cache_dir.empty() ? base::default_model_cache().parent_path() / "engines" : fs::path(policy.cache_dir);
}

fs::path directory_of(const EngineConfig& engine, const config::InstallPolicyConfig& policy) {
  return installations_directory(policy) /
         fmt::format("{}-{}", engine.engine, identity_of(engine).substr(0, kIdentityDigits));
}

std::optional<Installation> find_installation(const fs::path& directory) {
  const auto content = base::read_file(directory / "engine.json", kEntryBytesMax);
  if (!content) return std::nullopt;
  boost::system::error_code ec;
  const bj::value value = bj::parse(*content, ec);
  if (ec || !value.is_object()) return std::nullopt;
  const bj::object& o = value.get_object();
  return Installation{.id = directory.filename().string(),
                      .engine = text(o, "engine"),
                      .version = text(o, "version"),
                      .mode = text(o, "mode"),
                      .identity = text(o, "identity"),
                      .build_id = text(o, "build_id"),
                      .installed_unix_ms = number(o, "installed_unix_ms"),
                      .size_bytes = number(o, "size_bytes"),
                      .directory = directory};
}

std::vector<Installation> installations(const config::InstallPolicyConfig& policy) {
  std::vector<Installation> out;
  std::error_code ec;
  for (fs::directory_iterator it(installations_directory(policy), ec), end; !ec && it != end; it.increment(ec)) {
    if (auto found = find_installation(it->path())) out.push_back(std::move(*found));
  }
  std::ranges::sort(out, {}, &Installation::directory);
  return out;
}

Installation new_installation(const EngineConfig& engine, const fs::path& directory) {
  return {.id = directory.filename().string(),
          .engine = engine.engine,
          .version = engine.provisioning.version,
          .mode = name_of(engine.provisioning.mode),
          .identity = identity_of(engine),
          .directory = directory};
}

std::vector<std::string> start_command(const EngineConfig& engine, const config::InstallPolicyConfig& policy,
                                       const std::string& path_variable) {
  if (engine.provisioning.mode == ProvisioningMode::kContainer) return container_command(engine, path_variable);
  std::vector<std::string> out = engine.command;
  if (!is_installed_here(engine)) return out;
  constexpr std::string_view kPlace = "{engine}";
  const std::string directory = directory_of(engine, policy).string();
  for (std::string& word : out) {
    for (std::size_t at = word.find(kPlace); at != std::string::npos; at = word.find(kPlace, at + directory.size())) {
      word.replace(at, kPlace.size(), directory);
    }
  }
  return out;
}

std::string container_runtime(const EngineConfig& engine, const std::string& path_variable) {
  const std::string& wanted = engine.provisioning.container.runtime;
  if (!wanted.empty()) return find_program(path_variable, wanted);
  const std::string podman = find_program(path_variable, "podman");  // needs no daemon and no root
  return podman.empty() ? find_program(path_variable, "docker") : podman;
}

std::string image_of(const config::ContainerConfig& container) {
  if (!container.digest.empty()) return fmt::format("{}@{}", container.image, container.digest);
  return fmt::format("{}:{}", container.image, container.tag);
}

bool is_program(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec) && ::access(path.c_str(), X_OK) == 0;
}

std::string find_program(const std::string& path_variable, std::string_view name) {
  for (std::size_t start = 0; start <= path_variable.size();) {
    const std::size_t end = std::min(path_variable.find(':', start), path_variable.size());
    const fs::path candidate = fs::path(path_variable.substr(start, end - start)) / name;
    if (candidate.is_absolute() && is_program(candidate)) return candidate.string();
    start = end + 1;
  }
  return {};
}

}  // namespace llorch::adapter::setup
