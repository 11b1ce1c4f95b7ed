#include "engine/io/tokenizer_json/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "engine/io/model_layout.h"
#include "engine/io/stored_file.h"
#include "engine/io/tokenizer_json/tokenizer_directory.h"
#include "engine/io/tokenizer_source.h"
#include "text/pre_tokenizer/scanner.h"

namespace llorch::engine::io::tokenizer_json {
namespace {

using text::PreTokenizerKind;
using text::PreTokenizerStep;
using text::TokenizerData;
using text::pre_tokenizer::Scanner;

constexpr std::size_t kTokenizerJsonBytesMax = 64u << 20;

struct Cut {
  std::string_view name;  // tokenizer.ggml.pre
  bool is_exact = true;   // else readers of the name cut a few rare characters otherwise
};

struct NamedCut {
  std::string_view name;
  std::array<std::optional<Scanner>, 3> scanners;
  bool whole_piece_first = false;
};
constexpr std::array kNamedCuts{
    NamedCut{"llama-bpe", {Scanner::kCl100k}, true},
    NamedCut{"dbrx", {Scanner::kCl100k}},
    NamedCut{"qwen2", {Scanner::kCl100kOneDigit}},
    NamedCut{"gpt-4o", {Scanner::kO200k}},
    NamedCut{"tekken", {Scanner::kTekken}, true},
    NamedCut{"gpt-2", {Scanner::kGpt2}},
    NamedCut{"refact", {Scanner::kOneNumber, Scanner::kGpt2}},
    NamedCut{"deepseek-v3", {Scanner::kUpToThreeNumbers, Scanner::kCjkOrKana, Scanner::kDeepseekV3Words}},
};

// What the names' readers use in its place: contractions in ASCII only.
Scanner without_folding(Scanner scanner) {
  switch (scanner) {
    case Scanner::kCl100kFold: return Scanner::kCl100k;
    case Scanner::kCl100kOneDigitFold: return Scanner::kCl100kOneDigit;
    case Scanner::kO200kFold: return Scanner::kO200k;
    default: return scanner;
  }
}

// The scanner of a step that isolates matches; nullopt for other steps.
std::optional<Scanner> scanner_of(const PreTokenizerStep& step) {
  if (step.kind == PreTokenizerKind::kDigits && step.individual_digits) return Scanner::kOneNumber;
  if (step.kind == PreTokenizerKind::kByteLevel && step.use_regex) return Scanner::kGpt2;
  if (step.kind != PreTokenizerKind::kSplit || !step.pattern.is_regex || step.invert) return std::nullopt;
  if (step.behavior != text::SplitBehavior::kIsolated) return std::nullopt;
  for (const auto& known : text::pre_tokenizer::known_patterns()) {
    if (known.regex == step.pattern.text) return known.scanner;
  }
  return std::nullopt;
}

// The name of a byte-level pipeline; nullopt when there is none.
std::optional<Cut> cut_of(const TokenizerData& data) {
  const std::vector<PreTokenizerStep>& steps = data.json.pipeline.pre_tokenizers;
  if (steps.empty() || steps.back().kind != PreTokenizerKind::kByteLevel || steps.back().add_prefix_space)
    return std::nullopt;
  std::vector<Scanner> scanners;
  bool is_exact = true;
  for (const PreTokenizerStep& step : steps) {
    if (step.kind == PreTokenizerKind::kByteLevel && !step.use_regex) continue;
    const auto scanner = scanner_of(step);
    if (!scanner) return std::nullopt;
    scanners.push_back(without_folding(*scanner));
    is_exact &= scanners.back() == *scanner;
  }
  for (const NamedCut& named : kNamedCuts) {
    const auto end = std::ranges::find_if(named.scanners, [](const auto& scanner) { return !scanner; });
    const bool same = std::equal(named.scanners.begin(), end, scanners.begin(), scanners.end(),
                                 [](const auto& a, Scanner b) { return a == b; });
    if (same && named.whole_piece_first == data.json.whole_piece_first) return Cut{named.name, is_exact};
  }
  return std::nullopt;
}

class Writer {
 public:
  explicit Writer(const TokenizerData& data) : data_(data) {}

  GgufTokenizer run(std::string json) {
    const std::optional<Cut> cut = data_.model == "bpe" && !data_.json.byte_fallback ? cut_of(data_) : std::nullopt;
    if (cut) vocabulary(*cut);
    const std::string why = not_exact(cut);
    if (!why.empty()) {
      put(kEmbeddedKey, std::move(json));
      out_.notes.push_back(fmt::format("the tokenizer is kept as {} too: {}", kEmbeddedKey, why));
    }
    ids();
    templates();
    return std::move(out_);
  }

 private:
  void put(std::string_view key, GgufMetadataValue value) { out_.metadata.put(key, std::move(value)); }
  void put_id(std::string_view key, const std::optional<base::TokenId>& id) {
    if (id) put(key, base::index(*id));
  }

  // Without a normalizer there is nothing normalized. Merges make no token that the model does not know; a piece that is
  // taken whole could.
  bool goes_without_saying(const text::AddedTokenRule& rule) const {
    if (rule.lstrip || rule.rstrip || rule.single_word) return false;
    return !rule.outside_model || !data_.json.whole_piece_first;
  }

