// llorch model show | tokenize | logits: the engine in this process, no daemon.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <fstream>
#include <limits>
#include <map>
#include <thread>

#include "base/file.h"
#include "cli/commands.h"
#include "engine/compute/cpu/backend.h"
#include "engine/inference/engine.h"
#include "engine/io/gguf.h"
#include "engine/io/tokenizer_json/tokenizer_folder.h"
#include "engine/io/tokenizer_source.h"
#include "engine/text/tokenizer.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;
using base::ErrorCode;
using engine::inference::Engine;
using engine::inference::EngineOptions;

constexpr std::size_t kTokensFileBytesMax = 64 << 20;
constexpr std::size_t kTextFileBytesMax = 64 << 20;

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

base::Result<std::unique_ptr<engine::contract::Backend>> cpu_backend(std::int64_t threads) {
  return engine::compute::cpu::make_cpu_backend(
      {.threads_count =
           threads == 0 ? std::max(1u, std::thread::hardware_concurrency()) : static_cast<std::uint32_t>(threads),
       .memory_budget_bytes = std::numeric_limits<std::uint64_t>::max()});
}

struct MemoryRow {
  std::uint32_t context_tokens;
  std::uint64_t bytes;
};

// What a worker of one slot would need at a few context lengths, the model's own last.
base::Result<std::vector<MemoryRow>> memory_rows(const std::string& file, engine::contract::Backend& backend) {
  std::vector<MemoryRow> rows;
  const auto full = TRY(Engine::predict(file, EngineOptions{}, backend));
  for (std::uint32_t context = 512; context < full.context_tokens; context *= 4) {
    const auto plan = TRY(Engine::predict(file, EngineOptions{.context_tokens = context}, backend));
    rows.push_back({context, plan.total_bytes()});
  }
  rows.push_back({full.context_tokens, full.total_bytes()});
  return rows;
}

base::Result<bj::object> describe(const std::string& path) {
  const auto file = TRY(engine::io::GgufFile::open(path));
  std::uint64_t parameters = 0;
  std::map<std::string, std::uint64_t> bytes_by_type;
  for (const auto& tensor : file.tensors()) {
    parameters += tensor.elements_count();
    bytes_by_type[std::string(engine::contract::dtype_info(tensor.dtype).name)] += tensor.data.size();
  }
  bj::object out{{"file", path},
                 {"format", fmt::format("GGUF v{}", file.version())},
                 {"file_bytes", file.file_bytes()},
                 {"architecture", std::string(TRY(file.string("general.architecture")))},
                 {"name", std::string(TRY(file.string_or("general.name", "")))},
                 {"tensors", file.tensors().size()},
                 {"parameters", parameters}};
  bj::object types;
  for (const auto& [name, bytes] : bytes_by_type) types[name] = bytes;
  out["bytes_by_type"] = std::move(types);
  const auto tokenizer = TRY(engine::text::Tokenizer::create(TRY(engine::io::read_tokenizer_data(file))));
  out["tokenizer"] = std::string(tokenizer.facts().kind);
  out["vocab_size"] = tokenizer.facts().vocab_size;
  auto backend = TRY(cpu_backend(1));
  bj::array memory;
  for (const MemoryRow& row : TRY(memory_rows(path, *backend))) {
    memory.push_back(bj::object{{"context_tokens", row.context_tokens}, {"bytes", row.bytes}});
  }
  out["memory"] = std::move(memory);
  return out;
}

// A bar on a terminal, nothing in a pipe.
void show_progress(std::string_view what, std::size_t done, std::size_t total) {
  if (!isatty(STDERR_FILENO)) return;
  constexpr std::size_t kWidth = 32;
  const std::size_t filled = total == 0 ? kWidth : done * kWidth / total;
  fmt::print(stderr, "\r{} [{:<{}}] {}/{}{}", what, std::string(filled, '#'), kWidth, done, total,
             done == total ? "\n" : "");
}

