// Streams through real sockets: reconnecting, worker loss, slow ends.
#include <atomic>
#include <future>
#include <memory>

#include "orchestratord/daemon/testing/daemon_fixture.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

class StreamTest : public DaemonTest {
 protected:
  std::string resumable(std::uint64_t seed, int max_tokens) {
    return task(seed, max_tokens, R"(,"on_disconnect":"resume")");
  }
};

// SYS-7.5.1: a client that reconnects with the last id it saw gets the rest, no gap, no duplicate.
TEST_F(StreamTest, ReconnectContinuesAfterTheLastEvent) {
  start_with_pool();
  const std::string job_id = client_->submit(resumable(3, 200));
  std::vector<net::sse::Event> held;
  for (const std::size_t count : {1u, 1u, 2u, 30u, 7u}) {
    const auto part =
        client_->read(events_path(job_id), {.last_event_id = held.empty() ? "" : *held.back().id, .count = count});
    held.insert(held.end(), part.events.begin(), part.events.end());
  }
  const auto rest = client_->read(events_path(job_id), {.last_event_id = *held.back().id});
  held.insert(held.end(), rest.events.begin(), rest.events.end());
  EXPECT_EQ(tokens_of(held), FakePool::expected_tokens(3, 200));
  EXPECT_EQ(names_of(held).size(), 203u);
  EXPECT_EQ(held.back().event, "end");
  EXPECT_EQ(pool_->executions(), 1);
}

// SYS-5.4.2: without on_disconnect resume, the job of a lost client is cancelled at once.
TEST_F(StreamTest, DisconnectCancelsByDefault) {
  start_with_pool();
  const std::string job_id = client_->submit(task(3, 4000));
  client_->read(events_path(job_id), {.count = 3});
  wait_until([&] { return status_of(job_id) == "cancelled"; }, "the cancellation");
  EXPECT_NE(client_->get("/v2/tasks/" + job_id).body.find("\"reason\":\"disconnect\""), std::string::npos);
}

// An event that is no longer held is answered 410 with what to do; the terminal event stays.
TEST_F(StreamTest, AfterTheEndOnlyTheTerminalEventIsServed) {
  start_with_pool();
  const std::string job_id = client_->submit(task(3, 5));
  const auto events = client_->read(events_path(job_id)).events;
  ASSERT_EQ(events.back().event, "end");
  wait_until([&] { return client_->read(events_path(job_id)).events.size() == 1; }, "the buffer to go");
  const auto again = client_->read(events_path(job_id));
  EXPECT_EQ(again.events.at(0), events.back()) << "the stored event is the one that was sent";
  const auto holds_all = client_->read(events_path(job_id), {.last_event_id = *events[events.size() - 2].id});
  EXPECT_EQ(holds_all.events.at(0), events.back());
  const auto has_it = client_->read(events_path(job_id), {.last_event_id = *events.back().id});
  EXPECT_EQ(has_it.status, 204);
  const auto gone = client_->read(events_path(job_id), {.last_event_id = *events[3].id});
  EXPECT_EQ(gone.status, 410);
  EXPECT_EQ(field(gone.error_body, "code"), "STREAM_OFFSET_GONE");
  EXPECT_EQ(client_->read(events_path(job_id), {.last_event_id = "nonsense"}).status, 400);
}

// Promise 3: a worker that dies mid-stream is replaced; the client sees one stream.
TEST_F(StreamTest, AWorkerLossIsInvisibleToTheClient) {
  start_with_pool();
  pool_->break_after(20);
  const std::string job_id = client_->submit(task(3, 50));
  const auto events = client_->read(events_path(job_id)).events;
  EXPECT_EQ(tokens_of(events), FakePool::expected_tokens(3, 50));
  EXPECT_EQ(names_of(events).size(), 53u) << "one queued, one started, one end";
  EXPECT_EQ(pool_->executions(), 2);
  EXPECT_EQ(field(client_->get("/v2/tasks/" + job_id).body, "attempts"), "2");
}

// SYS-5.5.1, SYS-5.6.1: an id that is not of this stream is refused in it, under the id of the request that brought it.
TEST_F(StreamTest, AnIdOfAnotherStreamIsRefused) {
  start_with_pool();
  const std::string job_id = client_->submit(resumable(3, 4000));
  client_->read(events_path(job_id), {.count = 5});
  const auto stranger = client_->read(events_path(job_id), {.last_event_id = "3-0000000000000000"});
  ASSERT_EQ(stranger.events.size(), 1u);
  EXPECT_EQ(field(stranger.events.back().data, "code"), "REPLAY_DIVERGED");
  EXPECT_EQ(field(stranger.events.back().data, "correlation_id").size(), 36u);
}

