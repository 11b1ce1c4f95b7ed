// The real pool-managerd: how it starts and ends, whom it lets in, and what orchestratord hears.
#include <signal.h>

#include "pool_managerd/testing/daemon_fixture.h"

namespace llorch::pool_managerd {
namespace {

// POOLREG-18050, POOL-2122: SIGTERM stops the workers, deregisters and leaves nothing behind.
TEST_F(DaemonTest, OrderlyStop) {
  NEEDS_MODEL();
  run();
  start_ready("worker-a");
  const int pid = static_cast<int>(worker("worker-a")->pid);
  const std::string announced = content(directory / "state/run/pool-managerd.json");
  EXPECT_NE(announced.find("\"pid\":" + std::to_string(daemon->pid)), std::string::npos);
  EXPECT_NE(announced.find(daemon->bind), std::string::npos);
  kill(daemon->pid, SIGTERM);
  EXPECT_EQ(daemon->wait_exit(), 0);
  EXPECT_FALSE(alive(pid));
  EXPECT_TRUE(orchestrator->failure_of("worker-a"));
  EXPECT_EQ(orchestrator->deregistered, 1);
  EXPECT_FALSE(fs::exists(directory / "state/run/pool-managerd.json"));
}

// Only `llorch` reads it. A directory in its place is as good as a disk without room.
TEST_F(DaemonTest, AStartWithoutItsRunRecordServes) {
  fs::create_directories(directory / "state/run/pool-managerd.json/in-the-way");
  run();
  EXPECT_EQ(call("GET", "/health").status, 200);
  EXPECT_NE(content(daemon->stderr_file).find("run_file.failed"), std::string::npos);
}

// POOLREG-18020: without an orchestratord everything works; it is told once it is there.
TEST_F(DaemonTest, WorksOffline) {
  NEEDS_MODEL();
  orchestrator->server.stop(0);
  run();
  start_ready("worker-a");
  kill(daemon->pid, SIGTERM);
  EXPECT_EQ(daemon->wait_exit(), 0);
}

// POOL-2110, AUTH-1002: what is refused before anything listens.
TEST_F(DaemonTest, RefusesToStart) {
  const auto exit_code = [&](std::vector<std::string> more) {
    fs::remove(directory / "stderr");
    Daemon refused(directory, arguments(std::move(more)));
    EXPECT_TRUE(refused.bind.empty());
    return refused.wait_exit();
  };
  EXPECT_EQ(exit_code({}), 4);
  EXPECT_NE(content(directory / "stderr").find("NO_GPU"), std::string::npos);
  EXPECT_NE(content(directory / "stderr").find("--cpu"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--bind", "0.0.0.0:0"}), 2) << "an address to announce is missing";
  EXPECT_NE(content(directory / "stderr").find("pool-managerd.advertise"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--pool-id", "other"}), 2) << "the credential is pool-1's";
  EXPECT_NE(content(directory / "stderr").find("llorch pool pair other"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--bind", "0.0.0.0:0", "--state-dir", (directory / "unpaired").string()}), 4);
  EXPECT_NE(content(directory / "stderr").find("NON_LOOPBACK_WITHOUT_TOKEN"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--set", "no.such.key=1"}), 2);
  EXPECT_EQ(exit_code({"--no-such-flag"}), 2);
  run();
  EXPECT_EQ(exit_code({"--cpu"}), 1);
  EXPECT_NE(content(directory / "stderr").find("ALREADY_RUNNING"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--state-dir", (directory / "other").string(), "--bind", daemon->bind}), 1);
  EXPECT_NE(content(directory / "stderr").find("PORT_IN_USE"), std::string::npos);
  EXPECT_NE(content(directory / "stderr").find("pool-managerd.bind"), std::string::npos);
}

// Each direction has a token of its own, and what one of them opens is closed to the others.
TEST_F(DaemonTest, ATokenOpensItsOwnDirection) {
  run();
  const auto status = [&](const std::string& token, const std::string& method, const std::string& path) {
    bearer = token;
    return call(method, path, "{}").status;
  };
  EXPECT_EQ(status(credential.control_token(), "GET", "/v2/state"), 200);
  EXPECT_EQ(status(credential.control_token(), "POST", "/v2/internal/workers/ready"), 403);
  EXPECT_EQ(status(credential.worker_token(), "POST", "/v2/internal/workers/ready"), 400);
  EXPECT_EQ(status(credential.worker_token(), "GET", "/v2/state"), 403);
  EXPECT_EQ(status(credential.worker_token(), "POST", "/v2/workers/start"), 403);
  EXPECT_EQ(status(credential.node_token(), "GET", "/v2/state"), 401) << "it is for orchestratord";
}

// Bound to every address, the pool announces the one it is told, for itself and its workers, which it reaches itself.
TEST_F(DaemonTest, AnnouncesOneAddress) {
  NEEDS_MODEL();
  run({"--bind", "0.0.0.0:0", "--set", "pool-managerd.advertise=127.0.0.2", "--set",
       "pool-managerd.worker_health_interval_ms=50"});
  bearer = credential.control_token();
  start_ready("worker-a");
  const std::string host = "http://127.0.0.2:";
  EXPECT_EQ(state().endpoint, host + std::to_string(port()));
  EXPECT_EQ(worker("worker-a")->uri.substr(0, host.size()), host);
  EXPECT_TRUE(eventually([&] { return orchestrator->read([&] { return orchestrator->ready.size() == 1; }); }));
  EXPECT_EQ(orchestrator->registrations.at(0).endpoint, state().endpoint);
  bearer.clear();
  EXPECT_EQ(call("GET", "/v2/state").status, 401) << "beyond one machine nobody comes without a token";
}

}  // namespace
}  // namespace llorch::pool_managerd
