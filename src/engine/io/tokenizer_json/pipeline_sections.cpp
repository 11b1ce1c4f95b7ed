#include <algorithm>
#include <array>
#include <iterator>

#include "engine/io/tokenizer_json/fields.h"
#include "engine/io/tokenizer_json/sections.h"

namespace llorch::engine::io::tokenizer_json {
namespace {

namespace bj = boost::json;
using namespace text;  // NOLINT(google-build-using-namespace): the steps have long names of their own

base::Error unknown_step(std::string_view section, const Fields& step) {
  return unsupported(fmt::format("a {} of type \"{}\"", section, step.string("type").substr(0, 64)));
}

// Calls read(step) for the section's one step or for those of its sequence, in order.
template <class Read>
base::Result<> for_each_step(const bj::value* section, std::string_view list_key, std::size_t depth, const Read& read) {
  const Fields step(section);
  if (!section) return {};
  if (step.string("type") != "Sequence") return read(step);
  const bj::array* steps = step.list(list_key);
  if (!steps || depth > 4) return base::fail(invalid("a Sequence of steps has none or is nested too deep"));
  for (const bj::value& inner : *steps) TRY(for_each_step(&inner, list_key, depth + 1, read));
  return {};
}

base::Result<> check_length(std::size_t count) {
  if (count < TokenizerLimits::kStepsMax) return {};
  return base::fail(unsupported("more steps than the limit"));
}

base::Result<TextPattern> read_pattern(const Fields& step) {
  const Fields pattern = step.object("pattern");
  TextPattern out;
  if (const bj::value* regex = pattern.find("Regex"); regex && regex->is_string()) {
    out = {.text = pattern.string("Regex"), .is_regex = true};
  } else {
    out.text = pattern.string("String");
  }
  if (out.text.empty() || out.text.size() > TokenizerLimits::kStringBytesMax) {
    return base::fail(unsupported("a pattern that is empty or too long"));
  }
  return out;
}

base::Result<std::string> read_text(const Fields& step, std::string_view key) {
  std::string text = step.string(key);
  if (text.size() > TokenizerLimits::kStringBytesMax) return base::fail(unsupported("a step with a text too long"));
  return text;
}

// BERT's normalizer is steps of ours: cleaning, spaces around ideographs, no accents, lower case.
void add_bert_normalizer(const Fields& step, std::vector<NormalizerStep>& out) {
  const bool lowercase = step.boolean("lowercase", true);
  const auto add = [&](NormalizerKind kind) { out.push_back({.kind = kind, .pattern = {}, .text = {}}); };
  if (step.boolean("clean_text", true)) add(NormalizerKind::kClean);
  if (step.boolean("handle_chinese_chars", true)) add(NormalizerKind::kSpaceCjk);
  if (step.boolean("strip_accents", lowercase)) {  // null: as lowercase says
    add(NormalizerKind::kNfd);
    add(NormalizerKind::kDropNonspacing);
  }
  if (lowercase) add(NormalizerKind::kLowercase);
}

base::Result<> read_normalizer(const Fields& step, std::vector<NormalizerStep>& out) {
  TRY(check_length(out.size()));
  const std::string type = step.string("type");
  NormalizerStep made;
  if (type == "NFC") {
    made.kind = NormalizerKind::kNfc;
  } else if (type == "NFD") {
    made.kind = NormalizerKind::kNfd;
  } else if (type == "NFKC") {
    made.kind = NormalizerKind::kNfkc;
  } else if (type == "NFKD") {
    made.kind = NormalizerKind::kNfkd;
  } else if (type == "Lowercase") {
    made.kind = NormalizerKind::kLowercase;
  } else if (type == "Strip") {
    made = {.kind = NormalizerKind::kStrip,
            .left = step.boolean("strip_left", true),
            .right = step.boolean("strip_right", true)};
  } else if (type == "Replace") {
    made.kind = NormalizerKind::kReplace;
    made.pattern = TRY(read_pattern(step));
    made.text = TRY(read_text(step, "content"));
  } else if (type == "Prepend") {
    made.kind = NormalizerKind::kPrepend;
    made.text = TRY(read_text(step, "prepend"));
  } else if (type == "BertNormalizer") {
    TRY(check_length(out.size() + 4));
    add_bert_normalizer(step, out);
    return {};
  } else if (type == "Precompiled" && step.string("precompiled_charsmap").empty()) {
    return {};  // maps nothing
  } else {
    return base::fail(unknown_step("normalizer", step));
  }
  out.push_back(std::move(made));
  return {};
}

base::Result<SplitBehavior> read_behavior(const Fields& step) {
  const std::string name = step.string("behavior");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated" || name.empty()) return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return base::fail(unsupported("an unknown behavior of a split"));
}

base::Result<PrependScheme> read_prepend(const Fields& step) {
  const std::string scheme = step.string("prepend_scheme");
  if (scheme.empty()) return step.boolean("add_prefix_space", true) ? PrependScheme::kAlways : PrependScheme::kNever;
  if (scheme == "always") return PrependScheme::kAlways;
  if (scheme == "first") return PrependScheme::kFirst;
  if (scheme == "never") return PrependScheme::kNever;
  return base::fail(unsupported("an unknown prepend_scheme"));
}

base::Result<std::string> read_replacement(const Fields& step) {
  const std::string replacement = TRY(read_text(step, "replacement"));
  if (replacement.empty()) return base::fail(unsupported("a Metaspace without a replacement"));
  return replacement;
}

// Rust's \w+|[^\w\s]+ , whose \w is Unicode's.
constexpr std::string_view kWordsOrSigns = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+)"
                                           R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\s]+)";

