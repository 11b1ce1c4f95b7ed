#pragma once
// What the model commands share: token lists, the device of a tool, files that appear complete or not at all.
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/result.h"
#include "base/token_id.h"
#include "engine/inference/devices/open_devices.h"
#include "engine/inference/engine.h"
#include "engine/plan/backend.h"

namespace llorch::cli::model {

// `text`, or the content of FILE when it reads @FILE. Errors: IO_ERROR, and a file above `bytes_max`.
base::Result<std::string> literal_or_file(const std::string& text, std::size_t bytes_max);
// Ids separated by commas or blanks, or @FILE with such. Errors: INVALID_PARAMS.
base::Result<std::vector<base::TokenId>> parse_tokens(const std::string& argument);

// How a tool runs a model on given tokens; serves nobody.
struct RunOptions {
  std::string model;   // .gguf file or Hugging Face directory
  std::string tokens;  // see parse_tokens
  std::int64_t chunk = 64;
  std::int64_t threads = 0;    // 0 = all
  std::string device = "cpu";  // or cuda:N; a list shares the model
  std::string kv_dtype = "f16";
  std::string pixels;               // see read_pixels; empty: none
  std::vector<std::string> images;  // PNG and JPEG files; instead of pixels
  std::string projector;            // the tower's file of a GGUF model
  std::int64_t image_token = -1;    // -1: what the files say
};

// An engine of one slot with the tokens it will be given, ready to score them; it holds their images.
struct LoadedRun {
  std::vector<base::TokenId> tokens;
  engine::inference::devices::OpenDevices devices;
  std::unique_ptr<engine::inference::Engine> engine;
};
base::Result<LoadedRun> load_run(const RunOptions& options);

base::Result<std::unique_ptr<engine::plan::Backend>> cpu_backend(std::int64_t threads);

// Whether a worker could begin to load `path`, a model file or a Hugging Face directory: its files, its family, its tokenizer.
// Reads no weights. Errors: those of the file, which it names.
base::Result<> check_model(const std::string& path);

// A bar on a terminal, nothing in a pipe.
void show_progress(std::string_view what, std::size_t done, std::size_t total);

// The files that a model is read from, as far as they can be listed.
std::vector<std::string> files_of_model(const std::string& model);
// Those of a run.
std::vector<std::string> inputs_of(const RunOptions& options);
// Errors before anything is read: CONFLICT (no regular file, one that exists and is not to be replaced, or one of `inputs`).
base::Result<> check_output_file(const std::string& path, bool force, const std::vector<std::string>& inputs = {});

// A base::AtomicFile that is written as a stream.
class PartialFile {
 public:
  // `replaces`: also a file that has appeared by the time of commit().
  PartialFile(const std::string& path, bool replaces);
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  // The state of the stream is checked by commit(). Errors: IO_ERROR (cannot be created).
  base::Result<> check() const;
  std::ostream& out() { return out_; }
  // Errors: CONFLICT (a file has appeared that is not to be replaced); IO_ERROR.
  base::Result<> commit();

 private:
  // Keeps why the first write failed.
  struct Buffer : std::streambuf {
    int_type overflow(int_type next) override;
    int sync() override;

    std::vector<char> bytes = std::vector<char>(64 << 10);
    base::AtomicFile* file = nullptr;
    base::Result<> written;
  };

  const bool replaces_;
  base::Result<base::AtomicFile> file_;
  Buffer buffer_;
  std::ostream out_{&buffer_};
};

}  // namespace llorch::cli::model
