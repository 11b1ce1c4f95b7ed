// Names, flags and help of the model commands.
#include "cli/model/commands.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/model/make.h"

namespace llorch::cli::model {
namespace {

constexpr const char* kModelHelp = "A .gguf file or a Hugging Face directory";

void add_model(::CLI::App& command, std::string& model) { command.add_option("MODEL", model, kModelHelp)->required(); }

void add_kv_dtype(::CLI::App& command, std::string& kv_dtype) {
  command.add_option("--kv-dtype", kv_dtype, "Element type of the KV cache")
      ->check(::CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
}

void add_projector(::CLI::App& command, std::string& projector, std::int64_t& image_token) {
  command.add_option("--mmproj", projector, "The vision tower's file of a GGUF model");
  command
      .add_option("--image-token", image_token, "Id that stands for a row of an image, where the model does not say")
      ->check(::CLI::Range(std::int64_t{0}, std::int64_t{0xFFFFFFFE}));
}

void add_run_options(::CLI::App& command, RunOptions& run) {
  add_model(command, run.model);
  command.add_option("--tokens", run.tokens, "Ids separated by commas or blanks, or @FILE")->required();
  command.add_option("--chunk", run.chunk, "Rows of one step; never changes a bit")
      ->check(::CLI::Range(1, 65536))
      ->capture_default_str();
  command
      .add_option("--device", run.device,
                  "cpu or cuda:N; several, as cuda:0,1, share the model. Never another one than named")
      ->check(engine::inference::devices::check_names)
      ->capture_default_str();
  command.add_option("--threads", run.threads, "Of the CPU device; 0 is all cores; never changes a bit")
      ->check(::CLI::Range(0, 1024))
      ->capture_default_str();
  add_kv_dtype(command, run.kv_dtype);
  ::CLI::Option* pixels =
      command.add_option("--pixels", run.pixels, "Images cut into patches, for the image tokens among the ids");
  command.add_option("--image", run.images, "PNG or JPEG file, for the next image token among the ids; repeatable")
      ->allow_extra_args(false)
      ->excludes(pixels);
  add_projector(command, run.projector, run.image_token);
}

// Adds a subcommand with options of its own, which live as long as the command line.
template <class Options, class AddOptions, class Run>
void add(::CLI::App& parent, const char* name, const char* help, const AddOptions& add_options, int& code,
         const Run& run) {
  ::CLI::App* command = parent.add_subcommand(name, help);
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([options, &code, run] { code = run(*options); });
}

}  // namespace

void add_commands(::CLI::App& app, const GlobalOptions& global, int& code) {
  ::CLI::App& model = *app.add_subcommand("model", "Model files, without any daemon")->require_subcommand(1);
  const auto add_command = [&]<class Options>(const char* name, const char* help, auto add_options,
                                              int (*run)(const GlobalOptions&, const Options&)) {
    add<Options>(model, name, help, add_options, code,
                 [&global, run](const Options& options) { return run(global, options); });
  };
  add_command("show", "Architecture, sizes, and the memory a worker would need", add_model, show);
  struct Text {
    std::string model, text;
  };
  add<Text>(
      model, "tokenize", "Token ids of a text",
      [](::CLI::App& command, Text& options) {
        add_model(command, options.model);
        command.add_option("TEXT", options.text, "Text, or @FILE")->required();
      },
      code, [&global](const Text& options) { return tokenize(global, options.model, options.text); });
  add_command(
      "logits", "Teacher-forced logits of given token ids, as raw f32 [tokens, vocab]",
      [](::CLI::App& command, LogitsOptions& options) {
        add_run_options(command, options.run);
        command.add_option("--out", options.out, "File to write")->required();
        command.add_flag("--force", options.force, "Replace a file that exists");
      },
      logits);
  add_command(
      "plan", "The compiled plan: instructions, parameters, weights, state and buffers",
      [](::CLI::App& command, PlanOptions& options) {
        add_model(command, options.model);
        command.add_option("--mode", options.mode, "Which of the model's plans")
            ->check(::CLI::IsMember({"prefill", "decode", "vision"}))
            ->capture_default_str();
        add_kv_dtype(command, options.kv_dtype);
        add_projector(command, options.projector, options.image_token);
      },
      plan);
  add_command(
      "trace", "Statistics of what every instruction writes; stops where a run departs from a recorded one",
      [](::CLI::App& command, TraceOptions& options) {
        add_run_options(command, options.run);
        command.add_option("--out", options.out, "Trace to write, JSON lines");
        command.add_option("--against", options.against, "Trace to hold this run against");
        command
            .add_option("--tolerance", options.tolerance,
                        "Allowed difference of the statistics, relative to the row's rms; 0: equal bits")
            ->check(::CLI::Range(0.0, 1.0));
        command.add_option("--dump", options.dump, "File for the values of the first row that differs, raw f32");
        command.add_flag("--force", options.force, "Replace files that exist");
      },
      trace);
  add_quantize(model, global, code);
  add_synth(model, global, code);
}

}  // namespace llorch::cli::model
