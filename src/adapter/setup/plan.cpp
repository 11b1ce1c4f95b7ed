#include "adapter/setup/plan.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/join.h"
#include "config/engine_rules.h"

namespace llorch::adapter::setup {
namespace {

namespace fs = std::filesystem;
using config::EngineConfig;
using config::ProvisioningMode;

std::string hex_of(const std::string& checksum) { return checksum.substr(std::string_view("sha256:").size()); }

// The last part of a URL as a name of a file: it is the operator's, and still never a path.
std::string file_name_of(std::string_view url) {
  url = url.substr(0, url.find_first_of("?#"));
  const std::size_t slash = url.rfind('/');
  std::string out;
  for (const char c : slash == std::string_view::npos ? url : url.substr(slash + 1)) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
    out += plain ? c : '_';
  }
  return out.empty() || out[0] == '.' ? "file" + out : out;
}

Step policy_step(std::string_view key, bool allowed, std::string detail) {
  return {.kind = "policy",
          .detail = std::move(detail),
          .missing = !allowed,
          .what_to_do = fmt::format("set pool-managerd.provisioning.{}: true, if this machine may do that", key),
          .refused = !allowed,
          .action = {}};
}
Step tool_step(const std::string& found, std::string_view name, std::string_view package) {
  return {.kind = "tool",
          .detail = found.empty() ? fmt::format("{} is needed.", name) : fmt::format("{} is used.", found),
          .missing = found.empty(),
          .what_to_do = fmt::format("install {} (on Debian: apt install {})", name, package),
          .action = {}};
}
Step fetch_step(std::string url, std::string sha256, std::string name) {
  const auto shown = std::string_view(url).substr(0, url.find_first_of("?#"));  // a query may be a signature
  std::string detail = fmt::format("{} is fetched and must have the checksum sha256:{}.", shown, sha256);
  return {.kind = "fetch",
          .detail = std::move(detail),
          .action = FetchFile{std::move(url), std::move(sha256), std::move(name)}};
}
Step wheel_step(const config::PinnedPackage& package) {
  return {.kind = "fetch",
          .detail = fmt::format("The wheel of {} {} with the checksum sha256:{} is fetched.", package.name,
                                package.version, package.sha256),
          .action = FetchWheel{package.name, package.version, package.sha256}};
}
Step run_step(std::vector<std::string> command, std::string url = {}) {
  std::string detail = fmt::format("Runs: {}", base::join(command, " "));
  const bool asks = !url.empty();
  return {.kind = "run", .detail = std::move(detail), .action = RunCommand{std::move(command), asks, std::move(url)}};
}

void add_binary(const EngineConfig& engine, const Machine& machine, std::vector<Step>& out) {
  const config::BinaryConfig& binary = engine.provisioning.binary;
  const std::string name = file_name_of(binary.url);
  if (!binary.url.starts_with("file:")) {
    out.push_back(policy_step("allow_binary_downloads", machine.policy.allow_binary_downloads,
                              "A program of somebody else is downloaded."));
  }
  if (name.find(".tar") != std::string::npos || name.ends_with(".tgz")) {
    out.push_back(tool_step(find_program(machine.path_variable, "tar"), "tar", "tar"));
  }
  out.push_back(fetch_step(binary.url, hex_of(binary.checksum), name));
  out.push_back({.kind = "unpack", .detail = fmt::format("{} is unpacked.", name), .action = Unpack{name}});
}

void add_package(const EngineConfig& engine, const Machine& machine, const fs::path& directory,
                 std::vector<Step>& out) {
  const config::PackageConfig& package = engine.provisioning.package;
  const std::string python = package.python.empty()       ? find_program(machine.path_variable, "python3")
                             : is_program(package.python) ? package.python
                                                          : std::string();
  out.push_back(policy_step("allow_package_installs", machine.policy.allow_package_installs,
                            "Packages of a Python index are installed, in an environment of their own."));
  out.push_back(tool_step(python, package.python.empty() ? "python3" : package.python, "python3-venv"));
  std::vector<config::PinnedPackage> all{{package.name, package.version, hex_of(package.checksum)}};
  for (const std::string& dependency : package.dependencies) all.push_back(*config::parse_dependency(dependency));
  for (const config::PinnedPackage& each : all) out.push_back(wheel_step(each));
  out.push_back(run_step({python.empty() ? "python3" : python, "-m", "venv", (directory / "venv").string()}));
  // The index is ours to ask: pip installs what has been fetched and checked, and nothing else.
  std::vector<std::string> pip{(directory / "venv/bin/python").string(),
                               "-m",
                               "pip",
                               "install",
                               "--no-index",
                               "--no-input",
                               "--disable-pip-version-check",
                               "--find-links",
                               (directory / "downloads").string()};
  for (const config::PinnedPackage& each : all) pip.push_back(fmt::format("{}=={}", each.name, each.version));
  out.push_back(run_step(std::move(pip)));
}

void add_container(const EngineConfig& engine, const Machine& machine, std::vector<Step>& out) {
  const config::ContainerConfig& container = engine.provisioning.container;
  const std::string runtime = container_runtime(engine, machine.path_variable);
  out.push_back(policy_step("allow_container_pulls", machine.policy.allow_container_pulls,
                            "An image of somebody else is pulled."));
  out.push_back(tool_step(runtime, container.runtime.empty() ? "podman or docker" : container.runtime, "podman"));
  if (container.digest.empty()) {
    out.push_back(
        {.kind = "warning",
         .detail = fmt::format("The tag {} may name another image tomorrow; container.digest pins one.", container.tag),
         .action = {}});
  }
  if (engine.device != "cpu") {
    const std::string toolkit = find_program(machine.path_variable, "nvidia-ctk");
    out.push_back(tool_step(toolkit, "nvidia-ctk", "nvidia-container-toolkit"));
  }
  const std::string image = image_of(container);
  const std::string host = container.image.substr(0, container.image.find('/'));
  const bool names_host = host.size() < container.image.size() && host.find_first_of(".:") != std::string::npos;
  out.push_back(run_step({runtime.empty() ? "podman" : runtime, "pull", image},
                         fmt::format("https://{}/", names_host ? host : "docker.io")));
}

// Names of switches that llama.cpp has renamed since.
std::string renamed(const std::string& flag) {
  return flag.starts_with("-DLLAMA_CUBLAS") || flag.starts_with("-DLLAMA_CUDA=") ? "-DGGML_CUDA=ON" : flag;
}

void add_source(const EngineConfig& engine, const Machine& machine, const fs::path& directory, std::vector<Step>& out) {
  const config::SourceConfig& source = engine.provisioning.source;
  if (!source.repo.starts_with("file:")) {
    out.push_back(policy_step("allow_source_builds", machine.policy.allow_source_builds,
                              "Source of somebody else is fetched and built."));
  }
  const std::string git = find_program(machine.path_variable, "git"),
                    cmake = find_program(machine.path_variable, "cmake");
  out.push_back(tool_step(git, "git", "git"));
  out.push_back(tool_step(cmake, "cmake", "cmake"));
  out.push_back(tool_step(find_program(machine.path_variable, "c++"), "c++", "g++"));
  const bool cuda = engine.device != "cpu";
  if (cuda) out.push_back(tool_step(find_program(machine.path_variable, "nvcc"), "nvcc", "nvidia-cuda-toolkit"));
  const std::string tree = (directory / "source").string(), build = (directory / "build").string();
  const std::string url = source.repo.starts_with("file:") ? "" : source.repo;
  out.push_back(run_step({git, "init", "--quiet", tree}));
  out.push_back(run_step({git, "-C", tree, "fetch", "--quiet", "--depth", "1", source.repo, source.ref}, url));
  out.push_back(run_step({git, "-C", tree, "checkout", "--quiet", "--detach", source.ref}));
  if (source.submodules) {
    out.push_back(run_step({git, "-C", tree, "submodule", "update", "--init", "--recursive", "--depth", "1"}, url));
  }
  std::vector<std::string> configure{cmake, "-S", tree, "-B", build, "-DCMAKE_BUILD_TYPE=Release"};
  if (!source.build.generator.empty()) configure.insert(configure.end(), {"-G", source.build.generator});
  if (engine.engine == "llamacpp") {
    configure.emplace_back("-DLLAMA_BUILD_SERVER=ON");
    configure.emplace_back(cuda ? "-DGGML_CUDA=ON" : "-DGGML_CUDA=OFF");
  }
  for (const std::string& flag : source.build.cmake_flags) {
    std::string now = renamed(flag);
    if (std::ranges::find(configure, now) == configure.end()) configure.push_back(std::move(now));
  }
  out.push_back(run_step(std::move(configure)));
  std::vector<std::string> compile{cmake, "--build", build, "--parallel", std::to_string(machine.cores)};
  if (!source.build.target.empty()) compile.insert(compile.end(), {"--target", source.build.target});
  out.push_back(run_step(std::move(compile)));
}

Step key_step(const std::string& file) {
  struct stat st {};
  const bool there = ::stat(file.c_str(), &st) == 0;
  const bool open = there && (st.st_mode & 077) != 0;
  return {.kind = "key",
          .detail = fmt::format("The key is read from {}.", file),
          .missing = !there || open,
          .what_to_do = there ? fmt::format("chmod 600 {}", file) : fmt::format("write the key into {}", file),
          .action = {}};
}

Step start_step(const EngineConfig& engine, const Machine& machine) {
  const auto command = start_command(engine, machine.policy, machine.path_variable);
  // What an installation brings is not here yet, and the installation looks for it.
  const bool missing = !is_installed_here(engine) && !is_program(command[0]);
  return {.kind = "start",
          .detail = fmt::format("Starts: {}", base::join(command, " ")),
          .missing = missing,
          .what_to_do = fmt::format("install {}, or name another program in `command`", command[0]),
          .action = {}};
}

}  // namespace

