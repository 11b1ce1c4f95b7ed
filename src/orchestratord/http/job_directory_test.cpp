#include "orchestratord/http/job_directory.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::http {
namespace {

LiveJobPtr job_of(const char* job_id, const char* model_ref) {
  auto job = std::make_shared<LiveJobData>();
  job->record.job_id = base::JobId(job_id);
  job->record.model_ref = model_ref;
  return job;
}

// Who has read in the store that the last job of a model has ended may remove the model.
TEST(JobDirectory, AJobWhoseEndIsStoredNeedsItsModelNoMore) {
  JobDirectory jobs;
  jobs.add(job_of("one", "file:/a"));
  jobs.add(job_of("two", "file:/a"));
  EXPECT_TRUE(jobs.any_of_model("file:/a"));
  EXPECT_FALSE(jobs.any_of_model("file:/b"));
  jobs.note_end(base::JobId("one"));
  EXPECT_TRUE(jobs.any_of_model("file:/a")) << "the other one runs";
  jobs.note_end(base::JobId("two"));
  jobs.note_end(base::JobId("nobody"));
  EXPECT_FALSE(jobs.any_of_model("file:/a"));
  EXPECT_NE(jobs.find(base::JobId("two")), nullptr) << "its stream is finished yet";
  jobs.remove(base::JobId("two"));
  EXPECT_EQ(jobs.find(base::JobId("two")), nullptr);
}

}  // namespace
}  // namespace llorch::orchestratord::http
