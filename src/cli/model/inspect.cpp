// llorch model show | tokenize
#include <fmt/core.h>

#include <boost/json.hpp>
#include <map>

#include "cli/model/commands.h"
#include "cli/terminal_text.h"
#include "engine/inference/engine.h"
#include "engine/io/model_files.h"
#include "engine/io/tokenizer_json/tokenizer_directory.h"
#include "engine/models/model.h"
#include "text/tokenizer.h"

namespace llorch::cli::model {
namespace {

namespace bj = boost::json;
using base::ErrorCode;
using engine::inference::Engine;
using engine::inference::EngineOptions;

constexpr std::size_t kTextFileBytesMax = 64 << 20;

using MemoryPlans = std::vector<engine::inference::memory::MemoryPlan>;

// What a worker of one slot would need at a few context lengths, the model's own last.
base::Result<MemoryPlans> memory_plans(const std::string& file, engine::plan::Backend& backend) {
  MemoryPlans plans;
  EngineOptions options{.output_rows_max = engine::inference::output_rows_of(1, 0), .draws = true};
  const auto full = TRY(Engine::predict(file, options, backend));
  for (std::uint32_t context = 512; context < full.context_tokens; context *= 4) {
    options.context_tokens = context;
    plans.push_back(TRY(Engine::predict(file, options, backend)));
  }
  plans.push_back(full);
  return plans;
}

base::Result<text::Tokenizer> tokenizer_of(const std::string& model) {
  return text::Tokenizer::create(TRY(engine::io::tokenizer_json::read_tokenizer(model)));
}

base::Result<bj::object> model_facts(const std::string& path) {
  const auto files = TRY(engine::io::ModelFiles::open(path));
  const auto compiled = TRY(engine::models::compile_model(files, engine::plan::DType::kF16));
  std::uint64_t parameters = 0;
  std::map<std::string, std::uint64_t> bytes_by_type;
  for (const auto& tensor : files.tensors()) {
    parameters += tensor.elements_count();
    bytes_by_type[std::string(engine::io::stored_type_info(tensor.type).name)] += tensor.data.size();
  }
  bj::object out{
      {"file", path},
      {"format", files.gguf() != nullptr ? fmt::format("GGUF v{}", files.gguf()->version()) : "Hugging Face"},
      {"file_bytes", files.file_bytes()},
      {"architecture", compiled.config.architecture},
      {"name", compiled.config.name},
      {"layers", compiled.config.layers.size()},
      {"width", compiled.config.width},
      {"tensors", files.tensors().size()},
      {"parameters", parameters}};
  out["notes"] = bj::array(compiled.notes.begin(), compiled.notes.end());
  bj::object types;
  for (const auto& [name, bytes] : bytes_by_type) types[name] = bytes;
  out["bytes_by_type"] = std::move(types);
  out["vocab_size"] = compiled.config.vocab;
  const auto tokenizer = tokenizer_of(path);
  out["tokenizer"] = tokenizer ? std::string(tokenizer->facts().kind) : tokenizer.error().message;
  auto backend = TRY(cpu_backend(1));
  bj::array memory;
  const MemoryPlans plans = TRY(memory_plans(path, *backend));
  for (const auto& plan : plans) {
    memory.push_back(bj::object{{"context_tokens", plan.context_tokens}, {"bytes", plan.required_bytes()}});
  }
  out["memory"] = std::move(memory);
  out["memory_weight_type"] = std::string(engine::plan::dtype_info(plans.back().weight_dtype).name);
  return out;
}

}  // namespace

int show(const GlobalOptions& global, const std::string& file) {
  const auto facts = model_facts(file);
  if (!facts) return report(facts.error(), global.json);
  if (global.json) return fmt::print("{}\n", bj::serialize(*facts)), kOk;
  const auto text = [&](const char* key) { return std::string(facts->at(key).get_string()); };
  const auto number = [&](const char* key) { return facts->at(key).to_number<std::int64_t>(); };
  print_text("file          {} ({}, {})\narchitecture  {}\n", file, text("format"), human_bytes(number("file_bytes")),
             text("architecture"));
  if (!text("name").empty()) print_text("name          {}\n", text("name"));
  print_text("parameters    {:.2f} M in {} tensors\n", static_cast<double>(number("parameters")) / 1e6,
             number("tensors"));
  for (const auto& [type, bytes] : facts->at("bytes_by_type").get_object()) {
    print_text("  {:<12}{}\n", std::string(type), human_bytes(bytes.to_number<std::int64_t>()));
  }
  print_text(
      "layers        {}, {} wide\ntokenizer     {}, {} tokens\nmemory for one slot (CPU reference device, "
      "weights in {}, f16 cache)\n",
      number("layers"), number("width"), text("tokenizer"), number("vocab_size"), text("memory_weight_type"));
  for (const auto& row : facts->at("memory").get_array()) {
    print_text("  {:>8} tokens of context  {}\n", row.at("context_tokens").to_number<std::int64_t>(),
               human_bytes(row.at("bytes").to_number<std::int64_t>()));
  }
  for (const auto& note : facts->at("notes").get_array()) print_text("note: {}\n", std::string(note.get_string()));
  return kOk;
}

int tokenize(const GlobalOptions& global, const std::string& file, const std::string& text) {
  const auto tokens = [&]() -> base::Result<std::vector<base::TokenId>> {
    const std::string content = TRY(literal_or_file(text, kTextFileBytesMax));
    const text::Tokenizer tokenizer = TRY(tokenizer_of(file));
    return tokenizer.encode(content);
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
  print_text("{}\n", ids);
  return kOk;
}

}  // namespace llorch::cli::model
