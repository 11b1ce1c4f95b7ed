#include "cli/model/tools.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/file.h"
#include "cli/model/image_files.h"
#include "cli/model/pixels.h"
#include "engine/compute/cpu/backend.h"
#include "engine/io/model_files.h"
#include "engine/io/model_layout.h"
#include "engine/io/tokenizer_json/tokenizer_directory.h"
#include "engine/models/model.h"
#include "text/tokenizer.h"

namespace llorch::cli::model {

using base::ErrorCode;

namespace {

constexpr std::size_t kTokensFileBytesMax = 64 << 20;

}  // namespace

base::Result<std::string> literal_or_file(const std::string& text, std::size_t bytes_max) {
  if (!text.starts_with('@')) return text;
  return base::read_file(text.substr(1), bytes_max);
}

base::Result<std::vector<base::TokenId>> parse_tokens(const std::string& argument) {
  const std::string text = TRY(literal_or_file(argument, kTokensFileBytesMax));
  std::vector<base::TokenId> tokens;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    if (*at == ',' || *at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') {
      ++at;
      continue;
    }
    std::uint32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc()) {
      return base::fail(ErrorCode::kInvalidParams,
                        fmt::format("--tokens holds something that is no token id at byte {}", at - text.data()));
    }
    tokens.push_back(base::TokenId{id});
    at = next;
  }
  if (tokens.empty()) return base::fail(ErrorCode::kInvalidParams, "--tokens names no token");
  return tokens;
}

namespace {

std::uint32_t threads_count(std::int64_t threads) {
  return threads == 0 ? std::max(1u, std::thread::hardware_concurrency()) : static_cast<std::uint32_t>(threads);
}

}  // namespace

base::Result<> check_model(const std::string& path) {
  std::error_code ec;
  const std::filesystem::path file = std::filesystem::canonical(path, ec);
  if (!ec && !std::filesystem::is_directory(file, ec) && !engine::io::has_gguf_name(file)) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("{} has no name that ends with .gguf, and no job could use it; give it such a name",
                                  file.string()));
  }
  const auto checked = [&]() -> base::Result<> {
    const auto files = TRY(engine::io::ModelFiles::open(path));
    TRY(engine::models::compile_model(files, engine::plan::DType::kF16));
    TRY(text::Tokenizer::create(TRY(engine::io::tokenizer_json::read_tokenizer(path))));
    return {};
  }();
  if (checked || checked.error().message.find(path) != std::string::npos) return checked;
  base::Error error = checked.error();
  error.message = fmt::format("{}: {}", path, error.message);
  return base::fail(std::move(error));
}

base::Result<std::unique_ptr<engine::plan::Backend>> cpu_backend(std::int64_t threads) {
  return engine::compute::cpu::make_cpu_backend(
      {.threads_count = threads_count(threads), .memory_budget_bytes = std::numeric_limits<std::uint64_t>::max()});
}

namespace {

// What the model's files say of images; no weight is read.
base::Result<engine::models::VisionConfig> vision_of(const RunOptions& options) {
  auto files = TRY(engine::io::ModelFiles::open(options.model));
  if (!options.projector.empty()) TRY(files.add_projector(TRY(engine::io::GgufFile::open(options.projector))));
  engine::models::VisionOptions vision;
  if (options.image_token >= 0) vision.image_token = static_cast<std::uint32_t>(options.image_token);
  const auto model = TRY(engine::models::compile_model(files, engine::plan::DType::kF32, vision));
  if (model.config.vision.depth == 0) {
    return base::fail(ErrorCode::kInvalidParams,
                      fmt::format("{} has no vision tower; a GGUF model's is named by --mmproj", options.model));
  }
  return model.config.vision;
}

// Nothing for a run on text. Files make room for themselves among the tokens.
base::Result<Pixels> pixels_of(const RunOptions& options, std::vector<base::TokenId>& tokens) {
  if (!options.pixels.empty()) return read_pixels(options.pixels);
  if (options.images.empty()) return Pixels{};
  PlacedFiles placed = TRY(place_files(options.images, std::move(tokens), TRY(vision_of(options))));
  tokens = std::move(placed.tokens);
  return std::move(placed.pixels);
}

}  // namespace

