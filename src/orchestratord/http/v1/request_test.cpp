#include "orchestratord/http/v1/request.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::http::v1 {
namespace {

std::string body(std::string_view more = R"("prompt":"Once")") {
  return R"({"task_id":"0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b","session_id":"s","model_ref":"tale","engine":"llamacpp",)"
         R"("ctx":512,"priority":"batch","max_tokens":8,"deadline_ms":60000,"workload":"completion",)" +
         std::string(more) + "}";
}

std::string field_of(const std::string& text) {
  const auto decoded = decode_task(text);
  if (decoded) return "accepted";
  EXPECT_EQ(decoded.error().code, base::ErrorCode::kInvalidParams);
  for (const auto& [key, value] : decoded.error().details) {
    if (key == "field") return std::get<std::string>(value);
  }
  return "";
}

// ORCH-2008: the fields of the first specification.
TEST(V1Request, BecomesASubmission) {
  const auto task = decode_task(body(
      R"("prompt":"Once","seed":7,"determinism":"strict","kv_hint":"reuse","expected_tokens":4,"output_mode":"text",)"
      R"("sampler_profile_version":"s1","placement":{"mode":"pin","pin_pool_id":"p"})"));
  ASSERT_TRUE(task) << task.error().message;
  const wire::SubmitRequest& submission = task->submission;
  EXPECT_EQ(task->context_tokens, 512);
  EXPECT_EQ(submission.model_ref, "tale");
  EXPECT_EQ(submission.session_id, "s");
  EXPECT_EQ(submission.prompt->text, "Once");
  EXPECT_EQ(submission.priority, wire::Priority::kBatch);
  EXPECT_EQ(submission.deadline_ms, 60000);
  EXPECT_EQ(submission.seed, 7u);
  EXPECT_EQ(submission.placement->pin_pool_id, "p");
}

// ORCH-3101, ORCH-3102, OC-CTRL-2063: unknown values of hints are ignored, known ones change nothing.
TEST(V1Request, HintsChangeNothing) {
  const auto plain = decode_task(body());
  const auto hinted = decode_task(body(R"("prompt":"Once","output_mode":"haiku","kv_hint":"warm")"));
  ASSERT_TRUE(plain && hinted);
  EXPECT_EQ(hinted->submission.prompt->text, plain->submission.prompt->text);
}

TEST(V1Request, Refusals) {
  EXPECT_EQ(field_of(body()), "accepted");
  for (const std::string field :
       {"task_id", "session_id", "workload", "model_ref", "engine", "ctx", "priority", "max_tokens", "deadline_ms"}) {
    std::string text = body();
    text.replace(text.find("\"" + field + "\""), field.size() + 2, "\"output_mode\"");
    EXPECT_EQ(field_of(text), field);
  }
  EXPECT_EQ(field_of(body(R"("prompt":"x","engine":"cuda")")), "engine");  // twice
  EXPECT_EQ(field_of(body(R"("prompt":"x","surprise":1)")), "surprise");
  EXPECT_EQ(field_of("[]"), "");
}

}  // namespace
}  // namespace llorch::orchestratord::http::v1
