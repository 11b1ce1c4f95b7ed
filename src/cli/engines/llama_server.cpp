#include "cli/engines/llama_server.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <filesystem>

#include "adapter/setup/installation.h"
#include "adapter/setup/known_engines.h"

namespace llorch::cli::engines {
namespace {

namespace bj = boost::json;
namespace fs = std::filesystem;
namespace setup = adapter::setup;
using config::EngineConfig;

// What llama.cpp takes beside weights and cache is in neither file nor flags: a bound that small models do not reach.
constexpr std::int64_t kWorkingBytes = 512LL << 20;

// With the arguments that llama.cpp's own program takes.
EngineConfig of_program(const std::string& program, const std::string& model, const LlamaServer& wanted) {
  EngineConfig out;
  out.engine = "llamacpp";
  out.endpoint = "http://127.0.0.1:{port}";
  out.command = {program,
                 "--host",
                 "127.0.0.1",
                 "--port",
                 "{port}",
                 "--model",
                 model,
                 "--ctx-size",
                 std::to_string(wanted.context_tokens * wanted.slots),
                 "--parallel",
                 std::to_string(wanted.slots),
                 "--n-gpu-layers",
                 wanted.cpu ? "0" : "999"};
  if (wanted.slots == 1) out.command.emplace_back("--no-cont-batching");
  return out;
}

// As the catalogue of engines says it.
base::Result<EngineConfig> of_catalogue(const std::string& model, const LlamaServer& wanted) {
  auto known = setup::known_engine("llama.cpp", wanted.cpu ? "cpu" : "gpu");
  if (!known) {
    return base::fail(
        base::ErrorCode::kNotFound,
        "there is no llama-server: install llama.cpp (https://github.com/ggml-org/llama.cpp has packages and "
        "builds), or name its program with --engine-binary");
  }
  setup::fill_in(known->entry, "model", model);
  setup::fill_in(known->entry, "context", std::to_string(wanted.context_tokens * wanted.slots));
  setup::fill_in(known->entry, "slots", std::to_string(wanted.slots));
  return std::move(known->entry);
}

}  // namespace

base::Result<EngineConfig> llama_server(const LlamaServer& wanted, const std::string& path_variable) {
  std::error_code ec;
  const fs::path model = fs::canonical(wanted.model, ec);
  if (ec) return base::fail(base::ErrorCode::kIoError, fmt::format("cannot read {}: {}", wanted.model, ec.message()));
  const auto file_bytes = static_cast<std::int64_t>(fs::file_size(model, ec));
  if (ec) return base::fail(base::ErrorCode::kIoError, fmt::format("cannot read {}: {}", wanted.model, ec.message()));
  const std::string binary = wanted.binary.empty() ? setup::find_program(path_variable, "llama-server") : wanted.binary;
  const fs::path program = fs::absolute(binary, ec);
  if (!wanted.binary.empty() && !setup::is_program(program)) {
    return base::fail(base::ErrorCode::kNotFound, fmt::format("{} is no program", wanted.binary));
  }
  EngineConfig out =
      binary.empty() ? TRY(of_catalogue(model.string(), wanted)) : of_program(program.string(), model.string(), wanted);
  out.name = wanted.name;
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
  if (engine.provisioning.mode == config::ProvisioningMode::kPackage) {
    const config::PackageConfig& package = engine.provisioning.package;
    const auto& dependencies = package.dependencies;
    entry["provisioning"] = {{"mode", "package"},
                             {"version", engine.provisioning.version},
                             {"package",
                              {{"name", package.name},
                               {"version", package.version},
                               {"checksum", package.checksum},
                               {"dependencies", bj::array(dependencies.begin(), dependencies.end())}}}};
  }
  return "pool-managerd.engines=" + bj::serialize(bj::array{std::move(entry)});
}

}  // namespace llorch::cli::engines