// Writes beside the file that is wanted, which appears only when it is complete.
class PartialFile {
 public:
  explicit PartialFile(const std::string& path)
      : path_(path), partial_(path + ".partial"), out_(partial_, std::ios::binary | std::ios::trunc) {}
  ~PartialFile() {
    if (!complete_) std::remove(partial_.c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  std::ofstream& out() { return out_; }
  base::Result<> commit() {
    out_.close();
    complete_ = out_ && std::rename(partial_.c_str(), path_.c_str()) == 0;
    if (!complete_) return base::fail(base::io_error("cannot write", path_, errno));
    return {};
  }

 private:
  const std::string path_, partial_;
  std::ofstream out_;
  bool complete_ = false;
};

base::Result<> write_logits(const LogitsOptions& o) {
  const auto tokens = TRY(parse_tokens(o.tokens));
  auto backend = TRY(cpu_backend(o.threads));
  const auto chunk =
      static_cast<std::uint32_t>(std::min<std::size_t>(static_cast<std::size_t>(o.chunk), tokens.size()));
  const EngineOptions options{
      .context_tokens = static_cast<std::uint32_t>(tokens.size()),
      .kv_dtype = o.kv_dtype == "f32" ? engine::contract::DType::kF32 : engine::contract::DType::kF16,
      .prefill_chunk = chunk,
      .output_rows_max = chunk};
  auto engine = TRY(Engine::load(o.file, options, *backend));
  PartialFile file(o.out);
  if (!file.out()) return base::fail(base::io_error("cannot create", o.out, errno));
  TRY(engine->score(0, tokens, [&](std::size_t row, std::span<const float> logits) {
    file.out().write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
    show_progress("logits", row + 1, tokens.size());
  }));
  return file.commit();
}

}  // namespace

int model_show(const GlobalOptions& global, const std::string& file) {
  const auto facts = describe(file);
  if (!facts) return report(facts.error(), global.json);
  if (global.json) return fmt::print("{}\n", bj::serialize(*facts)), kOk;
  const auto text = [&](const char* key) { return std::string(facts->at(key).get_string()); };
  const auto number = [&](const char* key) { return facts->at(key).to_number<std::int64_t>(); };
  fmt::print("file          {} ({}, {})\narchitecture  {}\n", file, text("format"), human_bytes(number("file_bytes")),
             text("architecture"));
  if (!text("name").empty()) fmt::print("name          {}\n", text("name"));
  fmt::print("parameters    {:.2f} M in {} tensors\n", static_cast<double>(number("parameters")) / 1e6,
             number("tensors"));
  for (const auto& [type, bytes] : facts->at("bytes_by_type").get_object()) {
    fmt::print("  {:<12}{}\n", std::string(type), human_bytes(bytes.to_number<std::int64_t>()));
  }
  fmt::print("tokenizer     {}, {} tokens\nmemory for one slot (CPU reference device, f16 cache)\n", text("tokenizer"),
             number("vocab_size"));
  for (const auto& row : facts->at("memory").get_array()) {
    fmt::print("  {:>8} tokens of context  {}\n", row.at("context_tokens").to_number<std::int64_t>(),
               human_bytes(row.at("bytes").to_number<std::int64_t>()));
  }
  return kOk;
}

int model_tokenize(const GlobalOptions& global, const std::string& file, const std::string& text) {
  const auto tokens = [&]() -> base::Result<std::vector<base::TokenId>> {
    const std::string content = TRY(literal_or_file(text, kTextFileBytesMax));
    auto data = TRY(engine::io::tokenizer_json::read_tokenizer(file));
    return TRY(engine::text::Tokenizer::create(std::move(data))).encode(content);
  }();
  if (!tokens) return report(tokens.error(), global.json);
  if (global.json) {
    bj::array ids;
    for (const base::TokenId id : *tokens) ids.emplace_back(base::index(id));
    fmt::print("{}\n", bj::serialize(bj::object{{"tokens", std::move(ids)}, {"count", tokens->size()}}));
    return kOk;
  }
  std::string ids;
  for (const base::TokenId id : *tokens) ids += fmt::format("{}{}", ids.empty() ? "" : " ", base::index(id));
  fmt::print("{}\n", ids);
  return kOk;
}

int model_logits(const GlobalOptions& global, const LogitsOptions& options) {
  if (const auto written = write_logits(options); !written) return report(written.error(), global.json);
  if (global.json) fmt::print("{}\n", bj::serialize(bj::object{{"out", options.out}}));
  return kOk;
}

}  // namespace llorch::cli
