#include "orchestratord/http/ollama/pull.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::http::ollama {
namespace {

TEST(OllamaPull, TakesEitherSpelling) {
  EXPECT_EQ(decode_pull(R"({"model":"tale:5m"})")->model, "tale:5m");
  EXPECT_EQ(decode_pull(R"({"name":"tale:latest","insecure":false})")->model, "tale");
  EXPECT_EQ(decode_pull(R"({"model":"oci:host/org/tale:latest"})")->model, "oci:host/org/tale:latest");
  EXPECT_TRUE(decode_pull(R"({"model":"tale"})")->stream);
  EXPECT_FALSE(decode_pull(R"({"model":"tale","stream":false})")->stream);
  EXPECT_FALSE(decode_pull(R"({"model":"tale","insecure":true})"));
  EXPECT_FALSE(decode_pull(R"({"stream":true})"));
  EXPECT_FALSE(decode_pull(R"({"model":"https://a/b\u0000"})"));
  EXPECT_EQ(*decode_delete(R"({"name":"tale"})"), "tale");
  EXPECT_FALSE(decode_delete("{}"));
}

TEST(OllamaCopy, TakesTwoNames) {
  EXPECT_EQ(decode_copy(R"({"source":"tale:latest","destination":"b:latest"})")->source, "tale:latest");
  EXPECT_EQ(decode_copy(R"({"source":"tale","destination":"b:latest"})")->destination, "b");
  EXPECT_FALSE(decode_copy(R"({"source":"tale"})"));
  EXPECT_FALSE(decode_copy(R"({"destination":"b"})"));
  EXPECT_FALSE(decode_copy(R"({"source":"","destination":"b"})"));
  EXPECT_FALSE(decode_copy(R"({"source":["tale"],"destination":"b"})"));
}

TEST(OllamaPull, LinesSayHowFarItIs) {
  wire::PullStatus pull{.pull_id = "p-1"};
  EXPECT_EQ(pull_line(pull), "{\"status\":\"pulling manifest\"}\n");
  pull.state = wire::PullState::kFetching;
  EXPECT_EQ(pull_line(pull), "{\"status\":\"pulling\",\"digest\":\"p-1\",\"completed\":0}\n");
  pull.bytes_done = 5;
  pull.bytes_total = 9;
  EXPECT_EQ(pull_line(pull), "{\"status\":\"pulling\",\"digest\":\"p-1\",\"total\":9,\"completed\":5}\n");
  pull.state = wire::PullState::kFinishing;
  EXPECT_EQ(pull_line(pull), "{\"status\":\"verifying sha256 digest\"}\n");
  EXPECT_TRUE(pulled_line({.model_id = "tale"}).starts_with(R"({"status":"success","llorch":{"model_id":"tale")"));
}

}  // namespace
}  // namespace llorch::orchestratord::http::ollama