std::vector<Step> installation_plan(const EngineConfig& engine, const Machine& machine) {
  std::vector<Step> out;
  const fs::path directory = directory_of(engine, machine.policy);
  switch (engine.provisioning.mode) {
    case ProvisioningMode::kExternal: return out;
    case ProvisioningMode::kBinary: add_binary(engine, machine, out); break;
    case ProvisioningMode::kPackage: add_package(engine, machine, directory, out); break;
    case ProvisioningMode::kContainer: add_container(engine, machine, out); return out;
    case ProvisioningMode::kSource: add_source(engine, machine, directory, out); break;
  }
  const std::string program = start_command(engine, machine.policy, machine.path_variable)[0];
  out.push_back(
      {.kind = "check", .detail = fmt::format("{} must be a program then.", program), .action = CheckProgram{program}});
  return out;
}

std::vector<Step> plan(const EngineConfig& engine, const Machine& machine) {
  std::vector<Step> steps;
  if (is_installed_here(engine)) {
    const auto there = find_installation(directory_of(engine, machine.policy));
    if (there) {
      steps.push_back(
          {.kind = "installed", .detail = fmt::format("It is in {}.", there->directory.string()), .action = {}});
    } else {
      steps = installation_plan(engine, machine);
    }
  }
  if (!engine.api_key_file.empty()) steps.push_back(key_step(engine.api_key_file));
  if (engine.device.empty()) {
    steps.push_back({.kind = "connect",
                     .detail = fmt::format("{} is asked at {}; prompts of jobs for engine:{} go there.", engine.engine,
                                           engine.endpoint, engine.name),
                     .action = {}});
  } else {
    steps.push_back(
        {.kind = "memory",
         .detail = fmt::format("{} bytes of device {} are counted for it.", engine.memory_bytes, engine.device),
         .action = {}});
    steps.push_back(start_step(engine, machine));
  }
  steps.push_back({.kind = "self-test",
                   .detail = "Ready once it answers, two short jobs ran and one was cancelled.",
                   .action = {}});
  return steps;
}

}  // namespace llorch::adapter::setup
