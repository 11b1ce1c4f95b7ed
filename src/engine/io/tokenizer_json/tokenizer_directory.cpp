#include "engine/io/tokenizer_json/tokenizer_directory.h"

#include <algorithm>

#include "engine/io/huggingface/hf_config.h"
#include "engine/io/model_layout.h"
#include "engine/io/stored_file.h"
#include "engine/io/tokenizer_json/fields.h"
#include "engine/io/tokenizer_json/gguf_tokenizer.h"
#include "engine/io/tokenizer_json/sections.h"
#include "engine/io/tokenizer_source.h"

namespace llorch::engine::io::tokenizer_json {
namespace {

namespace bj = boost::json;
using text::TokenId;
using text::TokenizerData;
using Limits = text::TokenizerLimits;

// Largest public ones: 33 MB and 1 MB.
constexpr std::size_t kTokenizerBytesMax = 128u << 20;
constexpr std::size_t kConfigBytesMax = 8u << 20;

// "bos_token": "<s>" or {"content": "<s>", ...}
std::optional<TokenId> id_named(const Fields& fields, std::string_view key, const TokenIds& ids) {
  const Fields token = fields.object(key);
  const std::string text = token.is_object() ? token.string("content") : fields.string(key);
  const auto it = ids.find(text);
  if (text.empty() || it == ids.end()) return std::nullopt;
  return it->second;
}

base::Result<> add_template(std::string text, std::string& out) {
  if (text.size() > Limits::kChatTemplateBytesMax) {
    return base::fail(invalid(
        fmt::format("a chat template has {} bytes, the limit is {}", text.size(), Limits::kChatTemplateBytesMax)));
  }
  out = std::move(text);
  return {};
}

base::Result<> add_named_template(text::NamedChatTemplate named, TokenizerData& data) {
  auto& all = data.named_chat_templates;
  std::erase_if(all, [&](const text::NamedChatTemplate& other) { return other.name == named.name; });
  if (all.size() >= Limits::kNamedChatTemplatesMax || named.name.size() > Limits::kStringBytesMax) {
    return base::fail(invalid("too many chat templates, or one with too long a name"));
  }
  text::NamedChatTemplate made{std::move(named.name), {}};
  TRY(add_template(std::move(named.text), made.text));
  all.push_back(std::move(made));
  return {};
}

base::Result<> read_chat_templates(const Fields& fields, TokenizerData& data) {
  if (const bj::array* list = fields.list("chat_template")) {
    for (const bj::value& entry : *list) {
      const Fields row(&entry);
      if (row.string("name") == "default") {
        TRY(add_template(row.string("template"), data.chat_template));
      } else {
        TRY(add_named_template({row.string("name"), row.string("template")}, data));
      }
    }
    return {};
  }
  if (fields.find("chat_template")) return add_template(fields.string("chat_template"), data.chat_template);
  return {};
}

// Tokens that only tokenizer_config.json lists.
base::Result<> add_config_tokens(const Fields& config, TokenIds& ids, TokenizerData& data) {
  const bj::value* rows = config.find("added_tokens_decoder");
  if (!rows || !rows->is_object()) return {};
  for (const auto& [key, token] : rows->get_object()) {
    const bool is_number = !key.empty() && key.size() <= 9 &&
                           std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) return base::fail(invalid("added_tokens_decoder has a key that is no token id"));
    if (ids.contains(Fields(&token).string("content"))) continue;
    TRY(add_token(token, static_cast<std::uint32_t>(std::stoul(std::string(key))), ids, data));
  }
  return {};
}

void read_named_ids(const Fields& fields, const TokenIds& ids, TokenizerData& data) {
  if (!data.bos) data.bos = id_named(fields, "bos_token", ids);
  if (!data.eos) data.eos = id_named(fields, "eos_token", ids);
}

// eos_token_id: one or a list, in which each counts once.
base::Result<> read_ends(const HfConfig& config, TokenizerData& data) {
  std::vector<std::uint32_t> ids;
  if (config.kind("eos_token_id") == HfKind::kList) {
    ids = TRY(config.u32_list("eos_token_id"));
  } else {
    ids = {TRY(config.u32("eos_token_id"))};
  }
  std::vector<bool> is_told(data.tokens.size());
  for (const std::uint32_t id : ids) {
    if (id >= data.tokens.size()) return base::fail(invalid("an eos_token_id is not in the vocabulary"));
    if (is_told[id]) continue;
    is_told[id] = true;
    data.more_end_of_generation.push_back(TokenId{id});
    if (!data.eos) data.eos = TokenId{id};
  }
  return {};
}

// What ends a generation: generation_config.json's word, else config.json's.
base::Result<> read_generation_ends(const TokenizerFiles& files, TokenizerData& data) {
  if (files.generation_config) {
    const HfConfig generation = TRY(HfConfig::parse(*files.generation_config, "generation_config.json"));
    if (generation.contains("eos_token_id")) return read_ends(generation, data);
  }
  if (!files.config) return {};
  const HfConfig config = TRY(HfConfig::parse(*files.config, "config.json"));
  if (config.contains("eos_token_id")) return read_ends(config, data);
  if (config.kind("text_config") != HfKind::kObject) return {};
  const HfConfig text = TRY(config.object("text_config"));
  return text.contains("eos_token_id") ? read_ends(text, data) : base::Result<>();
}

base::Result<bj::value> parse_optional(const std::optional<std::string>& json, std::string_view source) {
  if (!json) return bj::value();
  return parse_small(*json, source);
}

base::Result<std::optional<std::string>> read_optional(const std::filesystem::path& path) {
  if (!is_present(path)) return std::optional<std::string>();
  return std::optional<std::string>(TRY(read_text_file(path, kConfigBytesMax)));
}

base::Result<std::vector<text::NamedChatTemplate>> read_more_templates(const std::filesystem::path& directory) {
  std::vector<text::NamedChatTemplate> templates;
  for (const ModelFile& file : TRY(more_chat_templates(directory))) {
    if (templates.size() >= Limits::kNamedChatTemplatesMax) return base::fail(invalid("too many chat templates"));
    std::string content = TRY(read_text_file(file.path, Limits::kChatTemplateBytesMax));
    templates.push_back({file.path.stem().string(), std::move(content)});
  }
  std::ranges::sort(templates, {}, &text::NamedChatTemplate::name);
  return templates;
}

base::Result<> read_all_templates(const TokenizerFiles& files, const Fields& tokenizer_config, TokenizerData& data) {
  const bj::value json = TRY(parse_optional(files.chat_template_json, "chat_template.json"));
  TRY(read_chat_templates(Fields(&json), data));
  TRY(read_chat_templates(tokenizer_config, data));
  if (files.chat_template_jinja) TRY(add_template(*files.chat_template_jinja, data.chat_template));
  for (const text::NamedChatTemplate& named : files.more_chat_templates) TRY(add_named_template(named, data));
  return {};
}

}  // namespace

