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
  EXPECT_NE(told().at("template").as_string().find(".Suffix"), std::string::npos);
}

}  // namespace
}  // namespace llorch::orchestratord::http::ollama
