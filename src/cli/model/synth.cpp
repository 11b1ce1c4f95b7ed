// llorch model synth: models with random weights.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/model/write_output.h"
#include "engine/models/synth/synth_model.h"

namespace llorch::cli::model {
namespace {

namespace bj = boost::json;
namespace models = engine::models;

std::string preset_names() {
  std::string names;
  for (const models::SynthPreset& preset : models::synth_presets())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
  return names;
}

base::Result<models::SynthRequest> synth_request_of(const SynthOptions& options) {
  models::SynthRequest request{.architecture = options.architecture,
                               .shape = options.shape,
                               .seed = options.seed,
                               .repeat_layers = options.repeat_layers};
  if (!options.preset.empty()) {
    const models::SynthPreset* preset = models::find_synth_preset(options.preset);
    if (preset == nullptr) {
      return base::fail(base::ErrorCode::kInvalidParams,
                        fmt::format("there is no preset {}; known are {}", options.preset, preset_names()));
    }
    if (!request.architecture.empty() && request.architecture != preset->architecture) {
      return base::fail(base::ErrorCode::kInvalidParams,
                        fmt::format("preset {} is of architecture {}, not {}", options.preset, preset->architecture,
                                    request.architecture));
    }
    request.architecture = preset->architecture;
    request.shape = models::merged(preset->shape, options.shape);
  }
  if (request.architecture.empty()) return base::fail(base::ErrorCode::kInvalidParams, "give --arch or --preset");
  return request;
}

base::Result<Written> synthesize_model(const SynthOptions& options) {
  TRY(check_output(options.output));
  const models::SynthRequest request = TRY(synth_request_of(options));
  Written written = TRY(write_output(TRY(models::synth_model(request)), options.output, false));
  written.facts["architecture"] = request.architecture;
  written.facts["seed"] = request.seed;
  return written;
}

void add_shape(::CLI::App& command, models::SynthShape& shape) {
  const auto add = [&](const char* name, std::optional<std::uint32_t>& number, const char* help) {
    command.add_option(name, number, help)->check(::CLI::Range(0U, models::kDimensionMax));
  };
  add("--layers", shape.layers, "Blocks");
  add("--width", shape.width, "Elements of a row between blocks");
  add("--heads", shape.heads, "Query heads");
  add("--kv-heads", shape.kv_heads, "Key and value heads");
  add("--head-dim", shape.head_dim, "Elements of a head; default: width / heads");
  add("--ffn", shape.ffn, "Inner width of dense feed-forwards");
  add("--vocab", shape.vocab, "Rows of the embedding table, 259 at least");
  add("--context", shape.context, "Positions");
  add("--window", shape.window, "Positions that layers with a window see");
  add("--experts", shape.experts, "Experts of a mixture");
  add("--experts-used", shape.experts_used, "Experts a row goes through");
  add("--expert-ffn", shape.expert_ffn, "Inner width of an expert");
  add("--shared-experts", shape.shared_experts, "Experts every row goes through");
  add("--dense-layers", shape.dense_layers, "Leading layers without experts");
  add("--q-rank", shape.q_rank, "Latent attention: width of compressed queries, 0 is none");
  add("--kv-rank", shape.kv_rank, "Latent attention: width of the compressed cache");
  add("--state", shape.state, "Mamba-2: elements of a channel's state");
  add("--mixer-heads", shape.mixer_heads, "Mamba-2: heads");
  add("--attention-period", shape.attention_period, "Hybrids: every n-th layer attends");
  command.add_flag_callback(
      "--tied", [&shape] { shape.tied = true; }, "The head is the embedding table");
  command.add_flag_callback(
      "--untied", [&shape] { shape.tied = false; }, "The head is a matrix of its own");
}

}  // namespace

int synth(const GlobalOptions& global, const SynthOptions& options) {
  const auto written = synthesize_model(options);
  if (!written) return report(written.error(), global.json);
  if (global.json) return fmt::print("{}\n", bj::serialize(written->facts)), kOk;
  print_written(*written);
  return kOk;
}

void add_synth(::CLI::App& model, const GlobalOptions& global, int& code) {
  ::CLI::App* command = model.add_subcommand(
      "synth", "Write a model of random weights and a byte vocabulary; the same numbers and seed give the same bytes");
  const auto options = std::make_shared<SynthOptions>();
  command->add_option("OUT", options->output.out, "The .gguf file to write")->required();
  command->add_option("--arch", options->architecture, "As GGUF names it: llama, qwen3moe, gpt-oss, ...");
  command->add_option("--preset", options->preset, "A published model's shape: " + preset_names());
  command->add_option("--seed", options->seed, "Of the weights")->capture_default_str();
  command->add_flag("--repeat-layers", options->repeat_layers,
                    "Layers of one shape get the weights of the first: written many times as fast");
  add_shape(*command, options->shape);
  add_output_options(*command, options->output, "Q8_0");
  command->callback([options, &global, &code] { code = synth(global, *options); });
}

}  // namespace llorch::cli::model