TEST_F(StreamTest, AReplayThatDiffersIsAnErrorNotASplice) {
  start_with_pool();
  pool_->break_after(20);
  pool_->hold(true);
  const std::string job_id = client_->submit(task(3, 50));
  wait_until([this] { return pool_->running() == 1; }, "the first attempt");
  pool_->diverge_at(10);
  pool_->hold(false);
  const auto events = client_->read(events_path(job_id)).events;
  EXPECT_EQ(tokens_of(events), FakePool::expected_tokens(3, 20));
  EXPECT_EQ(events.back().event, "error");
  EXPECT_EQ(field(events.back().data, "code"), "REPLAY_DIVERGED");
  EXPECT_EQ(field(events.back().data, "retriable"), "false");
  EXPECT_EQ(status_of(job_id), "failed");
}

// ORCH-1122: the worker's own code ends the stream; what is not transient is not tried again.
TEST_F(StreamTest, AWorkersErrorReachesTheClient) {
  start_with_pool();
  pool_->refuse_with("VRAM_OOM");
  const auto failed = client_->read(events_path(client_->submit(task(3)))).events;
  EXPECT_EQ(field(failed.back().data, "code"), "VRAM_OOM");
  EXPECT_EQ(pool_->executions(), 1);
}

TEST_F(StreamTest, AttemptsAreLimited) {
  options_.config.orchestratord.retry.max_attempts = 3;
  start_with_pool();
  pool_->refuse_with("WORKER_BUSY");
  const auto failed = client_->read(events_path(client_->submit(task(3)))).events;
  EXPECT_EQ(field(failed.back().data, "code"), "RETRY_EXHAUSTED");
  EXPECT_EQ(pool_->executions(), 3);
}

TEST_F(StreamTest, ManyStreamsAtOnceAreEachTheirOwn) {
  start_with_pool(8);
  std::vector<std::string> jobs;
  for (int i = 0; i < 40; ++i) jobs.push_back(client_->submit(task(static_cast<std::uint64_t>(i), 30)));
  std::vector<std::future<std::vector<net::sse::Event>>> readings;
  for (const std::string& job : jobs) {
    readings.push_back(
        std::async(std::launch::async, [this, &job] { return client_->read_through(events_path(job)); }));
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(tokens_of(readings[i].get()), FakePool::expected_tokens(i, 30)) << i;
  }
}

// Between two looks at what a job waits for a call that waits for its time holds the stream, which reports to the hub as it goes: under a
// sanitizer a hub that is gone by then shows.
TEST_F(StreamTest, AStopLetsGoOfTheStreamWhoseWaitIsTold) {
  start_with_pool();
  pool_->hold(true);
  client_->submit(task(1));
  wait_until([this] { return pool_->running() == 1; }, "the only slot to be taken");
  const std::string waiting = client_->submit(task(2));
  const auto told = std::make_shared<std::atomic<bool>>(false);
  net::IoRuntime runtime;
  net::Client reader(runtime);
  net::ClientRequest request;
  request.url = client_->url() + events_path(waiting) + "?verbose=true";
  reader.stream(std::move(request), {.on_response = {},
                                     .on_data =
                                         [told, text = std::string()](std::string_view bytes) mutable {
                                           text += bytes;
                                           if (text.find("event: metrics") != std::string::npos) *told = true;
                                         },
                                     .on_end = {}});
  wait_until([&] { return told->load(); }, "what the job waits for");
  client_.reset();
  daemon_.reset();
}

// Restart in good order: what runs is replayed by the next process under the same ids.
TEST_F(StreamTest, AStopCutsStreamsAndTheNextProcessGoesOn) {
  start_with_pool();
  const std::string job_id = client_->submit(resumable(3, 300));
  const auto before = client_->read(events_path(job_id), {.count = 40});
  restart();
  EXPECT_EQ(client_->get("/v2/tasks/" + job_id).status, 200);
  const auto after = client_->read(events_path(job_id), {.last_event_id = *before.events.back().id});
  std::vector<net::sse::Event> held = before.events;
  held.insert(held.end(), after.events.begin(), after.events.end());
  EXPECT_EQ(tokens_of(held), FakePool::expected_tokens(3, 300));
  EXPECT_EQ(names_of(held).size(), 303u);
  EXPECT_EQ(pool_->completed()[job_id], 1);
}

}  // namespace
}  // namespace llorch::orchestratord::daemon::testing
