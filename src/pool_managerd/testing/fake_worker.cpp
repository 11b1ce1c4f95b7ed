// A worker that computes nothing: serves /health, /metrics and /shutdown, says ready, and misbehaves as its id asks:
// "...-crash" fails to load, "...-mute" never says ready, "...-hang" stops answering once ready, "...-stubborn" ignores
// every request to stop, "...-greedy" claims more memory than it was given, "...-hasher" tells the digest of the model's files,
// "...-liar" another one, "...-loading" says that it has loaded three quarters and stays there. Over several devices it holds less on the later ones.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "base/process.h"
#include "engine/io/model_digest.h"
#include "net/client.h"
#include "net/http/url.h"
#include "net/server.h"
#include "wire/json.h"
#include "wire/pool.h"
#include "wire/worker.h"

namespace {

using namespace llorch;

std::map<std::string, std::string> parse(int argc, char** argv) {
  std::map<std::string, std::string> out;
  for (int i = 1; i + 1 < argc; i += 2) out[argv[i]] = argv[i + 1];
  return out;
}

wire::ReadyCallback callback_of(std::map<std::string, std::string>& args, const std::string& uri) {
  wire::ReadyCallback callback;
  callback.worker_id = args["--worker-id"];
  callback.spawn_token = std::getenv("LLORCH_SPAWN_TOKEN");
  callback.model_ref = args["--model-ref"];
  callback.model_digest = args.contains("--model-stamp") ? "sha256:" + args["--model-digest"] : "sha256:00";
  callback.uri = uri;
  // All of the first device's budget, half of the others'.
  std::istringstream budgets(args["--memory-budget-bytes"]);
  for (std::string budget; std::getline(budgets, budget, ',');) {
    auto& bytes = callback.vram_bytes_by_device;
    bytes.push_back(std::stoll(budget) / (bytes.empty() ? 1 : 2));
    callback.vram_bytes += bytes.back();
  }
  if (callback.vram_bytes_by_device.size() == 1) callback.vram_bytes_by_device.clear();
  if (callback.worker_id.ends_with("-greedy")) ++callback.vram_bytes;
  if (const bool lies = callback.worker_id.ends_with("-liar"); lies || callback.worker_id.ends_with("-hasher")) {
    callback.model_stamp = engine::io::model_stamp(args["--model"]).value();
    callback.model_digest =
        "sha256:" + (lies ? std::string(64, 'd') : engine::io::model_digest(args["--model"]).value());
  }
  callback.memory_bytes = callback.vram_bytes;
  callback.slots_total = std::stoll(args["--slots"]);
  callback.context_length = std::stoll(args["--context"]);
  callback.device_class = "cpu-x86";
  callback.kv_dtype = args["--kv-dtype"];
  return callback;
}

// Twice and out of order, as calls on the way may be.
void say_progress(net::IoRuntime& runtime, std::map<std::string, std::string>& args) {
  net::Client client(runtime);
  for (const std::int64_t percent : {0, 75, 50, 75}) {
    net::ClientRequest request;
    request.method = "POST";
    request.url = args["--progress-url"];
    request.bearer = std::getenv("LLORCH_WORKER_CALLBACK_TOKEN");
    request.body = wire::encode(wire::LoadProgress{
        .worker_id = args["--worker-id"], .spawn_token = std::getenv("LLORCH_SPAWN_TOKEN"), .percent = percent});
    const auto answer = client.call(std::move(request));
    if (!answer || answer->status != 200)
      std::fprintf(stderr, "progress of %d was refused\n", static_cast<int>(percent));
  }
}

}  // namespace

int main(int argc, char** argv) {
  auto args = parse(argc, argv);
  const std::string id = args["--worker-id"];
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::fprintf(stderr, "{\"event\":\"startup\",\"gpu_device\":\"%s\",\"visible\":\"%s\"}\n",
               args["--gpu-device"].c_str(), visible == nullptr ? "all" : visible);
  if (id.ends_with("-crash")) {
    std::fprintf(stderr, "{\"event\":\"error\",\"code\":\"MODEL_LOAD_FAILED\"}\n");
    return 1;
  }
  const bool stubborn = id.ends_with("-stubborn");
  base::block_stop_signals();
  net::IoRuntime runtime;
  net::ServerOptions options{.component = "fake-worker"};
  if (args.contains("--listen-fd")) options.listener_fd = std::stoi(args["--listen-fd"]);
  options.auth.credentials = {
      net::http::make_credential(std::getenv("LLORCH_WORKER_CONTROL_TOKEN"), net::http::Role::kOperator).value()};
  net::Server server(runtime, std::move(options));
  server.route("GET", "/health", net::Scope::kPublic, [&](net::Request, net::ExchangePtr exchange) {
    wire::WorkerHealth health;
    health.status = "healthy";
    health.worker_id = id;
    exchange->respond(net::http::json_response(200, wire::encode(health)));
  });
  server.route("GET", "/metrics", net::Scope::kReader, [&](net::Request, net::ExchangePtr exchange) {
    exchange->respond({200, {}, "# TYPE worker_slots gauge\nworker_slots{worker_id=\"" + id + "\"} 1\n"});
  });
  server.route("POST", "/shutdown", net::Scope::kPublic, [&](net::Request, net::ExchangePtr exchange) {
    exchange->respond(net::http::json_response(202, "{}"));
    if (!stubborn) kill(getpid(), SIGTERM);
  });
  if (!server.start()) return 1;
  if (id.ends_with("-loading")) say_progress(runtime, args);
  if (!id.ends_with("-mute") && !id.ends_with("-loading")) {
    net::Client client(runtime);
    net::ClientRequest request;
    request.method = "POST";
    request.url = args["--callback-url"];
    request.bearer = std::getenv("LLORCH_WORKER_CALLBACK_TOKEN");
    request.body = wire::encode(callback_of(args, net::http::base_url(args["--advertise"], server.port())));
    const auto answer = client.call(std::move(request));
    if (!answer || answer->status != 200) {
      std::fprintf(stderr, "{\"event\":\"error\",\"code\":\"%s\"}\n",
                   std::string(answer ? net::http::error_of(*answer).name() : answer.error().name()).c_str());
      return 1;
    }
  }
  if (id.ends_with("-hang")) raise(SIGSTOP);
  do {
    base::wait_for_stop_signal();
  } while (stubborn);
  server.stop(0);
  return 0;
}