base::Result<LoadedRun> load_run(const RunOptions& options) {
  LoadedRun run;
  run.tokens = TRY(parse_tokens(options.tokens));
  run.devices = TRY(engine::inference::devices::open_devices(
      {.names = options.device, .cpu_threads_count = threads_count(options.threads)}));
  Pixels pixels = TRY(pixels_of(options, run.tokens));
  const auto chunk =
      static_cast<std::uint32_t>(std::min<std::size_t>(static_cast<std::size_t>(options.chunk), run.tokens.size()));
  engine::inference::EngineOptions engine_options{
      .context_tokens = static_cast<std::uint32_t>(run.tokens.size()),
      .kv_dtype = options.kv_dtype == "f32" ? engine::plan::DType::kF32 : engine::plan::DType::kF16,
      .prefill_chunk = chunk,
      .output_rows_max = chunk,
      .projector = options.projector};
  if (options.image_token >= 0)
    engine_options.image_token = base::TokenId{static_cast<std::uint32_t>(options.image_token)};
  if (!pixels.images.empty()) {
    engine_options.frame_patches_max = pixels.frame_patches_max;
    engine_options.image_rows_max = pixels.patches_count;  // never fewer patches than rows
  }
  run.engine = TRY(engine::inference::Engine::load(options.model, engine_options, run.devices.of_engine()));
  if (!pixels.images.empty()) TRY(run.engine->encode_images(0, pixels.images, pixels.patch_rows));
  return run;
}

void show_progress(std::string_view what, std::size_t done, std::size_t total) {
  if (!isatty(STDERR_FILENO)) return;
  constexpr std::size_t kWidth = 32;
  const std::size_t filled = total == 0 ? kWidth : done * kWidth / total;
  fmt::print(stderr, "\r{} [{:<{}}] {}/{}{}", what, std::string(filled, '#'), kWidth, done, total,
             done == total ? "\n" : "");
}

std::vector<std::string> files_of_model(const std::string& model) {
  std::vector<std::string> out{model};
  if (const auto files = engine::io::model_file_list(model)) {
    for (const engine::io::ModelFile& file : *files) out.push_back(file.path.string());
  }
  return out;
}

std::vector<std::string> inputs_of(const RunOptions& options) {
  std::vector<std::string> out = files_of_model(options.model);
  if (options.tokens.starts_with('@')) out.push_back(options.tokens.substr(1));
  out.push_back(options.pixels);
  out.insert(out.end(), options.images.begin(), options.images.end());
  out.push_back(options.projector);
  return out;
}

base::Result<> check_output_file(const std::string& path, bool force, const std::vector<std::string>& inputs) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::exists(status)) return {};
  if (fs::is_directory(status))
    return base::fail(ErrorCode::kConflict, fmt::format("{} is a directory; name the file to write", path));
  if (!fs::is_regular_file(status))
    return base::fail(ErrorCode::kConflict, fmt::format("{} is no regular file; name the file to write", path));
  for (const std::string& input : inputs) {
    if (!input.empty() && fs::equivalent(path, input, error))
      return base::fail(ErrorCode::kConflict, fmt::format("{} is what is read; name another file to write", path));
  }
  if (force) return {};
  return base::fail(ErrorCode::kConflict, fmt::format("{} exists; --force replaces it", path));
}

PartialFile::Buffer::int_type PartialFile::Buffer::overflow(int_type next) {
  if (sync() != 0) return traits_type::eof();
  if (!traits_type::eq_int_type(next, traits_type::eof())) sputc(traits_type::to_char_type(next));
  return traits_type::not_eof(next);
}

int PartialFile::Buffer::sync() {
  if (written && file != nullptr) written = file->append(std::as_bytes(std::span(pbase(), pptr())));
  setp(bytes.data(), bytes.data() + bytes.size());
  return written ? 0 : -1;
}

PartialFile::PartialFile(const std::string& path, bool replaces)
    : replaces_(replaces), file_(base::AtomicFile::create(path)) {
  if (file_) buffer_.file = &*file_;
}

base::Result<> PartialFile::check() const {
  if (!file_) return base::fail(file_.error());
  return {};
}

base::Result<> PartialFile::commit() {
  out_.flush();
  TRY(buffer_.written);
  return file_->commit(replaces_);
}

}  // namespace llorch::cli::model
