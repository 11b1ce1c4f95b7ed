#include "cli/engines/llama_server.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <filesystem>

#include "adapter/setup/installation.h"

namespace llorch::cli::engines {
namespace {

namespace bj = boost::json;
namespace fs = std::filesystem;
using config::EngineConfig;

// What llama.cpp takes beside weights and cache is in neither file nor flags: a bound that small models do not reach.
constexpr std::int64_t kWorkingBytes = 512LL << 20;

}  // namespace

base::Result<EngineConfig> llama_server(const LlamaServer& wanted, const std::string& path_variable) {
  EngineConfig out;
  out.name = wanted.name;
  out.engine = "llamacpp";
  out.endpoint = "http://127.0.0.1:{port}";
  const std::string binary =
      wanted.binary.empty() ? adapter::setup::find_program(path_variable, "llama-server") : wanted.binary;
  std::error_code ec;
  const fs::path program = fs::absolute(binary, ec);
  if (binary.empty() || !adapter::setup::is_program(program)) {
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
