#include "cli/engines/plan.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>

namespace llorch::cli::engines {
namespace {

namespace bj = boost::json;
namespace fs = std::filesystem;
using config::EngineConfig;

// What llama.cpp takes beside weights and cache is in neither file nor flags: a bound that small models do not reach.
constexpr std::int64_t kWorkingBytes = 512LL << 20;

bool is_program(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec) && ::access(path.c_str(), X_OK) == 0;
}

std::string found_in(const std::string& path_variable, std::string_view name) {
  for (std::size_t start = 0; start <= path_variable.size();) {
    const std::size_t end = std::min(path_variable.find(':', start), path_variable.size());
    const fs::path candidate = fs::path(path_variable.substr(start, end - start)) / name;
    if (candidate.is_absolute() && is_program(candidate)) return candidate.string();
    start = end + 1;
  }
  return {};
}

Step key_step(const std::string& file) {
  struct stat st {};
  const bool there = ::stat(file.c_str(), &st) == 0;
  const bool open = there && (st.st_mode & 077) != 0;
  return {.kind = "key",
          .detail = fmt::format("The key is read from {}.", file),
          .missing = !there || open,
          .what_to_do = there ? fmt::format("chmod 600 {}", file) : fmt::format("write the key into {}", file)};
}

}  // namespace

std::vector<Step> plan(const EngineConfig& engine) {
  std::vector<Step> steps;
  if (!engine.api_key_file.empty()) steps.push_back(key_step(engine.api_key_file));
  if (engine.command.empty()) {
    steps.push_back({.kind = "connect",
                     .detail = fmt::format("{} is asked at {}; prompts of jobs for engine:{} go there.", engine.engine,
                                           engine.endpoint, engine.name)});
  } else {
    steps.push_back(
        {.kind = "memory",
         .detail = fmt::format("{} bytes of device {} are counted for it.", engine.memory_bytes, engine.device)});
    const std::string& program = engine.command[0];
    steps.push_back({.kind = "start",
                     .detail = fmt::format("Starts: {}", fmt::join(engine.command, " ")),
                     .missing = !is_program(program),
                     .what_to_do = fmt::format("install {}, or name another program in `command`", program)});
  }
  steps.push_back({.kind = "self-test", .detail = "Ready once it answers, two short jobs ran and one was cancelled."});
  return steps;
}

base::Result<EngineConfig> llama_server(const LlamaServer& wanted, const std::string& path_variable) {
  EngineConfig out;
  out.name = wanted.name;
  out.engine = "llamacpp";
  out.endpoint = "http://127.0.0.1:{port}";
  const std::string binary = wanted.binary.empty() ? found_in(path_variable, "llama-server") : wanted.binary;
  std::error_code ec;
  const fs::path program = fs::absolute(binary, ec);
  if (binary.empty() || !is_program(program)) {
    return base::fail(
        base::ErrorCode::kNotFound,
        "there is no llama-server: install llama.cpp (https://github.com/ggml-org/llama.cpp has packages and "
        "builds), or name its program with --engine-binary");
  }
  const fs::path model = fs::canonical(wanted.model, ec);
  if (ec) return base::fail(base::ErrorCode::kIoError, fmt::format("cannot read {}: {}", wanted.model, ec.message()));
  const auto file_bytes = static_cast<std::int64_t>(fs::file_size(model, ec));
  if (ec) return base::fail(base::ErrorCode::kIoError, fmt::format("cannot read {}: {}", wanted.model, ec.message()));
  out.command = {program.string(),
                 "--host",
                 "127.0.0.1",
                 "--port",
                 "{port}",
                 "--model",
                 model.string(),
                 "--ctx-size",
                 std::to_string(wanted.context_tokens * wanted.slots),
                 "--parallel",
                 std::to_string(wanted.slots),
                 "--n-gpu-layers",
                 wanted.cpu ? "0" : "999"};
  if (wanted.slots == 1) out.command.emplace_back("--no-cont-batching");
  out.device = wanted.cpu ? "cpu" : "0";
  out.slots = wanted.slots;
  out.memory_bytes = file_bytes + file_bytes / 4 + kWorkingBytes;
  return out;
}

std::string as_setting(const EngineConfig& engine) {
  bj::object entry{{"name", engine.name},
                   {"engine", engine.engine},
                   {"endpoint", engine.endpoint},
                   {"slots", engine.slots},
                   {"command", bj::array(engine.command.begin(), engine.command.end())},
                   {"device", engine.device},
                   {"memory_bytes", engine.memory_bytes}};
  return "pool-managerd.engines=" + bj::serialize(bj::array{std::move(entry)});
}

}  // namespace llorch::cli::engines