  // Why the tokenizer.ggml keys do not say all; empty when they do.
  std::string not_exact(const std::optional<Cut>& cut) const {
    if (!cut) return "GGUF has no keys for this kind";
    if (!data_.json.pipeline.normalizers.empty()) return "GGUF has no key for its normalizer";
    if (!cut->is_exact) return "GGUF's name for its pattern differs from it in contractions with U+017F";
    if (!std::ranges::all_of(data_.json.added, [&](const auto& rule) { return goes_without_saying(rule); }))
      return "GGUF has no keys for how some added tokens are found";
    const std::vector<base::TokenId> begin = data_.bos ? std::vector{*data_.bos} : std::vector<base::TokenId>();
    const bool affixes_are_keys =
        data_.json.suffix.empty() && (data_.json.prefix.empty() || data_.json.prefix == begin);
    return affixes_are_keys ? "" : "GGUF has no keys for the tokens it puts around a text";
  }

  // Rows of the table that no token has are spelled as the field's converter spells them: readers want a text for each row, and
  // no two alike.
  std::vector<std::string> spellings() const {
    std::vector<std::string> tokens = data_.tokens;
    for (std::size_t i = 0; i < data_.kinds.size(); ++i) {
      if (tokens[i].empty() && data_.kinds[i] == text::TokenKind::kUnused) tokens[i] = padding_spelling(i);
    }
    return tokens;
  }

  void vocabulary(const Cut& cut) {
    put("tokenizer.ggml.model", std::string("gpt2"));
    put("tokenizer.ggml.pre", std::string(cut.name));
    put("tokenizer.ggml.tokens", spellings());
    std::vector<std::int32_t> kinds(data_.tokens.size(), static_cast<std::int32_t>(text::TokenKind::kNormal));
    for (std::size_t i = 0; i < data_.kinds.size(); ++i) kinds[i] = static_cast<std::int32_t>(data_.kinds[i]);
    put("tokenizer.ggml.token_type", std::move(kinds));
    std::vector<std::string> merges;
    for (const text::MergeIds& merge : data_.json.merges) {
      merges.push_back(data_.tokens[base::index(merge.left)] + " " + data_.tokens[base::index(merge.right)]);
    }
    put("tokenizer.ggml.merges", std::move(merges));
    if (!data_.add_bos) put("tokenizer.ggml.add_bos_token", !data_.json.prefix.empty());
  }

  void ids() {
    put_id("tokenizer.ggml.bos_token_id", data_.bos);
    put_id("tokenizer.ggml.eos_token_id", data_.eos);
    put_id("tokenizer.ggml.unknown_token_id", data_.unknown);
    if (data_.add_bos) put("tokenizer.ggml.add_bos_token", *data_.add_bos);
    if (data_.add_eos) put("tokenizer.ggml.add_eos_token", *data_.add_eos);
    // Ends beyond the one have two keys.
    std::vector<base::TokenId> more;
    for (const auto& id : {data_.eot, data_.eom}) {
      if (id) more.push_back(*id);
    }
    for (const base::TokenId id : data_.more_end_of_generation) {
      if (std::ranges::find(more, id) == more.end() && data_.eos != id) more.push_back(id);
    }
    if (!more.empty()) put_id("tokenizer.ggml.eot_token_id", more[0]);
    if (more.size() > 1) put_id("tokenizer.ggml.eom_token_id", more[1]);
    if (more.size() > 2) {
      out_.notes.push_back(fmt::format("{} of the tokens that end a generation have no key in GGUF", more.size() - 2));
    }
  }

  void templates() {
    if (!data_.chat_template.empty()) put("tokenizer.chat_template", data_.chat_template);
    if (data_.named_chat_templates.empty()) return;
    std::vector<std::string> names;
    for (const text::NamedChatTemplate& named : data_.named_chat_templates) {
      names.push_back(named.name);
      put("tokenizer.chat_template." + named.name, named.text);
    }
    put("tokenizer.chat_templates", std::move(names));
  }

  const TokenizerData& data_;
  GgufTokenizer out_;
};

}  // namespace

base::Result<GgufTokenizer> gguf_tokenizer(TokenizerData data, std::int64_t rows, std::string json) {
  const std::size_t tokens = data.tokens.size();
  TRY(text::fit_to_rows(data, rows));
  GgufTokenizer out = Writer(data).run(std::move(json));
  if (data.tokens.size() < tokens) {
    out.notes.push_back(
        fmt::format("the last {} of the tokenizer's {} tokens have no row in the model's table and are left out",
                    tokens - data.tokens.size(), tokens));
  }
  return out;
}

base::Result<GgufTokenizer> gguf_tokenizer(const std::filesystem::path& directory, std::int64_t rows) {
  GgufTokenizer out;
  if (!is_present(directory / "tokenizer.json")) {
    out.notes.push_back("the directory has no tokenizer.json: the new file has no tokenizer and takes token ids only");
    return out;
  }
  std::string json = TRY(read_text_file(directory / "tokenizer.json", kTokenizerJsonBytesMax));
  const auto data = read_tokenizer_directory(directory);
  if (data) {
    const auto alone = parse_tokenizer_files({.tokenizer = json});
    out = TRY(gguf_tokenizer(*data, rows, std::move(json)));
    if (out.metadata.contains(kEmbeddedKey) && (!alone || alone->tokens != data->tokens))
      out.notes.push_back("tokens that only tokenizer_config.json names are not in the new file's tokenizer");
    return out;
  }
  if (data.error().code != base::ErrorCode::kUnsupportedTokenizer) return base::fail(data.error());
  out.metadata.put(kEmbeddedKey, std::move(json));
  out.notes.push_back(
      fmt::format("the tokenizer is kept as {}, which this build cannot run: {}", kEmbeddedKey, data.error().message));
  return out;
}

}  // namespace llorch::engine::io::tokenizer_json
