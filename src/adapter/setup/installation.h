#pragma once
// Where the programs of engines are installed on this machine, and which are. Looks at files; changes none.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace llorch::adapter::setup {

// What an installation left: its entry of the catalogue of engines, DIRECTORY/engine.json. It is written last, by one rename, so a
// directory without it is none.
struct Installation {
  std::string id;  // the name of its directory
  std::string engine, version;
  std::string mode;
  std::string identity;  // hex; of all that the configuration says of where the program comes from
  std::string build_id;  // of the llama-orch that installed it
  std::int64_t installed_unix_ms = 0;
  std::int64_t size_bytes = 0;  // of its files
  std::filesystem::path directory;
};
std::string to_json(const Installation& installation);
// Of `engine` in `directory`; what only an installation knows is empty.
Installation new_installation(const config::EngineConfig& engine, const std::filesystem::path& directory);

// Whether its program comes by an installation.
bool is_installed_here(const config::EngineConfig& engine);

std::filesystem::path installations_directory(const config::InstallPolicyConfig& policy);
// Where `engine` is or would be: ENGINE-HASH. Entries with one source share it; another URL, version or build is another directory.
std::filesystem::path directory_of(const config::EngineConfig& engine, const config::InstallPolicyConfig& policy);
std::optional<Installation> find_installation(const std::filesystem::path& directory);
// Of every engine, those that no configuration names any more included; by directory.
std::vector<Installation> installations(const config::InstallPolicyConfig& policy);

// The program and its arguments as they are started; `{port}` is still to be replaced. A container's are those of its runtime, with
// `{container}` in place of its name.
std::vector<std::string> start_command(const config::EngineConfig& engine, const config::InstallPolicyConfig& policy,
                                       const std::string& path_variable);
// Path of podman or docker; empty: it is not in PATH.
std::string container_runtime(const config::EngineConfig& engine, const std::string& path_variable);
std::string image_of(const config::ContainerConfig& container);

bool is_program(const std::filesystem::path& path);
// Absolute path of a program in PATH; empty: there is none.
std::string find_program(const std::string& path_variable, std::string_view name);

}  // namespace llorch::adapter::setup
