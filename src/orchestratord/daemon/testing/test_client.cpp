#include "orchestratord/daemon/testing/test_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "wire/json.h"
#include "wire/task.h"

namespace llorch::orchestratord::daemon::testing {

net::Response TestClient::call(const std::string& method, const std::string& path, const std::string& body,
                               net::http::Headers headers) {
  net::ClientRequest request;
  request.method = method;
  request.url = url_ + path;
  request.body = body;
  request.headers = std::move(headers);
  auto response = client_.call(std::move(request));
  EXPECT_TRUE(response) << method << " " << path << ": " << response.error().message;
  return response ? *response : net::Response{.status = 0};
}

std::string TestClient::submit(const std::string& body) {
  const net::Response response = post("/v2/tasks", body);
  EXPECT_EQ(response.status, 202) << response.body;
  return field(response.body, "job_id");
}

TestClient::Reading TestClient::read(const std::string& path, const ReadOptions& options) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    Reading reading;
    net::sse::Decoder decoder;
    bool ended = false;
  };
  const auto shared = std::make_shared<Shared>();
  net::ClientRequest request;
  request.url = url_ + path;
  if (!options.last_event_id.empty()) request.headers.add("Last-Event-ID", options.last_event_id);
  net::StreamHandle handle = client_.stream(
      std::move(request), {.on_response =
                               [shared](int status, const net::http::Headers&) {
                                 const std::lock_guard lock(shared->mutex);
                                 shared->reading.status = status;
                               },
                           .on_data =
                               [shared](std::string_view bytes) {
                                 const std::lock_guard lock(shared->mutex);
                                 if (shared->reading.status != 200)
                                   shared->reading.error_body += bytes;
                                 else
                                   (void)shared->decoder.feed(bytes, shared->reading.events);
                                 std::erase_if(shared->reading.events,
                                               [](const net::sse::Event& event) { return event.event == "metrics"; });
                                 shared->changed.notify_all();
                               },
                           .on_end =
                               [shared](const base::Result<>& result) {
                                 const std::lock_guard lock(shared->mutex);
                                 shared->ended = true;
                                 shared->reading.complete = result.has_value();
                                 shared->changed.notify_all();
                               }});
  std::unique_lock lock(shared->mutex);
  shared->changed.wait_for(lock, std::chrono::milliseconds(options.timeout_ms),
                           [&] { return shared->ended || shared->reading.events.size() >= options.count; });
  lock.unlock();
  handle.cancel();
  lock.lock();
  shared->changed.wait(lock, [&] { return shared->ended; });
  Reading reading = std::move(shared->reading);
  if (reading.events.size() > options.count) reading.events.resize(options.count);
  return reading;
}

std::vector<net::sse::Event> TestClient::read_through(const std::string& path, std::int64_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::vector<net::sse::Event> held;
  std::string last_event_id;
  while (std::chrono::steady_clock::now() < deadline) {
    const Reading reading = read(path, {.last_event_id = last_event_id});
    for (const net::sse::Event& event : reading.events) {
      held.push_back(event);
      if (event.id) last_event_id = *event.id;
      if (event.event == "end" || event.event == "error") return held;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ADD_FAILURE() << path << " did not end; events: " << held.size();
  return held;
}

std::string events_path(const std::string& job_id) { return "/v2/tasks/" + job_id + "/events"; }

std::string field(const std::string& json, const std::string& name) {
  const std::string key = "\"" + name + "\":";
  std::size_t at = json.find(key);
  if (at == std::string::npos) return "";
  at += key.size();
  if (json[at] == '"') return json.substr(at + 1, json.find('"', at + 1) - at - 1);
  return json.substr(at, json.find_first_of(",}", at) - at);
}

std::vector<std::string> names_of(const std::vector<net::sse::Event>& events) {
  std::vector<std::string> out;
  for (const auto& event : events) {
    if (event.event != "metrics") out.push_back(event.event);
  }
  return out;
}

std::vector<std::string> tokens_of(const std::vector<net::sse::Event>& events) {
  std::vector<std::string> out;
  for (const auto& event : events) {
    if (event.event == "token") out.push_back(wire::decode<wire::TokenEvent>(event.data)->t);
  }
  return out;
}

}  // namespace llorch::orchestratord::daemon::testing
