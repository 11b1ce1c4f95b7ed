#pragma once
// llorch model quantize | synth: new GGUF files. Each function adds its command to `model`; a run writes its exit code to
// `code`.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/context.h"
#include "engine/models/synth/shape.h"

namespace CLI {
class App;
}

namespace llorch::cli::model {

// What both commands say about the file they write.
struct OutputOptions {
  std::string out;
  std::string type;
  std::string head_type, embedding_type;  // empty: by `type`
  std::vector<std::string> tensors;       // PATTERN=TYPE
  std::int64_t threads = 0;               // 0 = all; never changes a bit
  bool force = false;
  std::function<void()> on_progress;  // beside the progress line, each time that more is written
};

struct QuantizeOptions {
  std::string in;  // .gguf file or Hugging Face directory
  OutputOptions output;
  bool allow_requantize = false;
};
int quantize(const GlobalOptions& global, const QuantizeOptions& options);
void add_quantize(::CLI::App& model, const GlobalOptions& global, int& code);

struct SynthOptions {
  std::string architecture;
  std::string preset;  // empty: none
  engine::models::SynthShape shape;
  std::uint64_t seed = 0;
  bool repeat_layers = false;
  OutputOptions output;
};
int synth(const GlobalOptions& global, const SynthOptions& options);
void add_synth(::CLI::App& model, const GlobalOptions& global, int& code);

}  // namespace llorch::cli::model
