#include "config/engine_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <string_view>

namespace llorch::config {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kEngine = "{engine}/";

// A word for a command line of another program: never an option, never empty.
bool is_word(std::string_view text, std::string_view more) {
  const auto fits = [more](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           more.find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= 512 && text[0] != '-' && std::ranges::all_of(text, fits);
}
bool is_url(std::string_view text) {
  const bool scheme = text.starts_with("https://") || text.starts_with("http://") || text.starts_with("file:/");
  const bool plain = std::ranges::none_of(text, [](char c) { return c <= ' ' || c == 0x7f; });
  return scheme && plain && text.find('@') == std::string_view::npos;
}
bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of(kHex) == std::string_view::npos;
}

std::optional<BrokenRule> broken(std::string field, std::string reason, std::string why) {
  return BrokenRule{"provisioning." + std::move(field), std::move(reason), std::move(why)};
}

std::optional<BrokenRule> package_rule(const PackageConfig& p) {
  if (!is_word(p.name, "._-")) return broken("package.name", "charset", "the name of a project");
  if (!is_word(p.version, "._-+!")) return broken("package.version", "charset", "a version");
  if (!is_checksum(p.checksum)) return broken("package.checksum", "checksum", "sha256:HEX of the wheel");
  for (const std::string& dependency : p.dependencies) {
    if (parse_dependency(dependency)) continue;
    return broken("package.dependencies", "checksum", "NAME==VERSION sha256:HEX each");
  }
  if (!p.python.empty() && p.python[0] != '/') return broken("package.python", "path", "an absolute path");
  return std::nullopt;
}
std::optional<BrokenRule> container_rule(const ContainerConfig& c) {
  if (!is_word(c.image, "._-/:")) return broken("container.image", "charset", "REGISTRY/REPOSITORY");
  if (!c.tag.empty() && !is_word(c.tag, "._-")) return broken("container.tag", "charset", "a tag");
  if (!c.digest.empty() && !is_checksum(c.digest)) return broken("container.digest", "checksum", "sha256:HEX");
  if (c.tag.empty() && c.digest.empty()) return broken("container.digest", "required", "a digest, or at least a tag");
  if (!c.runtime.empty() && c.runtime != "podman" && c.runtime != "docker") {
    return broken("container.runtime", "enum", "podman or docker");
  }
  for (const std::string& path : c.volumes) {
    if (path.empty() || path[0] != '/' || path.find_first_of(":,") != std::string::npos) {
      return broken("container.volumes", "path", "absolute paths without colon and comma");
    }
  }
  return std::nullopt;
}
std::optional<BrokenRule> source_rule(const SourceConfig& s) {
  if (!is_url(s.repo)) return broken("source.repo", "url", "https://... or file:///...");
  if (!is_commit(s.ref)) return broken("source.ref", "commit", "a commit, 40 hex digits: branches and tags move");
  for (const std::string& flag : s.build.cmake_flags) {
    if (!flag.starts_with("-D")) return broken("source.build.cmake_flags", "flag", "definitions: -DNAME=VALUE each");
  }
  if (!s.build.target.empty() && !is_word(s.build.target, "._-")) {
    return broken("source.build.target", "charset", "a target");
  }
  return std::nullopt;
}
std::optional<BrokenRule> mode_rule(const ProvisioningConfig& p) {
  switch (p.mode) {
    case ProvisioningMode::kExternal: return std::nullopt;
    case ProvisioningMode::kBinary:
      if (!is_url(p.binary.url)) return broken("binary.url", "url", "https://... or file:/...");
      if (!is_checksum(p.binary.checksum)) return broken("binary.checksum", "checksum", "sha256:HEX of that file");
      return std::nullopt;
    case ProvisioningMode::kPackage: return package_rule(p.package);
    case ProvisioningMode::kContainer: return container_rule(p.container);
    case ProvisioningMode::kSource: return source_rule(p.source);
  }
  return std::nullopt;
}

// Arguments that leave a part of a model, or of its cache, in the host's memory.
std::span<const std::string_view> host_memory_arguments(std::string_view kind) {
  static constexpr std::array<std::string_view, 12> kLlamaCpp{"--no-kv-offload",
                                                              "-nkvo",
                                                              "--cpu-moe",
                                                              "-cmoe",
                                                              "--n-cpu-moe",
                                                              "-ncmoe",
                                                              "-ot",
                                                              "--override-tensor",
                                                              "--cpu-moe-draft",
                                                              "--n-cpu-moe-draft",
                                                              "-otd",
                                                              "--override-tensor-draft"};
  static constexpr std::array<std::string_view, 5> kVllm{"--cpu-offload-gb", "--cpu_offload_gb", "--swap-space",
                                                         "--swap_space", "--kv-offloading-size"};
  if (kind == "llamacpp") return kLlamaCpp;
  if (kind == "vllm") return kVllm;
  return {};
}

std::optional<std::string> value_of(const std::vector<std::string>& command, std::span<const std::string_view> names) {
  std::optional<std::string> out;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string_view word = command[i];
    const std::size_t equals = word.find('=');
    if (std::ranges::find(names, word.substr(0, equals)) == names.end()) continue;
    if (equals != std::string_view::npos) {
      out = word.substr(equals + 1);
    } else {
      out = i + 1 < command.size() ? command[i + 1] : "";
    }
  }
  return out;
}