base::Result<> read_pre_tokenizer(const Fields& step, std::vector<PreTokenizerStep>& out) {
  TRY(check_length(out.size()));
  const std::string type = step.string("type");
  PreTokenizerStep made;
  if (type == "Split") {
    made.kind = PreTokenizerKind::kSplit;
    made.pattern = TRY(read_pattern(step));
    made.behavior = TRY(read_behavior(step));
    made.invert = step.boolean("invert");
  } else if (type == "ByteLevel") {
    made = {.kind = PreTokenizerKind::kByteLevel,
            .add_prefix_space = step.boolean("add_prefix_space", true),
            .use_regex = step.boolean("use_regex", true)};
  } else if (type == "Metaspace") {
    made.kind = PreTokenizerKind::kMetaspace;
    made.replacement = TRY(read_replacement(step));
    made.prepend = TRY(read_prepend(step));
    made.split = step.boolean("split", true);
  } else if (type == "Digits") {
    made = {.kind = PreTokenizerKind::kDigits, .individual_digits = step.boolean("individual_digits")};
  } else if (type == "Punctuation") {
    made.kind = PreTokenizerKind::kPunctuation;
    made.behavior = TRY(read_behavior(step));
  } else if (type == "WhitespaceSplit") {
    made.kind = PreTokenizerKind::kWhitespaceSplit;
  } else if (type == "BertPreTokenizer") {
    TRY(check_length(out.size() + 1));
    made.kind = PreTokenizerKind::kWhitespaceSplit;
    out.push_back(made);
    made.kind = PreTokenizerKind::kPunctuation;
  } else if (type == "Whitespace") {
    made = {.kind = PreTokenizerKind::kSplit,
            .pattern = {.text = std::string(kWordsOrSigns), .is_regex = true},
            .behavior = SplitBehavior::kRemoved,
            .invert = true};
  } else if (type == "CharDelimiterSplit") {
    made.kind = PreTokenizerKind::kSplit;
    made.pattern.text = TRY(read_text(step, "delimiter"));
    made.behavior = SplitBehavior::kRemoved;
  } else {
    return base::fail(unknown_step("pre_tokenizer", step));
  }
  out.push_back(std::move(made));
  return {};
}

base::Result<> read_decoder(const Fields& step, std::vector<DecoderStep>& out) {
  TRY(check_length(out.size()));
  const std::string type = step.string("type");
  DecoderStep made;
  if (type == "ByteLevel") {
    made.kind = DecoderKind::kByteLevel;
  } else if (type == "Metaspace") {
    made.kind = DecoderKind::kMetaspace;
    made.text = TRY(read_replacement(step));
    made.prepend = TRY(read_prepend(step));
  } else if (type == "ByteFallback") {
    made.kind = DecoderKind::kByteFallback;
  } else if (type == "Fuse") {
    made.kind = DecoderKind::kFuse;
  } else if (type == "Replace") {
    made.kind = DecoderKind::kReplace;
    made.pattern = TRY(read_pattern(step));
    made.text = TRY(read_text(step, "content"));
  } else if (type == "WordPiece") {
    if (step.string("prefix") != "##") return base::fail(unsupported("a WordPiece decoder whose prefix is not \"##\""));
    made.kind = DecoderKind::kWordPiece;
    made.start = step.boolean("cleanup", true) ? 1 : 0;
  } else if (type == "Strip") {
    made.kind = DecoderKind::kStrip;
    made.text = TRY(read_text(step, "content"));
    made.start = step.count("start").value_or(0);
    made.stop = step.count("stop").value_or(0);
  } else {
    return base::fail(unknown_step("decoder", step));
  }
  out.push_back(std::move(made));
  return {};
}

base::Result<> add_affix(std::optional<std::uint32_t> id, std::vector<TokenId>& affix) {
  if (!id || affix.size() >= TokenizerLimits::kAffixMax) {
    return base::fail(invalid("the post_processor names a token without an id, or too many"));
  }
  affix.push_back(TokenId{*id});
  return {};
}