base::Result<TokenizerData> parse_tokenizer_files(const TokenizerFiles& files) {
  const JsonDocument document = TRY(parse_document(files.tokenizer, "tokenizer.json"));
  const bj::value config_json = TRY(parse_optional(files.tokenizer_config, "tokenizer_config.json"));
  const bj::value map_json = TRY(parse_optional(files.special_tokens_map, "special_tokens_map.json"));
  const Fields config(&config_json), map(&map_json);

  TokenizerData data;
  TokenIds ids = TRY(read_model(document, data));
  TRY(add_config_tokens(config, ids, data));
  // Added tokens have no score of their own; no text becomes one by the model.
  if (data.model == "unigram") data.scores.resize(data.tokens.size(), 0.0);
  TRY(read_pipeline(document.root, data));
  read_named_ids(config, ids, data);
  read_named_ids(map, ids, data);
  data.add_bos = config.flag("add_bos_token");
  data.add_eos = config.flag("add_eos_token");
  TRY(read_generation_ends(files, data));
  TRY(read_all_templates(files, config, data));
  return data;
}

base::Result<TokenizerData> read_tokenizer_directory(const std::filesystem::path& directory) {
  TokenizerFiles files;
  files.tokenizer = TRY(read_text_file(directory / "tokenizer.json", kTokenizerBytesMax));
  files.tokenizer_config = TRY(read_optional(directory / "tokenizer_config.json"));
  files.special_tokens_map = TRY(read_optional(directory / "special_tokens_map.json"));
  files.generation_config = TRY(read_optional(directory / "generation_config.json"));
  files.config = TRY(read_optional(directory / "config.json"));
  files.chat_template_jinja = TRY(read_optional(directory / "chat_template.jinja"));
  files.chat_template_json = TRY(read_optional(directory / "chat_template.json"));
  files.more_chat_templates = TRY(read_more_templates(directory));
  return parse_tokenizer_files(files);
}

base::Result<TokenizerData> read_tokenizer(const std::filesystem::path& model) {
  std::error_code ec;
  if (std::filesystem::is_directory(model, ec)) return read_tokenizer_directory(model);
  const GgufFile file = TRY(GgufFile::open(model));
  if (!file.contains(kEmbeddedKey)) return read_tokenizer_data(file);
  TokenizerData data = TRY(parse_tokenizer_files({.tokenizer = std::string(TRY(file.string(kEmbeddedKey)))}));
  TRY(read_tokenizer_roles(file, data));
  return data;
}

}  // namespace llorch::engine::io::tokenizer_json