std::optional<BrokenRule> gpu_rule(const EngineConfig& e) {
  constexpr std::array<std::string_view, 4> kLayers{"--n-gpu-layers", "--gpu-layers", "-ngl", "--ngl"};
  constexpr int kAllLayers = 999;
  for (const std::string_view name : host_memory_arguments(e.engine)) {
    if (!value_of(e.command, std::array{name})) continue;
    return BrokenRule{
        "command", "gpu_only",
        fmt::format("{} leaves a part of the model in the host's memory; on a GPU all of it must fit", name)};
  }
  if (e.environment.contains("GGML_CUDA_ENABLE_UNIFIED_MEMORY")) {
    return BrokenRule{"environment", "gpu_only", "GGML_CUDA_ENABLE_UNIFIED_MEMORY lets a model leave the GPU's memory"};
  }
  if (e.engine == "vllm" && value_of(e.command, std::array<std::string_view, 1>{"--device"}) == "cpu") {
    return BrokenRule{"command", "gpu_only", "--device cpu goes with device: cpu"};
  }
  if (e.engine != "llamacpp") return std::nullopt;
  const auto layers = value_of(e.command, kLayers);
  int count = 0;
  if (layers) std::from_chars(layers->data(), layers->data() + layers->size(), count);
  if (layers == "all" || count >= kAllLayers) return std::nullopt;
  return BrokenRule{"command", "gpu_only",
                    "llama.cpp puts layers that it is not told of into the host's memory; say --n-gpu-layers 999"};
}

}  // namespace

bool is_checksum(std::string_view text) {
  return text.size() == 71 && text.starts_with("sha256:") &&
         text.substr(7).find_first_not_of(kHex) == std::string_view::npos;
}

std::optional<PinnedPackage> parse_dependency(std::string_view text) {
  const std::size_t equals = text.find("=="), space = text.find(' ');
  if (equals == std::string_view::npos || space == std::string_view::npos || space < equals) return std::nullopt;
  const std::string_view name = text.substr(0, equals), version = text.substr(equals + 2, space - equals - 2),
                         checksum = text.substr(space + 1);
  if (!is_word(name, "._-") || !is_word(version, "._-+!") || !is_checksum(checksum)) return std::nullopt;
  return PinnedPackage{std::string(name), std::string(version), std::string(checksum.substr(7))};
}

std::optional<BrokenRule> broken_rule(const EngineConfig& e) {
  const ProvisioningMode mode = e.provisioning.mode;
  const bool in_container = mode == ProvisioningMode::kContainer;
  const bool in_directory = mode != ProvisioningMode::kExternal && !in_container;
  if (mode != ProvisioningMode::kExternal && e.device.empty()) {
    return BrokenRule{"device", "combination", "an engine that is installed here is started here: name its device"};
  }
  if (!in_container && e.command.empty() != e.device.empty()) {
    return BrokenRule{"command", "combination", "command and device go together"};
  }
  if (!e.command.empty() && !in_container) {
    const bool fits = e.command[0].starts_with('/') || (in_directory && e.command[0].starts_with(kEngine));
    if (!fits) return BrokenRule{"command", "path", "an absolute path first, or {engine}/... of one that is installed"};
  }
  for (const auto& [name, value] : e.environment) {
    const bool ours = name.starts_with("LLORCH_") || name.starts_with("CUDA_VISIBLE_") || name == "CUDA_DEVICE_ORDER";
    if (!is_word(name, "_") || ours) {
      return BrokenRule{"environment", "charset",
                        "names of variables, and none that says which GPU it sees or is ours"};
    }
  }
  if (auto rule = mode_rule(e.provisioning)) return rule;
  if (!e.device.empty() && e.device != "cpu") return gpu_rule(e);
  return std::nullopt;
}

}  // namespace llorch::config