// What a TemplateProcessing puts before and after the one sequence of `single`.
base::Result<> read_template(const Fields& processor, TokenizerJson& out) {
  const bj::array* single = processor.list("single");
  const Fields special_tokens = processor.object("special_tokens");
  if (!single) return base::fail(invalid("the post_processor's template is missing"));
  bool after_text = false;
  for (const bj::value& piece : *single) {
    const Fields fields(&piece);
    if (fields.find("Sequence")) {
      if (after_text) return base::fail(unsupported("a template that repeats the text"));
      after_text = true;
      continue;
    }
    const bj::array* ids = special_tokens.object(fields.object("SpecialToken").string("id")).list("ids");
    if (!ids) return base::fail(invalid("the post_processor names a token without an id"));
    for (const bj::value& id : *ids) TRY(add_affix(Fields::as_count(&id), after_text ? out.suffix : out.prefix));
  }
  if (!after_text) return base::fail(unsupported("a template without the text"));
  return {};
}

// What a TemplateProcessing puts between the two sequences of `pair`, where around them stands what stands around one.
std::optional<text::PairRule> read_pair(const Fields& processor, const TokenizerJson& single) {
  const bj::array* pieces = processor.list("pair");
  const Fields special_tokens = processor.object("special_tokens");
  std::array<std::vector<TokenId>, 3> affixes;  // before, between, behind
  std::array<std::uint32_t, 3> types{};
  std::size_t at = 0;
  for (std::size_t i = 0; pieces != nullptr && i < pieces->size(); ++i) {
    const Fields fields(&pieces->at(i));
    if (fields.find("Sequence")) {
      const Fields sequence = fields.object("Sequence");
      if (++at > 2 || sequence.string("id") != (at == 1 ? "A" : "B")) return std::nullopt;
      types[at] = sequence.count("type_id").value_or(0);
      continue;
    }
    const Fields token = fields.object("SpecialToken");
    const bj::array* ids = special_tokens.object(token.string("id")).list("ids");
    // The tokens behind the second text are of its type, all others of the first one's.
    if (ids == nullptr || token.count("type_id").value_or(0) != (at == 2 ? types[2] : 0)) return std::nullopt;
    for (const bj::value& id : *ids) {
      const auto number = Fields::as_count(&id);
      if (!number || affixes[at].size() >= TokenizerLimits::kAffixMax) return std::nullopt;
      affixes[at].push_back(TokenId{*number});
    }
  }
  if (at != 2 || types[1] != 0 || affixes[0] != single.prefix || affixes[2] != single.suffix) return std::nullopt;
  return text::PairRule{.between = std::move(affixes[1]), .second_type = types[2]};
}

base::Result<> read_post_processor(const Fields& processor, TokenizerJson& out) {
  const std::string type = processor.string("type");
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") {
    TRY(read_template(processor, out));
    out.pair = read_pair(processor, out);
    return {};
  }
  if (type != "BertProcessing" && type != "RobertaProcessing") {
    return base::fail(unknown_step("post_processor", processor));
  }
  const auto id_of = [&](std::string_view key) -> std::optional<std::uint32_t> {
    const bj::array* pair = processor.list(key);
    return pair && pair->size() == 2 ? Fields::as_count(&pair->at(1)) : std::nullopt;
  };
  TRY(add_affix(id_of("cls"), out.prefix));
  TRY(add_affix(id_of("sep"), out.suffix));
  // Two of them for RoBERTa, whose texts are of one type.
  const bool one_type = type == "RobertaProcessing";
  out.pair = text::PairRule{.between = out.suffix, .second_type = one_type ? 0U : 1U};
  if (one_type) TRY(add_affix(index(out.suffix.back()), out.pair->between));
  return {};
}

}  // namespace

base::Result<> read_pipeline(const bj::value& root, TokenizerData& data) {
  const Fields fields(&root);
  Pipeline& pipeline = data.json.pipeline;
  TRY(for_each_step(fields.find("normalizer"), "normalizers", 0,
                    [&](const Fields& step) { return read_normalizer(step, pipeline.normalizers); }));
  TRY(for_each_step(fields.find("pre_tokenizer"), "pretokenizers", 0,
                    [&](const Fields& step) { return read_pre_tokenizer(step, pipeline.pre_tokenizers); }));
  TRY(for_each_step(fields.find("decoder"), "decoders", 0,
                    [&](const Fields& step) { return read_decoder(step, pipeline.decoders); }));
  data.json.pair.emplace();  // without a processor for it, one text behind the other
  return for_each_step(fields.find("post_processor"), "processors", 0,
                       [&](const Fields& step) { return read_post_processor(step, data.json); });
}

}  // namespace llorch::engine::io::tokenizer_json
