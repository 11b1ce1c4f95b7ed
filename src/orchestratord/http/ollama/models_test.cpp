#include "orchestratord/http/ollama/models.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

namespace llorch::orchestratord::http::ollama {
namespace {

// An editor's plugin asks for what stands between two texts only where the template names the suffix.
TEST(OllamaModels, TheTemplateOfAModelThatFillsInNamesTheSuffix) {
  text::TokenizerData data;
  data.tokens = {"<before>", "<behind>", "<between>"};
  data.infill = {.prefix = text::TokenId{0}, .suffix = text::TokenId{1}, .middle = text::TokenId{2}};
  models::KnownModel model;
  model.facts.architecture = "llama";
  const auto told = [&] { return boost::json::parse(show_body("m", model, 0)); };
  EXPECT_EQ(told().at("template"), "");
  model.infill = std::make_shared<const text::Infill>(text::Infill::of(data).value());
  EXPECT_EQ(told().at("template"), "{{ .Prompt }}{{ .Suffix }}");
}

// LiteLLM gives a model that does not name them no tools, and writes them into the prompt.
TEST(OllamaModels, TheTemplateOfAModelThatCallsNamesTheTools) {
  text::TokenizerData data;
  data.tokens = {"<before>", "<behind>", "<between>"};
  data.infill = {.prefix = text::TokenId{0}, .suffix = text::TokenId{1}, .middle = text::TokenId{2}};
  data.chat_template = "{{ messages[0].content }}";
  models::KnownModel model;
  model.facts.architecture = "llama";
  model.chat = std::make_shared<const text::Chat>(data);
  const auto told = [&](text::formats::Format format) {
    auto known = std::make_shared<models::ChatFormat>();
    known->format = format;
    model.format = model.format_with_tools = std::move(known);
    return boost::json::parse(show_body("m", model, 0));
  };
  EXPECT_EQ(told(text::formats::Format::kHermes).at("template"), "{{ .Prompt }}{{ .Tools }}");
  EXPECT_EQ(told(text::formats::Format::kGeneric).at("template"), "") << "as its capabilities have it";
  model.infill = std::make_shared<const text::Infill>(text::Infill::of(data).value());
  EXPECT_EQ(told(text::formats::Format::kHermes).at("template"), "{{ .Prompt }}{{ .Suffix }}{{ .Tools }}");
}

// Koog reads this of every model, and lists none if one has it not.
TEST(OllamaModels, EveryModelHasAnEmbeddingLength) {
  models::KnownModel model;
  model.facts.architecture = "llama";
  const auto info = [&] { return boost::json::parse(show_body("m", model, 0)).at("model_info").as_object(); };
  EXPECT_FALSE(info().contains("llama.embedding_length")) << "an engine of another system does not tell it";
  model.facts.hidden_size = 64;
  EXPECT_EQ(info().at("llama.embedding_length"), 64);
  model.facts.embedding_dimensions = 8;
  EXPECT_EQ(info().at("llama.embedding_length"), 8) << "of its vectors";
}

// Nor if a capability is none that it knows.
TEST(OllamaModels, CapabilitiesAreThoseOfThatApi) {
  models::KnownModel model;
  const auto told = [&] { return boost::json::parse(show_body("m", model, 0)).at("capabilities"); };
  EXPECT_EQ(told(), boost::json::array{"completion"});
  model.facts.embedding_dimensions = 8;
  EXPECT_EQ(told(), boost::json::array{"embedding"});
  model.facts.embedding_dimensions.reset();
  model.facts.reranks = true;
  EXPECT_EQ(told(), boost::json::array());
}

}  // namespace
}  // namespace llorch::orchestratord::http::ollama
