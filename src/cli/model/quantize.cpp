// llorch model quantize: a model of either format to a GGUF file of another type.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/assert.h"
#include "cli/model/write_output.h"
#include "engine/io/model_digest.h"
#include "engine/io/model_files.h"
#include "engine/io/printable.h"
#include "engine/io/tokenizer_json/gguf_tokenizer.h"

namespace llorch::cli::model {
namespace {

namespace bj = boost::json;
namespace io = engine::io;

// A directory's name and tokenizer; a GGUF file brings its own.
base::Result<> complete(const std::filesystem::path& directory, engine::models::ExportModel& model) {
  model.metadata.put("general.type", std::string("model"));
  const std::filesystem::path path = std::filesystem::weakly_canonical(directory);
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (io::is_printable_utf8(name)) model.metadata.put("general.name", name);
  const auto table = std::ranges::find(model.tensors, "token_embd.weight", &engine::models::ExportTensor::name);
  ASSERT(table != model.tensors.end(), "a text model without an embedding table");
  io::tokenizer_json::GgufTokenizer tokenizer =
      TRY(io::tokenizer_json::gguf_tokenizer(directory, static_cast<std::int64_t>(table->dims.back())));
  for (const io::GgufMetadataEntry& entry : tokenizer.metadata.entries()) model.metadata.put(entry.key, entry.value);
  model.notes.insert(model.notes.end(), tokenizer.notes.begin(), tokenizer.notes.end());
  return {};
}

base::Result<Written> quantize_model(const QuantizeOptions& options) {
  TRY(check_output(options.output, options.in));
  const auto stamp = io::model_stamp(options.in);
  const io::ModelFiles files = TRY(io::ModelFiles::open(options.in));
  if (!stamp) return base::fail(stamp.error());
  engine::models::ExportModel model = TRY(engine::models::export_model(files));
  if (files.format() == io::ModelFormat::kHuggingFace) TRY(complete(options.in, model));
  const auto unchanged = [&]() -> base::Result<> {
    if (TRY(io::model_stamp(options.in)) == *stamp) return {};
    return base::fail(base::ErrorCode::kIoError,
                      fmt::format("{} changed while it was read; nothing was left at {}; try again when it is complete",
                                  options.in, options.output.out));
  };
  Written written = TRY(write_output(model, options.output, options.allow_requantize, unchanged));
  written.facts["in"] = options.in;
  written.facts["bytes_before"] = files.file_bytes();
  return written;
}

}  // namespace

int quantize(const GlobalOptions& global, const QuantizeOptions& options) {
  const auto written = quantize_model(options);
  if (!written) return report(written.error(), global.json);
  if (global.json) return fmt::print("{}\n", bj::serialize(written->facts)), kOk;
  fmt::print("{}  {}\n", options.in, human_bytes(written->facts.at("bytes_before").to_number<std::int64_t>()));
  print_written(*written);
  return kOk;
}

void add_quantize(::CLI::App& model, const GlobalOptions& global, int& code) {
  ::CLI::App* command =
      model.add_subcommand("quantize", "Write a model as a GGUF file of another element type, in one pass");
  const auto options = std::make_shared<QuantizeOptions>();
  command->add_option("IN", options->in, "A .gguf file or a Hugging Face directory")->required();
  command->add_option("OUT", options->output.out, "The .gguf file to write")->required();
  add_output_options(*command, options->output, "");
  command->add_flag("--allow-requantize", options->allow_requantize,
                    "Round values again that are quantized already: the errors of both types add up");
  command->callback([options, &global, &code] { code = quantize(global, *options); });
}

}  // namespace llorch::cli::model
